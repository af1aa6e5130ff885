"""The helper that proves controls is a control itself: each way in which a proof can be hollow is caught here."""

import textwrap
from pathlib import Path

import pytest

from tests import faults
from tests.faults import planted, proven_by

REPOSITORY = Path(__file__).resolve().parent.parent

_ROOM = """
    class Room:
        answer = 1
"""


@pytest.fixture
def outcomes(pytester: pytest.Pytester) -> "Outcomes":
    pytester.makeconftest(
        "from tests.faults import planted_fault, pytest_configure, pytest_generate_tests, pytest_pyfunc_call\n"
        "__all__ = ['planted_fault', 'pytest_configure', 'pytest_generate_tests', 'pytest_pyfunc_call']\n"
    )
    return Outcomes(pytester)


class Outcomes:
    """Runs a test module in a suite of its own and says how each of its items ended."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester

    def of(self, body: str, *arguments: str) -> dict[str, str]:
        """Item name → passed, failed, skipped or error; the reports' text is kept in ``text``."""
        header = "import pytest\nfrom contextlib import contextmanager\nfrom tests.faults import planted, proven_by\n"
        module = header + textwrap.dedent(_ROOM) + textwrap.dedent(body)
        self.pytester.makepyfile(test_inner=module)
        run = self.pytester.inline_run("--strict-markers", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", *arguments)
        reports = [report for report in run.getreports("pytest_runtest_logreport") if report.when == "call" or report.outcome != "passed"]
        self.text = "\n".join(report.longreprtext for report in reports)
        return {report.nodeid.split("::", 1)[1]: report.outcome for report in reports}


def test_a_control_that_can_fail_is_proven(outcomes: Outcomes) -> None:
    found = outcomes.of("""
        @proven_by(planted(Room, "answer", 2))
        def test_sees():
            assert Room.answer == 1

        def test_the_fault_is_gone():
            assert Room.answer == 1
    """)
    assert found == {"test_sees[as it is]": "passed", "test_sees[under Room.answer]": "passed", "test_the_fault_is_gone": "passed"}


def test_a_control_that_cannot_fail_is_caught(outcomes: Outcomes) -> None:
    found = outcomes.of("""
        @proven_by(planted(Room, "answer", 2))
        def test_blind():
            assert Room.answer
    """)
    assert found == {"test_blind[as it is]": "passed", "test_blind[under Room.answer]": "failed"}
    assert "under the fault Room.answer the control still passes" in outcomes.text


def test_one_seen_fault_does_not_excuse_an_unseen_one(outcomes: Outcomes) -> None:
    found = outcomes.of("""
        @proven_by(planted(Room, "answer", 2), planted(Room, "answer", 3))
        def test_half_blind():
            assert Room.answer != 3
    """)
    assert found == {
        "test_half_blind[as it is]": "passed",
        "test_half_blind[under Room.answer0]": "failed",
        "test_half_blind[under Room.answer1]": "passed",
    }


def test_a_control_that_fails_as_it_is_fails(outcomes: Outcomes) -> None:
    found = outcomes.of("""
        @proven_by(planted(Room, "answer", 2))
        def test_wrong():
            assert Room.answer == 3
    """)
    assert found == {"test_wrong[as it is]": "failed", "test_wrong[under Room.answer]": "passed"}


@pytest.mark.parametrize(
    "crash", ["1 / 0", "raise KeyError('x')", "int('x')", "raise ExceptionGroup('two', [AssertionError(), OSError()])"]
)
def test_a_crash_is_not_red(outcomes: Outcomes, crash: str) -> None:
    found = outcomes.of(f"""
        @proven_by(planted(Room, "answer", 2))
        def test_crashes():
            if Room.answer == 2:
                {crash}
    """)
    assert found == {"test_crashes[as it is]": "passed", "test_crashes[under Room.answer]": "failed"}
    assert "the control did not judge, it crashed" in outcomes.text


@pytest.mark.parametrize(
    "judgement",
    [
        "pytest.fail('no')",
        "raise AssertionError('no')",
        "raise ExceptionGroup('two', [AssertionError(), AssertionError()])",
        "with pytest.raises(OSError): pass",
    ],
)
def test_every_way_to_judge_is_red(outcomes: Outcomes, judgement: str) -> None:
    found = outcomes.of(f"""
        @proven_by(planted(Room, "answer", 2))
        def test_judges():
            if Room.answer == 2:
                {judgement}
    """)
    assert found == {"test_judges[as it is]": "passed", "test_judges[under Room.answer]": "passed"}


def test_a_skip_is_neither(outcomes: Outcomes) -> None:
    found = outcomes.of("""
        @proven_by(planted(Room, "answer", 2))
        def test_skips():
            pytest.skip("not here")
    """)
    assert found == {"test_skips[as it is]": "skipped", "test_skips[under Room.answer]": "skipped"}


def test_each_run_has_fresh_fixtures_built_without_the_fault(outcomes: Outcomes) -> None:
    """A control that fails under the fault only because the first run left a file behind is not proven."""
    found = outcomes.of("""
        @pytest.fixture
        def built():
            return Room.answer

        @proven_by(planted(Room, "answer", 2))
        def test_leaves_a_file(tmp_path, built):
            assert built == 1 and not list(tmp_path.iterdir())
            (tmp_path / "left").touch()
    """)
    assert found == {"test_leaves_a_file[as it is]": "passed", "test_leaves_a_file[under Room.answer]": "failed"}


def test_a_fault_that_swallows_exceptions_proves_nothing(outcomes: Outcomes) -> None:
    found = outcomes.of("""
        @contextmanager
        def swallows():
            try:
                yield
            except BaseException:
                pass

        @proven_by(swallows)
        def test_blind():
            assert True
    """)
    assert found == {"test_blind[as it is]": "passed", "test_blind[under swallows]": "failed"}


def test_a_fault_that_cannot_be_planted_is_an_error(outcomes: Outcomes) -> None:
    found = outcomes.of("""
        @proven_by(planted(Room, "question", 2), planted(Room, "answer", Room.answer))
        def test_sees():
            assert Room.answer == 1
    """)
    assert set(found.values()) == {"passed", "failed"}
    assert list(found.values()).count("failed") == 2
    assert "AttributeError" in outcomes.text
    assert "already is what the fault would plant" in outcomes.text


def test_parametrized_controls_classes_and_properties_are_proven_too(outcomes: Outcomes) -> None:
    found = outcomes.of("""
        from hypothesis import given, settings, strategies

        @pytest.mark.parametrize("n", [1, 2])
        @proven_by(planted(Room, "answer", 2))
        def test_each(n):
            assert Room.answer == 1

        @proven_by(planted(Room, "answer", 2))
        class TestGroup:
            def test_method(self, tmp_path):
                assert Room.answer == 1

        @proven_by(planted(Room, "answer", 2))
        @settings(database=None)
        @given(strategies.integers())
        def test_property(n):
            assert Room.answer * n == n
    """)
    assert len(found) == 4 + 2 + 2
    assert set(found.values()) == {"passed"}


def test_the_mark_is_unknown_without_the_plugin(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(
        test_inner="""
        from tests.faults import planted, proven_by

        @proven_by(planted(int, "x", 2))
        def test_unproven():
            pass
        """
    )
    # In a process of its own: pytest remembers known marks for as long as its process lives.
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    run = pytester.runpytest_subprocess("--strict-markers", "-p", "no:cacheprovider", "-p", "no:xdist")
    assert run.ret == pytest.ExitCode.INTERRUPTED
    assert "'proven_by' not found in `markers` configuration option" in run.stdout.str()


def test_no_fault_is_no_proof() -> None:
    with pytest.raises(ValueError, match="at least one fault"):
        proven_by()


def test_a_fault_is_named_by_what_it_replaces() -> None:
    assert getattr(planted(faults, "planted", None), "__name__") == "faults.planted"  # noqa: B009 (a Fault need not have one)


def test_the_planted_value_is_gone_after_an_exception() -> None:
    class Room:
        answer = 1

    with pytest.raises(KeyError), planted(Room, "answer", 2)():
        assert Room.answer == 2
        raise KeyError
    assert Room.answer == 1
