"""``adjudicate`` and ``reconcile --from-sweep`` as a person types them."""

import sqlite3
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from countermark.app import replay, running
from tests.cli.called import Caller
from tests.cli.recipes import write_recipe
from tests.faults import planted, proven_by


@pytest.fixture
def blocked(here: Path, call: Caller) -> str:
    """The id of a run that is blocked: its command ended in success and published nothing."""
    write_recipe(here)
    call("run", "recipe.toml", "--json", "--", "true")
    (listed,) = call("runs", "--json").document()["runs"]
    run = str(listed["run"])
    assert call("status", run, "--json").document()["verdict"] == "Blocked"
    return run


def observed(here: Path, statement: str) -> None:
    """Do to the store what nobody should."""
    with closing(sqlite3.connect(here / ".countermark" / "observations.sqlite")) as connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f'DROP TRIGGER "{trigger}"')
        connection.execute(statement)
        connection.commit()


# ------------------------------------------------------------------------------------------------------------- cancelling


def something_always_lives() -> AbstractContextManager[object]:
    return planted(running, "nothing_lives", lambda looked: False)()


@proven_by(something_always_lives)
@pytest.mark.parametrize("options", [(), ("--no-wait",)])
def test_a_blocked_run_is_cancelled_and_its_conflict_stays_to_be_seen(call: Caller, blocked: str, options: tuple[str, ...]) -> None:
    cancelled = call("cancel", blocked, *options, "--json")
    assert cancelled.code == 0, "it was recorded, and nothing of the run lives"
    document = cancelled.document()
    assert (document["ok"], document["verdict"]) == (True, "Blocked") and len(document["blockers"]) == 1
    assert document["acted"][0] == "cancelled: nothing of it starts any more"
    said = call("cancel", blocked)
    assert said.code == 0 and "SuccessWithoutOutput" in said.out
    assert call("retry", blocked, "--json").codes() == ["RunCancelled", "RetryUnavailable"]
    assert call("adjudicate", blocked, "--set-aside", "--reason", "it never wrote", "--json").document()["verdict"] == "Cancelled"
    assert call("status", blocked, "--json").document()["verdict"] == "Cancelled"


# ----------------------------------------------------------------------------------------------------------------- ruling


def test_a_ruling_is_recorded_and_the_verdict_after_it_is_shown(call: Caller, blocked: str) -> None:
    ruled = call("adjudicate", blocked, "--set-aside", "--reason", " it never wrote ", "--by", "grace", "--json")
    document = ruled.document()
    assert (ruled.code, document["verdict"], document["blockers"]) == (0, "RetryRequired", [])
    (note,) = document["notes"]
    assert (note["code"], note["by"], note["reason"], note["effect"]) == ("BlockerAdjudicated", "grace", "it never wrote", "settled")
    assert note["ruling"] == {"is": "SetAside"}
    status = call("status", blocked)
    assert "note: grace ruled that attempt" in status.out and "SuccessWithoutOutput" in status.out
    assert call("status", blocked, "--json").document()["notes"] == document["notes"]
    (last,) = [fact for fact in call("claims", blocked, "--json").document()["claims"] if fact["kind"] == "adjudication"]
    assert last["what"].startswith("set aside by grace (it never wrote): SuccessWithoutOutput ")
    assert call("adjudicate", blocked, "--set-aside", "--reason", "again", "--json").codes() == ["RunNotBlocked"]


def test_whose_ruling_it_is_comes_from_the_settings(call: Caller, blocked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERMARK_REQUESTER", "ben")
    (note,) = call("adjudicate", blocked, "--set-aside", "--reason", "torn", "--json").document()["notes"]
    assert note["by"] == "ben"


def test_what_does_not_fit_is_refused_with_every_reason(call: Caller, blocked: str) -> None:
    refused = call("adjudicate", blocked[:8], "--believe", "launcher", "--reason", "I was there", "--json")
    assert (refused.code, refused.codes()) == (1, ["NothingToBelieve", "SourceSilent"])
    assert call("adjudicate", blocked, "--set-aside", "--attempt", "ffffffff", "--reason", "x", "--json").codes() == ["AttemptNotOfRun"]
    said = call("adjudicate", blocked, "--believe", "launcher", "--reason", "I was there")
    assert (said.code, said.out) == (1, "")
    assert f"countermark adjudicate {blocked[:8]} --set-aside --reason TEXT" in said.err


@pytest.mark.parametrize(
    "options",
    [
        ("--reason", "x"),
        ("--set-aside",),
        ("--believe", "launcher"),
        ("--set-aside", "--believe", "launcher", "--reason", "x"),
        ("--set-aside", "--reason", " "),
    ],
)
def test_a_ruling_is_one_and_has_a_reason(call: Caller, blocked: str, options: tuple[str, ...]) -> None:
    called = call("adjudicate", blocked, *options, "--json")
    assert (called.code, called.codes()) == (2, ["WrongUsage"])
    assert all(fact["kind"] != "adjudication" for fact in call("claims", blocked, "--json").document()["claims"])


# ----------------------------------------------------------------------------------------------------------------- replay


def test_the_sweep_that_evidence_names_is_replayed_to_the_stored_verdict(call: Caller, blocked: str) -> None:
    sweep = call("evidence", blocked, "--json").document()["sweep"]
    assert f"--from-sweep {sweep['id'][:8]}" in call("evidence", blocked).out
    call("adjudicate", blocked, "--set-aside", "--reason", "torn")
    replayed = call("reconcile", blocked, "--from-sweep", sweep["id"][:8], "--json")
    document = replayed.document()
    assert (replayed.code, document["verdict"], document["sweep"]) == (0, "Blocked", sweep), "what was ruled since is not in it"
    assert document["replay"]["equal"] is True
    assert document["replay"]["stored"] == document["replay"]["replayed"]
    plain = call("reconcile", blocked, "--from-sweep", sweep["id"])
    assert (plain.code, plain.err) == (0, "")
    assert plain.out.splitlines()[-1] == "this is the verdict that was stored with the sweep, byte for byte"
    assert sweep["id"] in plain.out and "\nBlocked: " in plain.out


@proven_by(planted(replay.Replayed, "differs", lambda self: None))
def test_a_verdict_that_is_another_one_now_is_refused_with_both(here: Path, call: Caller, blocked: str) -> None:
    sweep = call("evidence", blocked, "--json").document()["sweep"]["id"]
    observed(here, "UPDATE verdicts SET text = CAST('Converged: so it was said' AS BLOB)")
    replayed = call("reconcile", blocked, "--from-sweep", sweep, "--json")
    assert (replayed.code, replayed.codes()) == (1, ["VerdictDiffers"])
    assert replayed.document()["replay"]["stored"] == "Converged: so it was said"
    plain = call("reconcile", blocked, "--from-sweep", sweep)
    assert plain.code == 1 and "refused: VerdictDiffers: " in plain.err
    assert "stored: Converged: so it was said" in plain.out and "replayed: Blocked: " in plain.out


def test_a_replay_looks_at_nothing_and_writes_nothing(here: Path, call: Caller, blocked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from countermark.observe.local import LocalObserver
    from countermark.store.base import SqlStore

    sweep = call("evidence", blocked, "--json").document()["sweep"]["id"]

    def never(*arguments: object, **options: object) -> object:
        pytest.fail("it was called")

    for kind, names in ((LocalObserver, ("terminals", "processes", "outputs", "checkpoints", "manifests")),
                        (SqlStore, ("record_sweep", "record_verdict", "claim_start", "cancel", "abandon", "adjudicate"))):  # fmt: skip
        for name in names:
            monkeypatch.setattr(kind, name, never)
    before = {path: path.read_bytes() for path in (here / ".countermark").rglob("*.sqlite")}
    assert call("reconcile", blocked, "--from-sweep", sweep).code == 0
    assert {path: path.read_bytes() for path in before} == before


def test_a_sweep_that_is_none_is_refused(here: Path, call: Caller, blocked: str) -> None:
    sweep = call("evidence", blocked, "--json").document()["sweep"]["id"]
    assert call("reconcile", blocked, "--from-sweep", "f" * 32, "--json").codes() == ["SweepUnknown"]
    call("run", "recipe.toml", "--request", "another", "--no-wait", "--json", "--", "true")
    other = next(run["run"] for run in call("runs", "--json").document()["runs"] if run["run"] != blocked)
    assert call("reconcile", other, "--from-sweep", sweep, "--json").codes() == ["SweepOfAnotherRun"]
    observed(here, "UPDATE sweeps SET document = CAST('{}' AS BLOB)")
    assert call("reconcile", blocked, "--from-sweep", sweep, "--json").codes() == ["SweepDamaged"]
    observed(here, "UPDATE sweeps SET digest = '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'")
    assert call("reconcile", blocked, "--from-sweep", sweep, "--json").codes() == ["SweepUndecodable"]


@pytest.mark.parametrize("options", [("--act",), ("--watch",), ("--all",), ("--retries", "1")])
def test_nothing_is_done_from_an_old_look(call: Caller, blocked: str, options: tuple[str, ...]) -> None:
    run = () if "--all" in options else (blocked,)
    assert call("reconcile", *run, *options, "--from-sweep", "f" * 32, "--json").codes() == ["WrongUsage"]
    assert call("reconcile", blocked, "--from-sweep", "f" * 7, "--json").codes() == ["WrongUsage"]
