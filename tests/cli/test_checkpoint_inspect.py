"""``checkpoint inspect`` as it is typed: many at once, steps and names, kept digests, and what a hurried person gets wrong."""

import hashlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from countermark.app import compare
from countermark.app import inspect as inspecting
from countermark.files import archive, checkpoints
from countermark.lines.surface import NothingNamed
from countermark.run.checkpoint import CheckpointReadback, sound_checkpoint
from countermark.store.sqlite import SqliteStore
from countermark.values import NonEmpty, Refused
from tests.cli.called import PROGRAM, Caller
from tests.faults import planted, proven_by
from tests.files.folders import checkpoint
from tests.files.layouts import lightnings
from tests.recipe.examples import clean_recipe_text
from tests.run.examples import desired
from tests.store.examples import recorded

HOSTILE = "\x1b[31m\u202e<script>"


def inspected(call: Caller, *args: str) -> dict[str, Any]:
    return call("checkpoint", "inspect", *args, "--json").document()


def paths(document: dict[str, Any]) -> list[str]:
    return [each["path"] for each in document["checkpoints"]]


def alphabetical(folder: Path) -> object:
    """Checkpoints in the order of their names, as text orders them."""
    found = _listed(folder)
    return checkpoints.CheckpointListing(tuple(sorted(found.checkpoints, key=lambda one: one[1])), found.others)


_listed: Any = checkpoints.list_checkpoints


@proven_by(planted(inspecting, "list_checkpoints", alphabetical))
def test_o6_a_folder_stands_for_its_checkpoints_by_number_and_the_other_names_are_told(here: Path, call: Caller) -> None:
    for name in ("checkpoint-900", "checkpoint-1000", "checkpoint-20"):
        checkpoint(here / "out", int(name.partition("-")[2]), name)
    for name in ("checkpoint-1000-tmp", "tmp-checkpoint-2000"):
        checkpoint(here / "out", 4, name)
    document = inspected(call, "out")
    assert paths(document) == ["out/checkpoint-20", "out/checkpoint-900", "out/checkpoint-1000"]
    assert document["folders"] == [{"path": "out", "others": ["checkpoint-1000-tmp", "tmp-checkpoint-2000"]}]
    told = call("checkpoint", "inspect", "out").out.splitlines()
    assert [line.split("\t")[0] for line in told[1:4]] == paths(document)
    assert told[-1] == "out: no checkpoints by their names: checkpoint-1000-tmp and tmp-checkpoint-2000"


def test_many_are_read_at_once_and_told_in_the_order_of_their_steps(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2, 3, 10, 11, 12):
        checkpoint(here / "out", step)
    # The first to be asked for is the last to be read.
    read = inspecting.read_checkpoint

    def slowly(path: Path, *rest: Any) -> Any:
        time.sleep(0.05 if path.name == "checkpoint-1" else 0)
        return read(path, *rest)

    monkeypatch.setattr(inspecting, "read_checkpoint", slowly)
    document = inspected(call, "out", "out/checkpoint-3", "out")
    assert paths(document) == [f"out/checkpoint-{step}" for step in (1, 2, 3, 10, 11, 12)] + ["out/checkpoint-3"]
    assert [each["step"] for each in document["checkpoints"]] == [1, 2, 3, 10, 11, 12, 3]


@proven_by(planted(inspecting, "step_of", lambda name: None))
def test_two_names_of_one_step_are_refused(here: Path, call: Caller) -> None:
    checkpoint(here / "out", 4)
    checkpoint(here / "out", 8)
    checkpoint(here / "out", 8, "step-8")
    asked = call("checkpoint", "inspect", "out", "--step", "8", "--json")
    assert (asked.code, asked.codes()) == (1, ["SeveralOfStep"])
    assert asked.document()["defects"][0]["names"] == ["checkpoint-8", "step-8"]
    assert paths(inspected(call, "out", "--step", "4")) == ["out/checkpoint-4"]
    whole = call("checkpoint", "inspect", "out", "--vouch", "--json")
    assert (whole.code, whole.codes(), len(whole.document()["checkpoints"])) == (1, ["SeveralOfStep"], 3)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("out", "--step", "30"), "no checkpoint of step 30 is in it, only of 4, 20"),
        (("out/checkpoint-4", "--step", "30"), "it is no checkpoint of step 30, and no folder of checkpoints"),
        (("out/checkpoint-30",), "nothing is there; beside it are 'checkpoint-4', 'checkpoint-20'"),
        ((".",), "no file of a checkpoint lies in this folder, and checkpoints lie in 'out'"),
        (("empty",), "no file of a checkpoint lies in this folder"),
        (("notes.txt",), "a link, or no folder, is there"),
        (("gone/gone",), "nothing is there"),
        (("checkpoint-\0",), "'checkpoint-\\x00' cannot be read: the path is not one of a file"),
    ],
)
def test_o20_what_is_not_there_is_absent_and_what_may_have_been_meant_is_told(
    here: Path, call: Caller, args: tuple[str, ...], said: str
) -> None:
    for step in (4, 20):
        checkpoint(here / "out", step)
    (here / "empty").mkdir()
    (here / "notes.txt").write_text("notes", encoding="utf-8")
    called = call("checkpoint", "inspect", *args, "--json")
    assert (called.code, called.codes()) == (1, ["CheckpointAbsent"])
    assert called.document()["defects"][0]["why"] == said
    assert said in call("checkpoint", "inspect", *args).out


@pytest.mark.parametrize("args", [(), ("--step", "-1", "x"), ("--step", "eight", "x"), ("--fro", "r", "x"), ("x", "--for")])
def test_a_wrong_call_is_wrong_usage(here: Path, call: Caller, args: tuple[str, ...]) -> None:
    called = call("checkpoint", "inspect", *args)
    assert (called.code, called.out) == (2, "") and called.err


@pytest.mark.parametrize("target", ["nothing", "abc", "recipe.tml"])
def test_a_target_that_is_nothing_is_named(here: Path, call: Caller, target: str) -> None:
    checkpoint(here, 4)
    called = call("checkpoint", "inspect", "checkpoint-4", "--for", target, "--json")
    assert (called.code, called.codes()) == (1, ["NothingNamed"])


#: Requests whose runs have ids with the same first eight digits, and one digit apart after them.
TWINS = ("nightly-9474", "nightly-49735")


def the_first(text: str, found: tuple[str, ...]) -> NothingNamed:
    """A prefix of several that is taken for one of nothing."""
    return NothingNamed(text)


@proven_by(planted(compare, "SeveralNamed", the_first))
def test_a_prefix_of_two_runs_is_refused_naming_both_and_one_digit_more_names_one(here: Path, call: Caller) -> None:
    with SqliteStore.open(here / ".countermark", create=True) as made:
        runs = sorted(recorded(made, desired(request)).run_id for request in TWINS)
    assert runs[0][:8] == runs[1][:8] and runs[0][:9] != runs[1][:9]
    checkpoint(here, 4)
    several = call("checkpoint", "inspect", "checkpoint-4", "--for", runs[0][:8], "--vouch", "--json")
    assert (several.code, several.codes()) == (1, ["SeveralNamed"])
    assert (several.document()["defects"][0]["name"], several.document()["defects"][0]["candidates"]) == (runs[0][:8], runs)
    said = call("checkpoint", "inspect", "checkpoint-4", "--for", runs[0][:8], "--vouch")
    assert (said.code, said.out) == (1, "") and all(run in said.err for run in runs)
    for run in runs:
        assert call("checkpoint", "inspect", "checkpoint-4", "--for", run[:9], "--vouch").code == 0


def test_a_recipe_names_every_coordinate_that_diverges(here: Path, call: Caller) -> None:
    checkpoint(here, 4)
    text = clean_recipe_text().replace("rank = 4", "rank = 8").replace("dropout = 0.05", "dropout = 0.1")
    (here / "recipe.toml").write_text(text.replace('lr_schedule = "linear"', 'lr_schedule = "cosine"'), encoding="utf-8")
    called = call("checkpoint", "inspect", "checkpoint-4", "--for", "recipe.toml", "--vouch", "--json")
    (defect,) = called.document()["defects"]
    assert called.codes() == ["ManifestDiverges"]
    assert {each["leaf"] for each in defect["divergences"]} == {"rank", "dropout", "lr_schedule"}


def test_vouching_and_weights_are_answers_of_their_own(here: Path, call: Caller) -> None:
    checkpoint(here, 4)
    checkpoint(here, 8, rng_state_pth=None)
    both = inspected(call, "checkpoint-4", "checkpoint-8", "--vouch")
    admissible = [each["admissible"] for each in both["checkpoints"]]
    assert [(one["resume"], one["vouched"], one["weightsOnly"]) for one in admissible] == [(True, True, True), (False, False, True)]
    plainly = call("checkpoint", "inspect", "checkpoint-4", "--vouch")
    assert plainly.code == 0 and "admissible, because you vouch for its publication" in plainly.out


@proven_by(planted(checkpoints, "_KINDS", {"a folder": "a folder"}))
def test_a_single_file_is_a_checkpoint_of_its_own_and_one_among_those_of_its_folder(here: Path, call: Caller) -> None:
    place = here / "out"
    for step in (4, 8):
        lightnings.checkpoint(place, step)
    one = inspected(call, "out/epoch=0-step=4.ckpt")
    assert (one["layout"], one["step"], one["publication"], one["admissible"]["resume"]) == ("lightning", 4, "atomic", True)
    assert {part["state"] for part in one["components"].values()} == {"read"}
    assert paths(inspected(call, "out")) == ["out/epoch=0-step=4.ckpt", "out/epoch=0-step=8.ckpt"]
    assert paths(inspected(call, "out", "--step", "8")) == ["out/epoch=0-step=8.ckpt"]


def only_the_first(readback: CheckpointReadback, *, vouched: bool) -> object:
    """Admission that stops at what it finds first."""
    found = sound_checkpoint(readback, vouched=vouched)
    return Refused(NonEmpty(found.defects.first)) if isinstance(found, Refused) else found


@proven_by(planted(inspecting, "sound_checkpoint", only_the_first))
def test_a_single_file_without_a_component_or_two_is_refused_for_each(here: Path, call: Caller) -> None:
    missing: list[tuple[str, list[tuple[str, str | None]]]] = []
    for step, without in ((4, ("rng_state",)), (8, ("rng_state", "lr_schedulers"))):
        path = lightnings.checkpoint(here, step, **dict.fromkeys(without))
        called = call("checkpoint", "inspect", path.name, "--json")
        assert called.code == 1
        missing.append((path.name, [(each["code"], each.get("component")) for each in called.document()["defects"]]))
    assert missing == [
        ("epoch=0-step=4.ckpt", [("ComponentMissing", "rng_state"), ("PublicationIncomplete", None)]),
        (
            "epoch=0-step=8.ckpt",
            [("ComponentMissing", "scheduler_state"), ("ComponentMissing", "rng_state"), ("PublicationIncomplete", None)],
        ),
    ]


def test_hostile_names_are_shown_escaped(here: Path, call: Caller) -> None:
    checkpoint(here / "out", 4)
    (here / "out" / f"{HOSTILE}".replace("/", "_")).mkdir()
    checkpoint(here / HOSTILE.replace("/", "_"), 4)
    for args in (("out",), (HOSTILE.replace("/", "_"),), (".",), ("out", "--step", "9")):
        called = call("checkpoint", "inspect", *args)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", called.out + called.err), args
        assert json.loads(call("checkpoint", "inspect", *args, "--json").out)


# ------------------------------------------------------------------------------------------------------------ kept digests


@pytest.fixture
def kept(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two checkpoints that were written long enough ago, and digests kept in a folder of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    for step in (4, 8):
        for file in checkpoint(here / "out", step).iterdir():
            os.utime(file, (1_600_000_000, 1_600_000_000))
    monkeypatch.setattr("countermark.files.digest_cache.RACY_NS", 0)
    return here / "out"


@proven_by(planted(checkpoints, "measured_with", lambda cache, progress: checkpoints_measured(None, progress)))
def test_a_second_look_hashes_nothing_and_says_the_same(kept: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    verify = archive._verified
    monkeypatch.setattr(archive, "_verified", lambda opened, member: checked.append(member.name) or verify(opened, member))
    first = inspected(call, "out")
    sizes = sum(file["bytes"] for each in first["checkpoints"] for part in each["components"].values() for file in part["files"])
    assert first["hashedBytes"] == sizes and checked
    checked.clear()
    second = inspected(call, "out")
    assert second == {**first, "hashedBytes": 0} and checked == []


checkpoints_measured: Any = checkpoints.measured_with


def test_other_bytes_under_an_equal_stamp_are_only_seen_by_fresh(kept: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but a disk that lies gives two contents one stamp; here the kept entry is made to tell another digest."""
    first = inspected(call, "out/checkpoint-4")
    weights = kept / "checkpoint-4" / "adapter_model.safetensors"
    entry = kept.parent / "cache" / "countermark" / "digests" / f"{weights.stat().st_dev:x}-{weights.stat().st_ino:x}.json"
    told = json.loads(entry.read_bytes().splitlines()[0])
    other = told | {"digests": [[begin, end, "0" * 64] for begin, end, _ in told["digests"]]}
    body = json.dumps(other, separators=(",", ":")).encode() + b"\n"
    entry.write_bytes(body + hashlib.sha256(body).hexdigest().encode() + b"\n")
    believed = inspected(call, "out/checkpoint-4")
    assert believed["digest"] != first["digest"]
    fresh = call("checkpoint", "inspect", "out/checkpoint-4", "--fresh", "--vouch", "--json")
    assert (fresh.code, fresh.codes()) == (1, ["CachedDigestsDisagree"])
    assert fresh.document()["digest"] == first["digest"] == inspected(call, "out/checkpoint-4")["digest"]


def test_changed_bytes_are_seen_without_asking(kept: Path, call: Caller) -> None:
    first = inspected(call, "out/checkpoint-4")
    weights = kept / "checkpoint-4" / "adapter_model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    again = inspected(call, "out/checkpoint-4")
    assert again["components"]["model_weights"]["digest"] != first["components"]["model_weights"]["digest"]
    assert again["hashedBytes"] == len(content)


# ------------------------------------------------------------------------------------------------------- progress, Ctrl-C


def test_progress_goes_up_to_the_bytes_there_are_and_ends(here: Path) -> None:
    for step in (4, 8):
        checkpoint(here / "out", step)
    told: list[tuple[int, int]] = []
    found = inspecting.inspect_checkpoints(["out"], None, False, None, progress=lambda done, total: told.append((done, total)))
    assert isinstance(found, inspecting.Inspection) and len(found.checkpoints) == 2
    total = sum(file.stat().st_size for file in (here / "out").rglob("*") if file.is_file())
    assert {of for _, of in told} == {total} and told[-1] == (total, total)
    assert sorted(done for done, _ in told) == [done for done, _ in told]


def test_whoever_stops_it_stops_every_thread(here: Path) -> None:
    """The main thread is interrupted while the others read: all of them end within one piece of a file, and nothing is answered."""
    for step in range(1, 9):
        checkpoint(here / "out", step)
    before = threading.active_count()

    def interrupted(done: int, total: int) -> None:
        if 0 < done < total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inspecting.inspect_checkpoints(["out"], None, False, None, progress=interrupted)
    assert threading.active_count() == before


def test_ctrl_c_ends_the_call_and_prints_no_traceback(here: Path) -> None:
    """Big enough to be read for some time: sparse weights, which cost a disk nothing."""
    for step in (4, 8, 12):
        folder = checkpoint(here / "out", step)
        with open(folder / "optimizer.pt", "r+b") as file:
            file.truncate(4 << 30)
    process = subprocess.Popen([*PROGRAM, "checkpoint", "inspect", "out"], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.8)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err
