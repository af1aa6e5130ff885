"""Pruning from the command line: a plan first, never the last admitted one, and nothing that is not admitted."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from countermark.app import prune
from countermark.files.leftovers import alone_in, filled
from countermark.files.publishing import PublishedCheckpoint, publish_checkpoint
from countermark.values import Refused
from tests.cli.called import Called, Caller
from tests.cli.recipes import write_recipe
from tests.faults import planted, proven_by
from tests.files import folders
from tests.recipe.examples import CLEAN, clean_spellings


def published(here: Path, *steps: int, place: str = "kept") -> Path:
    """A folder with published checkpoints of these steps."""
    for step in steps:
        source = here / "trainer" / f"checkpoint-{step}"
        source = source if source.exists() else folders.checkpoint(here / "trainer", step)
        given = {"attempt": folders.NONCE, "work_key": folders.WORK_KEY, "manifest": clean_spellings()}
        assert isinstance(publish_checkpoint(source, here / place, step=step, **given), PublishedCheckpoint)
    return here / place


def fates(called: Called) -> dict[str, tuple[str, str]]:
    """What becomes of each checkpoint, and of which kind that is, by name."""
    return {each["name"]: (each["fate"], each["why"]) for each in called.document()["checkpoints"]}


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_the_plan_is_shown_and_only_yes_carries_it_out(here: Path, call: Caller) -> None:
    place = published(here, 9, 10, 12)
    shown = call("checkpoint", "prune", "kept", "--keep", "2")
    assert shown.code == 0 and "step-9\t" in shown.out and "nothing was deleted: --yes does it" in shown.out
    assert fates(call("checkpoint", "prune", "kept", "--keep", "2", "--yes", "--dry-run", "--json")) == {
        "step-9": ("would go", "Surplus"),
        "step-10": ("stays", "AmongTheLast"),
        "step-12": ("stays", "AmongTheLast"),
    }
    assert names(place) == ["step-10", "step-12", "step-9"]
    done = call("checkpoint", "prune", "kept", "--keep", "2", "--yes")
    assert done.code == 0 and "1 of 3 checkpoints went" in done.out and "taking away step-9" in done.err
    assert names(place) == ["step-10", "step-12"]
    again = call("checkpoint", "prune", "kept", "--keep", "2", "--yes", "--json")
    assert {fate for fate, _ in fates(again).values()} == {"stays"}


def test_o5_the_only_admitted_one_is_kept_and_to_delete_it_is_refused_by_name(here: Path, call: Caller) -> None:
    place = published(here, 4)
    torn = folders.checkpoint(place, 8, optimizer_pt=None, scheduler_pt=None)
    assert (torn.stat().st_mtime_ns) > (place / "step-4").stat().st_mtime_ns
    kept = call("checkpoint", "prune", "kept", "--keep", "1", "--yes", "--torn", "--json")
    assert fates(kept) == {"step-4": ("stays", "OnlyAdmitted"), "checkpoint-8": ("stays", "NotAdmitted")}
    (why,) = [each["defects"] for each in kept.document()["checkpoints"] if each["name"] == "checkpoint-8"]
    assert {each.get("component") for each in why if each["code"] == "ComponentMissing"} == {"optimizer_state", "scheduler_state"}
    told = call("checkpoint", "prune", "kept", "--keep", "1")
    assert "the only admitted checkpoint" in told.out
    blocked = call("checkpoint", "prune", "kept", "--keep", "0", "--yes", "--json")
    assert (blocked.code, blocked.codes()) == (1, ["OnlyAdmittedCheckpoint"])
    assert names(place) == ["checkpoint-8", "step-4"]


def test_torn_ones_go_only_where_they_are_asked_for(here: Path, call: Caller) -> None:
    place = here / "kept"
    folders.checkpoint(place, 2, optimizer_pt=None)
    folders.checkpoint(place, 3)
    published(here, 4)
    folders.checkpoint(place, 6, optimizer_pt=None)
    assert call("checkpoint", "prune", "kept", "--keep", "1", "--yes").code == 0
    assert names(place) == ["checkpoint-2", "checkpoint-3", "checkpoint-6", "step-4"]
    asked = call("checkpoint", "prune", "kept", "--keep", "1", "--yes", "--torn", "--json")
    assert fates(asked)["checkpoint-2"] == ("went", "Torn") and fates(asked)["checkpoint-3"] == ("stays", "NotAdmitted")
    assert names(place) == ["checkpoint-3", "checkpoint-6", "step-4"]


def test_a_trainers_own_checkpoints_count_where_a_person_vouches_for_them(here: Path, call: Caller) -> None:
    for step in (4, 8):
        folders.checkpoint(here / "out", step)
    write_recipe(here, **{name: f'"{spelling}"' for name, spelling in CLEAN.items() if name != "target_modules"})
    asked = ("checkpoint", "prune", "out", "--keep", "1", "--for", "recipe.toml", "--yes", "--json")
    assert {fate for fate, _ in fates(call(*asked)).values()} == {"stays"}
    vouched = fates(call(*asked, "--vouch"))
    assert vouched == {"checkpoint-4": ("went", "Surplus"), "checkpoint-8": ("stays", "AmongTheLast")}
    assert names(here / "out") == ["checkpoint-8"]


def test_what_else_lies_there_is_told_and_only_what_the_dead_left_is_taken_away(here: Path, call: Caller) -> None:
    """O19: a leftover of another trainer is no checkpoint, and none of ours to delete."""
    place = published(here, 4, 12)
    for name in ("tmp-checkpoint-49", ".tmp-step-6-0123456789abcdef", ".gone-step-2-0123456789abcdef", "notes"):
        (place / name).mkdir()
    with filled(place, "step-50") as live:
        shown = call("checkpoint", "prune", "kept", "--keep", "1", "--json").document()
        states = {left["name"]: left["state"] for left in shown["leftovers"]}
        assert states == {".gone-step-2-0123456789abcdef": "dead", ".tmp-step-6-0123456789abcdef": "dead", live.name: "live"}
        assert shown["others"] == ["notes", "tmp-checkpoint-49"]
        assert call("checkpoint", "prune", "kept", "--keep", "1", "--yes").code == 0
        assert names(place) == sorted([live.name, "notes", "step-12", "tmp-checkpoint-49"])


def test_a_folder_that_somebody_else_is_pruning_and_one_that_is_not_there(here: Path, call: Caller) -> None:
    place = published(here, 4)
    with alone_in(place):
        busy = call("checkpoint", "prune", "kept", "--keep", "1", "--yes", "--json")
        assert (busy.code, busy.codes()) == (1, ["PruneUnderWay"])
        assert call("checkpoint", "prune", "kept", "--keep", "1").code == 0, "who only looks waits for nobody"
    assert call("checkpoint", "prune", "kept").code == 2


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("gone", "there is nothing at 'gone'"),
        ("dangling", "'dangling' is no folder, and a folder of checkpoints is one"),
        ("recipe.toml", "'recipe.toml' is no folder, and a folder of checkpoints is one"),
        ("kept/step-4", "'kept/step-4' is no folder of checkpoints, but a checkpoint itself; it lies in "),
        (".", "'.' is no folder of checkpoints, and checkpoints lie in 'kept', 'trainer'"),
    ],
)
def test_what_is_no_folder_of_checkpoints_is_told_and_what_may_have_been_meant(here: Path, call: Caller, path: str, said: str) -> None:
    published(here, 4)
    write_recipe(here)
    (here / "dangling").symlink_to("nowhere")
    called = call("checkpoint", "prune", path, "--keep", "1", "--yes")
    assert called.code == 2 and called.err.startswith(f"wrong usage: {said}"), called.err
    assert names(here / "kept") == ["step-4"]


def test_a_folder_in_which_there_is_no_checkpoint_yet_has_none_to_lose(here: Path, call: Caller) -> None:
    (here / "kept").mkdir()
    assert fates(call("checkpoint", "prune", "kept", "--keep", "1", "--yes", "--json")) == {}


# ------------------------------------------------------------------------------------------------- in an attempt's folder

_COMMAND = 'mkdir -p "$COUNTERMARK_ATTEMPT/work"; cp -r trainer/* "$COUNTERMARK_ATTEMPT/work/"; exit 3'


@pytest.fixture
def failed(here: Path, call: Caller) -> tuple[str, Path]:
    """A run whose attempt failed, and the checkpoints of that attempt."""
    for step in (4, 6, 8):
        folders.checkpoint(here / "trainer", step)
    write_recipe(here, **{name: f'"{spelling}"' for name, spelling in CLEAN.items() if name != "target_modules"})
    run = call("run", "recipe.toml", "--json", "--", "sh", "-c", _COMMAND).document()["run"]
    (folder,) = call("attempts", run, "--json").document()["folders"].values()
    for step in (4, 6, 8):
        assert call("checkpoint", "publish", f"{folder}/work/checkpoint-{step}").code == 0
    return run, Path(folder) / "checkpoints"


def go_on_from_the_first(here: Path, call: Caller, run: str, place: Path) -> Path:
    """The folder of an attempt that goes on from step 4, and has not ended."""
    assert call("resume", run, "--from", "4", "--json").code == 1
    others: list[Any] = [each for each in call("attempts", run, "--json").document()["folders"].values() if each != str(place.parent)]
    (Path(others[0]) / "terminal.json").rename(here / "terminal.json")
    return Path(others[0])


@pytest.fixture
def resumed(here: Path, call: Caller, failed: tuple[str, Path]) -> tuple[Path, Path]:
    """The checkpoints of an attempt that failed, and the folder of the attempt that went on from the first of them, and has not ended."""
    run, place = failed
    return place, go_on_from_the_first(here, call, run, place)


@proven_by(planted(prune, "_begun", lambda runs, folder: {}))
def test_where_an_attempt_begins_that_has_not_ended_the_checkpoint_stays(here: Path, call: Caller, resumed: tuple[Path, Path]) -> None:
    place, successor = resumed
    assert fates(call("checkpoint", "prune", str(place), "--keep", "1", "--yes", "--json")) == {
        "step-4": ("stays", "BegunAt"),
        "step-6": ("went", "Surplus"),
        "step-8": ("stays", "AmongTheLast"),
    }
    (here / "terminal.json").rename(successor / "terminal.json")
    assert fates(call("checkpoint", "prune", str(place), "--keep", "1", "--yes", "--json"))["step-4"] == ("went", "Surplus")
    assert names(place) == ["step-8"]


def asked_before(names: Any, folder: Any, url: Any) -> Any:
    """The fault: what the ledger said before the checkpoints were read stands."""
    return _KNOWN.setdefault(str(names), _RUNS(names, folder, url))


_KNOWN: dict[str, Any] = {}
_RUNS = prune._runs


@proven_by(planted(prune, "_runs", asked_before))
def test_an_attempt_that_begins_while_the_checkpoints_are_read_keeps_its_own(
    here: Path, call: Caller, failed: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, place = failed
    read = prune.inspect_checkpoints
    _KNOWN.clear()

    def meanwhile(*given: Any, **more: Any) -> Any:
        found = read(*given, **more)
        monkeypatch.setattr(prune, "inspect_checkpoints", read)
        go_on_from_the_first(here, call, run, place)
        return found

    monkeypatch.setattr(prune, "inspect_checkpoints", meanwhile)
    assert call("checkpoint", "prune", str(place), "--keep", "1", "--yes").code == 0
    assert names(place) == ["step-4", "step-8"]


@pytest.mark.parametrize("how", ["no ledger", "another ledger"])
def test_where_no_ledger_knows_the_attempt_nothing_goes_unless_somebody_says_what_they_belong_to(
    here: Path, call: Caller, failed: tuple[str, Path], how: str
) -> None:
    _, place = failed
    (here / ".countermark").rename(here / "moved")
    if how == "another ledger":
        assert call("store", "init").code == 0
        shutil.copytree(here / "moved" / "attempts", here / ".countermark" / "attempts")
    kept = (
        place
        if how == "another ledger"
        else Path(shutil.copytree(here / "moved" / "attempts", here / "kept")) / place.relative_to(place.parents[1])
    )
    refused = call("checkpoint", "prune", str(kept), "--keep", "1", "--yes", "--json")
    assert (refused.code, refused.codes()) == (1, ["AttemptUnrecorded"])
    assert names(kept) == ["step-4", "step-6", "step-8"]
    asked = call("checkpoint", "prune", str(kept), "--keep", "1", "--for", "recipe.toml", "--json")
    assert fates(asked)["step-4"] == ("would go", "Surplus")


def test_a_copy_outside_of_any_attempt_is_judged_by_what_it_says(here: Path, call: Caller, failed: tuple[str, Path]) -> None:
    _, place = failed
    shutil.copytree(place, here / "copied")
    assert fates(call("checkpoint", "prune", "copied", "--keep", "1", "--json"))["step-4"] == ("would go", "Surplus")


@proven_by(planted(prune, "_ledger_beside", lambda own, folder, url: (folder, url)))
def test_a_database_is_asked_unless_the_attempt_lies_with_a_ledger_that_the_settings_do_not_name(here: Path) -> None:
    own, other, url = here / "own", here / "other", "postgresql://db"
    for folder in (own, other):
        folder.mkdir()
    (here / "link").symlink_to(own)
    assert prune._ledger_beside(own, own, url) == prune._ledger_beside(own, here / "link", url) == (own, url)
    assert prune._ledger_beside(own, other, url) == (own, url)
    (own / "ledger.sqlite").touch()
    assert prune._ledger_beside(own, other, url) == (own, None)
    assert prune._ledger_beside(own, here / "link", url) == (own, url)


def test_a_ledger_in_a_database_is_asked_also_where_no_file_lies(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def reached(ledger: object, **how: object) -> None:
        asked.append(ledger)
        raise InterruptedError

    monkeypatch.setattr(prune, "open_store", reached)
    with pytest.raises(InterruptedError):
        prune._runs(["f" * 32], here, "postgresql://db")
    assert asked == ["postgresql://db"] and prune._runs(["f" * 32], here, None) == ()


@proven_by(planted(prune, "_ledger_beside", lambda own, folder, url: (folder, url)))
def test_from_anywhere_an_attempts_own_ledger_is_asked(
    here: Path, call: Caller, resumed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, _ = resumed
    (here / "elsewhere").mkdir()
    assert call("store", "init", "--store", f"sqlite:///{here}/elsewhere/.countermark").code == 0
    monkeypatch.chdir(here / "elsewhere")
    called = call("checkpoint", "prune", f"../{place.relative_to(here)}", "--keep", "1", "--json")
    assert called.code == 0 and fates(called)["step-4"] == ("stays", "BegunAt"), called.out


def test_a_checkpoint_of_another_run_does_not_count_in_an_attempts_folder(here: Path, call: Caller, resumed: tuple[Path, Path]) -> None:
    place, _ = resumed
    shutil.copytree(published(here, 12) / "step-12", place / "step-12")
    answer = call("checkpoint", "prune", str(place), "--keep", "1", "--json")
    assert fates(answer)["step-12"] == ("stays", "NotAdmitted") and fates(answer)["step-8"] == ("stays", "AmongTheLast")
    (codes,) = [[defect["code"] for defect in each["defects"]] for each in answer.document()["checkpoints"] if each["step"] == 12]
    assert codes == ["AttemptNotMember", "AttemptElsewhere"]


def test_a_plan_that_cannot_be_held_against_anything_refuses_by_name(here: Path, call: Caller) -> None:
    published(here, 4, 6)
    refused = call("checkpoint", "prune", "kept", "--keep", "1", "--for", "deadbeef", "--yes", "--json")
    assert (refused.code, refused.codes()) == (1, ["NothingNamed"])
    assert isinstance(prune.prune_checkpoints(prune.PruneAsked("gone", 1), here, None, act=True, told=print), Refused)
