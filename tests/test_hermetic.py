"""The suite shows the same whoever starts it: with every foreign variable set, in any order of hashes, with a home full of settings, and
deaf to Ctrl-C as a shell leaves what it starts in the background."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.environment import NAMES, OWN_SWITCHES, PREFIXES, every_foreign_variable, foreign

ROOT: Final = Path(__file__).resolve().parent.parent
#: What the suite itself says to the libraries that it runs.
_OWN_WORDS: Final = frozenset(
    {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"}
)
#: Tests that print, parse and derive: those that a stray variable would reach first.
_SUBSET: Final = ("tests/test_faults.py", "tests/test_values.py", "tests/lines", "tests/cli", "tests/recipe")


#: As a library sees them that reads its settings when it is loaded.
_SEEN_AT_IMPORT: Final = frozenset(os.environ)


class TestProbe:
    """What every test may rely on. Run here as part of the suite, and below in a suite that was started in the worst environment."""

    def test_no_foreign_variable_is_seen(self) -> None:
        assert set(foreign(os.environ)) <= _OWN_WORDS

    def test_no_foreign_variable_was_seen_when_modules_were_imported(self) -> None:
        assert set(foreign(_SEEN_AT_IMPORT)) <= _OWN_WORDS

    def test_the_home_is_empty_and_temporary(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        assert Path.home().is_relative_to(tmp_path_factory.getbasetemp())
        assert [path for path in Path.home().rglob("*") if path.is_file()] == []

    def test_the_hub_is_out_of_reach(self) -> None:
        assert (os.environ.get("HF_HUB_OFFLINE"), os.environ.get("TRANSFORMERS_OFFLINE")) == ("1", "1")

    def test_ctrl_c_is_heard_by_what_a_test_starts(self) -> None:
        code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def suite(*arguments: str, home: Path, hash_seed: str) -> subprocess.CompletedProcess[str]:
    """The suite, or a part of it, started with every foreign variable set, a home that is not empty, and Ctrl-C ignored."""
    (home / "settings.toml").write_text("planted = true\n", encoding="utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        **every_foreign_variable(),
        "HOME": str(home),
        "PYTHONHASHSEED": hash_seed,
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--basetemp",
        str(home / "base"),
        *arguments,
    ]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_a_part_of_the_suite_passes_with_every_foreign_variable_set(tmp_path: Path) -> None:
    subset = [path for path in _SUBSET if (ROOT / path).exists()]
    run = suite("tests/test_hermetic.py::TestProbe", *subset, "-m", "not torch and not slow", home=tmp_path, hash_seed="1")
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_probes_see_what_the_suite_does_not_clear(tmp_path: Path) -> None:
    """The control of the control: without the fixtures of conftest.py, every probe is red."""
    run = suite("tests/test_hermetic.py::TestProbe", "--noconftest", home=tmp_path, hash_seed="2")
    assert run.returncode == 1
    assert "5 failed" in run.stdout, run.stdout


def test_what_a_test_changes_ends_with_it(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("from tests.conftest import hermetic\n__all__ = ['hermetic']\n")
    pytester.makepyfile(
        test_inner="""
        import os
        from pathlib import Path

        def test_changes(tmp_path):
            os.environ["COUNTERMARK_STORE"] = os.environ["LEFT_BEHIND"] = "1"
            os.chdir(tmp_path)
            (Path.home() / "left").touch()

        def test_sees_nothing_of_it():
            assert "COUNTERMARK_STORE" not in os.environ and "LEFT_BEHIND" not in os.environ
            assert Path("test_inner.py").exists()
            assert not (Path.home() / "left").exists()
        """
    )
    outcomes = pytester.inline_run("-p", "no:cacheprovider", "-p", "no:xdist").listoutcomes()
    assert [len(group) for group in outcomes] == [2, 0, 0]


def test_every_entry_is_foreign_and_nothing_else() -> None:
    every = every_foreign_variable()
    assert foreign(every) == tuple(every)
    assert len(every) == len(NAMES) + len(PREFIXES)
    kept = ("PATH", "HOME", "LANG", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", OWN_SWITCHES + "CLICKHOUSE", "CITY", "RANKING")
    assert foreign(kept) == ()
