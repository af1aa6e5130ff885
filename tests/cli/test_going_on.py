"""From an attempt that failed to one that goes on: publish, inspect, status, resume, all by commands that a person types."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from countermark.app import inspect, rounds
from countermark.cli import watching
from countermark.cli.failures import CallRefused
from countermark.evidence.members import CheckpointSeen
from countermark.lines.surface import RetriesUsedUp
from countermark.observe import local
from countermark.run.attempts import AttemptKey
from countermark.run.checkpoint import CheckpointReadback
from countermark.run.records import RunUnknown
from countermark.values import NonEmpty, Refused
from countermark.verdict import fold
from tests.cli.called import Caller
from tests.cli.recipes import write_recipe
from tests.faults import planted, proven_by
from tests.files import folders
from tests.recipe.examples import CLEAN

#: Copies a trainer's checkpoint into the attempt's own place and fails; an attempt that goes on says from where, and fails as well.
_COMMAND = (
    'echo "$COUNTERMARK_RESUME" >> resumed.txt; mkdir -p "$COUNTERMARK_ATTEMPT/work"; '
    'cp -r checkpoint-4 "$COUNTERMARK_ATTEMPT/work/"; exit 3'
)

#: Publishes the trainer's checkpoint of step 4 or, gone on from one, of step 8, as its attempt's, and fails.
_PUBLISHES = (
    'mkdir -p "$COUNTERMARK_ATTEMPT/work"; [ -n "$COUNTERMARK_RESUME" ] && step=checkpoint-8 || step=checkpoint-4; '
    'cp -r $step "$COUNTERMARK_ATTEMPT/work/"; '
    f'{sys.executable} -m countermark.cli.entry checkpoint publish "$COUNTERMARK_ATTEMPT/work/$step"; exit 3'
)


@pytest.fixture
def failed(here: Path, call: Caller) -> dict[str, Any]:
    """The document of a run whose only attempt failed and left a trainer's checkpoint."""
    folders.checkpoint(here, 4)
    write_recipe(here, **{name: f'"{spelling}"' for name, spelling in CLEAN.items() if name != "target_modules"})
    called = call("run", "recipe.toml", "--json", "--", "sh", "-c", _COMMAND)
    assert called.code == 1
    return called.document()


def test_a_failed_attempt_is_gone_on_from_its_published_checkpoint(here: Path, call: Caller, failed: dict[str, Any]) -> None:
    run = failed["run"]
    assert failed["verdict"] == "RetryRequired"
    (folder,) = call("attempts", run, "--json").document()["folders"].values()
    inspected = call("checkpoint", "inspect", f"{folder}/work/checkpoint-4", "--for", run, "--json")
    assert (inspected.code, inspected.codes()) == (1, ["PublicationUnobserved"])
    vouched = call("checkpoint", "inspect", f"{folder}/work/checkpoint-4", "--for", run, "--vouch", "--json")
    assert (vouched.code, vouched.document()["admissible"]["vouched"]) == (0, True)

    published = call("checkpoint", "publish", f"{folder}/work/checkpoint-4", "--json").document()
    assert published["path"] == f"{folder}/checkpoints/step-4"
    assert call("checkpoint", "publish", f"{folder}/work/checkpoint-4", "--json").codes() == ["FolderTaken"]
    assert call("checkpoint", "publish", published["path"], "--into", "kept", "--json").codes() == ["PublishedBefore"]
    held = call("checkpoint", "inspect", published["path"], "--for", run[:8], "--json").document()
    assert (held["publication"], held["admissible"]["resume"], held["digest"]) == ("atomic", True, published["digest"])

    status = call("status", run, "--json").document()
    assert status["verdict"] == "ResumeAvailable"
    assert call("resume", run, "--from", "9", "--json").codes() == ["CheckpointNotAmong"]
    gone_on = call("resume", run, "--json")
    assert gone_on.code == 1, "the second attempt fails as the first did"
    assert (here / "resumed.txt").read_text(encoding="utf-8").splitlines() == ["", published["path"]]
    attempts = call("attempts", run, "--json").document()["attempts"]
    assert [each["cause"][0] for each in attempts] == ["InitialAttempt", "Resume"]
    assert attempts[1]["predecessor"] == attempts[0]["attempt"]


@pytest.mark.parametrize(
    ("into", "said"),
    [
        ("", "--into '' names nothing"),
        ("recipe.toml", "--into 'recipe.toml' is there already, and is no folder"),
        ("dangling", "--into 'dangling' is there already, and is no folder"),
        ("checkpoint-4/kept", "--into 'checkpoint-4/kept' lies in 'checkpoint-4' itself"),
        ("checkpoint-4", "--into 'checkpoint-4' lies in 'checkpoint-4' itself"),
    ],
)
def test_a_place_where_nothing_can_be_published_is_a_wrong_call(here: Path, call: Caller, into: str, said: str) -> None:
    folders.checkpoint(here, 4)
    write_recipe(here)
    (here / "dangling").symlink_to("nowhere")
    called = call("checkpoint", "publish", "checkpoint-4", "--into", into)
    assert (called.code, called.err.splitlines()[0]) == (2, f"wrong usage: {said}")


def test_a_torn_checkpoint_is_refused_with_every_missing_component(here: Path, call: Caller, failed: dict[str, Any]) -> None:
    run = failed["run"]
    (folder,) = call("attempts", run, "--json").document()["folders"].values()
    call("checkpoint", "publish", f"{folder}/work/checkpoint-4")
    torn = Path(folder, "checkpoints/step-8")
    shutil.copytree(Path(folder, "checkpoints/step-4"), torn)
    for name in ("optimizer.pt", "scheduler.pt"):
        (torn / name).unlink()
    called = call("checkpoint", "inspect", str(torn), "--for", run, "--json")
    missing = {each["component"] for each in called.document()["defects"] if each["code"] == "ComponentMissing"}
    assert (called.code, missing) == (1, {"optimizer_state", "scheduler_state"})
    status = call("status", run, "--json").document()
    assert status["verdict"] == "ResumeAvailable"
    assert [each["step"] for each in status["whyNot"] if each["code"] == "CheckpointNotAdmitted"] == [8]
    several = call("checkpoint", "inspect", str(torn), f"{folder}/checkpoints/step-4", "--for", run, "--json")
    assert (several.code, [each["ok"] for each in several.document()["checkpoints"]]) == (1, [False, True])


# ------------------------------------------------------------------------------------------- two attempts and one location


@pytest.fixture
def twice(here: Path, call: Caller) -> tuple[str, Path, Path]:
    """A run of two attempts that failed, the second gone on from the first; each published a checkpoint, of steps 4 and 8."""
    for step in (4, 8):
        folders.checkpoint(here, step)
    write_recipe(here, **{name: f'"{spelling}"' for name, spelling in CLEAN.items() if name != "target_modules"})
    run = call("run", "recipe.toml", "--json", "--", "sh", "-c", _PUBLISHES).document()["run"]
    assert call("resume", run).code == 1
    first, second = call("attempts", run, "--json").document()["folders"].values()
    return run, Path(first, "checkpoints/step-4"), Path(second, "checkpoints/step-8")


def codes_for(call: Caller, run: str, *paths: Path) -> list[list[str]]:
    """What speaks against going on from each checkpoint, each looked at for the run."""
    return [call("checkpoint", "inspect", str(path), "--for", run, "--json").codes() for path in paths]


def test_o16_each_in_its_own_place_is_admitted_and_gone_on_from(call: Caller, twice: tuple[str, Path, Path]) -> None:
    run, four, eight = twice
    assert codes_for(call, run, four, eight) == [[], []]
    assert call("resume", run, "--json").document()["verdict"] == "ResumeAvailable"
    causes = [each["cause"][0] for each in call("attempts", run, "--json").document()["attempts"]]
    assert causes == ["InitialAttempt", "Resume", "Resume"]


@proven_by(planted(inspect, "_elsewhere", lambda readback: ()))
def test_o16_what_two_published_into_the_folder_of_one_is_gone_on_from_by_nobody(call: Caller, twice: tuple[str, Path, Path]) -> None:
    run, four, eight = twice
    eight.rename(four.parent / "step-8")
    assert codes_for(call, run, four, four.parent / "step-8") == [[], ["AttemptElsewhere"]]
    (four.parent / "step-8" / "rng_state.pth").unlink()
    broken = ["ComponentMissing", "PublicationIncomplete", "AttemptElsewhere"]
    assert codes_for(call, run, four.parent / "step-8") == [broken]
    for act in ("status", "resume", "retry"):
        assert (call(act, run).code, call(act, run, "--json").codes()) == (1, ["ForeignMember"])
    assert len(call("attempts", run, "--json").document()["attempts"]) == 2


def at_one_place(attempt: AttemptKey, step: int, path: str, readback: CheckpointReadback) -> CheckpointSeen:
    """As an observer tells it for whom both attempts publish to one path."""
    return CheckpointSeen(attempt, step, "/shared/newest", readback)


@proven_by(planted(fold, "_shared_locations", lambda found: ()))
def test_o16_two_attempts_at_one_place_block_the_run_and_no_checkpoint_is_admitted(
    call: Caller, twice: tuple[str, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, *_ = twice
    monkeypatch.setattr(local, "CheckpointSeen", at_one_place)
    status = call("status", run, "--json").document()
    assert (status["verdict"], [each["code"] for each in status["blockers"]]) == ("Blocked", ["SharedLocation"])
    assert call("resume", run, "--json").codes() == ["ResumeUnavailable"]
    assert call("resume", run, "--from", "8", "--json").codes() == ["ResumeUnavailable"]
    assert len(call("attempts", run, "--json").document()["attempts"]) == 2


# ------------------------------------------------------------------------------------------------- refusals beside answers


def _first_refusal_wins(*args: object) -> None:
    raise CallRefused((RetriesUsedUp(0, 0),))


def _fail_twice(call: Caller, here: Path) -> list[str]:
    """Two runs that failed and left nothing."""
    write_recipe(here)
    for seed in ("1", "2"):
        call("run", "recipe.toml", "--set", f"seed={seed}", "--", "sh", "-c", "exit 3")
    return [each["run"] for each in call("runs", "--json").document()["runs"]]


def standing(document: dict[str, Any]) -> dict[str, tuple[bool, str | None]]:
    """Of each run in an answer about all of them, whether it was answered and its verdict."""
    return {each["run"]: (each["ok"], each.get("verdict")) for each in document["runs"]}


@proven_by(planted(watching, "_refused", _first_refusal_wins))
def test_an_act_that_is_refused_hides_neither_the_verdict_nor_the_run(here: Path, call: Caller) -> None:
    run, _ = _fail_twice(call, here)
    for args in (("reconcile", run, "--act"), ("reconcile", run, "--act", "--watch")):
        called = call(*args, "--json")
        document = called.document()
        assert (called.code, called.codes()) == (1, ["RetriesUsedUp"])
        assert (document.get("run"), document.get("verdict")) == (run, "RetryRequired")
        assert "RetryRequired" in call(*args).out
        assert "RetriesUsedUp" in call(*args).err


@proven_by(planted(rounds, "step_of", _first_refusal_wins))
def test_what_is_refused_for_one_run_keeps_no_other_waiting(here: Path, call: Caller) -> None:
    runs = _fail_twice(call, here)
    called = call("reconcile", "--all", "--act", "--json")
    assert (called.code, called.codes()) == (1, ["RetriesUsedUp", "RetriesUsedUp"])
    assert standing(called.document()) == dict.fromkeys(runs, (False, "RetryRequired"))


def test_a_run_that_cannot_be_read_is_named_and_the_next_is_looked_at(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = _fail_twice(call, here)
    step = rounds.step_of

    def unreadable(ports: Any, run_id: str, *rest: Any) -> Any:
        return Refused(NonEmpty(RunUnknown(run_id))) if run_id == runs[0] else step(ports, run_id, *rest)

    monkeypatch.setattr(rounds, "step_of", unreadable)
    called = call("reconcile", "--all", "--json")
    assert standing(called.document()) == {runs[0]: (False, None), runs[1]: (True, "RetryRequired")}
    assert called.codes() == ["RunUnknown"]
    assert f"{runs[0][:8]}\ttoy\trefused\t" in call("reconcile", "--all").out


def test_an_answer_after_an_act_is_what_holds_then(here: Path, call: Caller) -> None:
    write_recipe(here)
    begun = call("run", "recipe.toml", "--no-wait", "--json", "--", "sleep", "1").document()
    assert begun["verdict"] in ("InProgress", "LaunchPending")
    assert any("dispatched attempt" in line for line in begun["acted"])
    call("reconcile", begun["run"], "--watch")
    failed = call("run", "recipe.toml", "--set", "seed=9", "--json", "--", "sh", "-c", "exit 3").document()
    again = call("reconcile", failed["run"], "--act", "--retries", "1", "--json").document()
    assert any("claimed attempt" in line for line in again["acted"])
    assert len(call("attempts", failed["run"], "--json").document()["attempts"]) == 2
    assert again["members"]["attempts"] != failed["members"]["attempts"]
