"""From an attempt that failed to one that goes on: publish, inspect, status, resume, all by commands that a person types."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.called import Caller
from tests.cli.recipes import write_recipe
from tests.files import folders
from tests.recipe.examples import CLEAN

#: Copies a trainer's checkpoint into the attempt's own place and fails; an attempt that goes on says from where, and fails as well.
_COMMAND = (
    'echo "$COUNTERMARK_RESUME" >> resumed.txt; mkdir -p "$COUNTERMARK_ATTEMPT/work"; '
    'cp -r checkpoint-4 "$COUNTERMARK_ATTEMPT/work/"; exit 3'
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
