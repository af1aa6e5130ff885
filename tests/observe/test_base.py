"""What the base's files show beside the trainer's word, and when they show nothing."""

import json
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from countermark.evidence.members import Read, Unread
from countermark.files.desired import Desired, encode_desired
from countermark.files.model_folder import MeasuredBase, measure_base
from countermark.observe import base as room
from countermark.observe import local
from countermark.observe.base import base_reading
from countermark.run.claims import ControlState
from countermark.verdict.standing import Standing, manifest_agreement
from countermark.wire import receipts
from countermark.wire.effective import EffectiveManifest, decode_effective, encode_effective
from countermark.wire.receipts import Exited, StartReceipt, TerminalReceipt, encode
from tests.faults import planted, proven_by
from tests.files.folders import NONCE, WORK_KEY
from tests.files.tensors import encoded, f32
from tests.observe.attempts import HERE, World
from tests.recipe.examples import CLEAN, clean_manifest
from tests.run.examples import key

#: Far enough ahead that every file of a test was there before.
LATER_MS = time.time_ns() // 1_000_000 + 3_600_000


def base(place: Path, *values: float) -> str:
    """A model folder, and its coordinate."""
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(json.dumps({"model_type": "toy"}), encoding="utf-8")
    (place / "model.safetensors").write_bytes(encoded({"a.weight": f32(*values)}))
    found = measure_base(place)
    assert isinstance(found, MeasuredBase)
    return found.base_artifact.spell()


def attempt(
    folder: Path,
    place: Path | None,
    *,
    start_ms: int | None = LATER_MS,
    outcome: receipts.Outcome | None = None,
    ended: bool = True,
    nonce: str = NONCE,
) -> Path:
    """An attempt's folder: what it was to do, that it started, and how it ended."""
    folder.mkdir(exist_ok=True)
    sources = {} if place is None else {"model": str(place)}
    (folder / "manifest.json").write_bytes(encode_desired(Desired(nonce, WORK_KEY, clean_manifest(), sources, {})))
    if start_ms is not None:
        (folder / "start.json").write_bytes(encode(StartReceipt(1, nonce, HERE, start_ms)))
    if ended:
        end = Exited(0) if outcome is None else Exited(1)
        receipt = TerminalReceipt(1, nonce, outcome or receipts.Succeeded(), end, 10, 20, "supervisor", HERE)
        (folder / "terminal.json").write_bytes(encode(receipt))
    return folder


def word(said: Read | Unread) -> EffectiveManifest:
    coordinates: Mapping[str, Any] = {name: Read(spelling, "live_object") for name, spelling in CLEAN.items()} | {"base_artifact": said}
    decoded = decode_effective(encode_effective(NONCE, dict(coordinates)))
    assert isinstance(decoded, EffectiveManifest)
    return decoded


def hashed(spelling: str) -> EffectiveManifest:
    return word(Read(spelling, "file_hash"))


def the_word_is_taken() -> AbstractContextManager[object]:
    """What the trainer said is shown once more, and no file is looked at."""
    return planted(room, "_measured", lambda place, stamps: CLEAN["base_artifact"])()


@proven_by(the_word_is_taken)
def test_files_that_are_not_what_the_trainer_hashed_show_what_they_are(tmp_path: Path) -> None:
    found = base(tmp_path / "base", 1, 2)
    other = base(tmp_path / "other", 3)
    for place, spelling in (("base", found), ("other", other)):
        folder = attempt(tmp_path / "attempt", tmp_path / place)
        for said in (found, other, CLEAN["base_artifact"]):
            assert base_reading(folder, hashed(said)) == {"base_artifact": Read(spelling, "file_hash")}


def times_are_not_asked() -> AbstractContextManager[object]:
    return planted(room, "_changed_since", lambda stamps, at_ms: False)()


@proven_by(times_are_not_asked)
@pytest.mark.parametrize("how", ["written", "replaced by what is older"])
def test_files_that_were_changed_since_show_nothing(tmp_path: Path, how: str) -> None:
    place = tmp_path / "base"
    found = base(place, 1, 2)
    began_ms = time.time_ns() // 1_000_000 + 1
    folder = attempt(tmp_path / "attempt", place, start_ms=began_ms)
    assert base_reading(folder, hashed(found)) == {"base_artifact": Read(found, "file_hash")}
    while time.time_ns() < (began_ms + 20) * 1_000_000:
        time.sleep(0.005)
    base(place, 3)
    if how == "replaced by what is older":
        os.utime(place / "config.json", ns=(1, 1))
        os.utime(place / "model.safetensors", ns=(1, 1))
    assert base_reading(folder, hashed(found)) == {}


SILENT: dict[str, Any] = {
    "no word": lambda folder, place, said: (attempt(folder, place), None),
    "a word about live objects": lambda folder, place, said: (attempt(folder, place), word(Read(said, "live_object"))),
    "a word that was passed through": lambda folder, place, said: (attempt(folder, place), word(Read(said, "passed_through"))),
    "a word that reads nothing": lambda folder, place, said: (attempt(folder, place), word(Unread("no"))),
    "no source": lambda folder, place, said: (attempt(folder, None), hashed(said)),
    "no folder there": lambda folder, place, said: (attempt(folder, place / "gone"), hashed(said)),
    "a file there": lambda folder, place, said: (attempt(folder, place / "config.json"), hashed(said)),
    "no base there": lambda folder, place, said: (attempt(folder, folder.parent), hashed(said)),
    "no start": lambda folder, place, said: (attempt(folder, place, start_ms=None), hashed(said)),
    "no end": lambda folder, place, said: (attempt(folder, place, ended=False), hashed(said)),
    "another end": lambda folder, place, said: (attempt(folder, place, outcome=receipts.Failed(1)), hashed(said)),
}


@pytest.mark.parametrize("name", SILENT)
def test_they_show_nothing_beside(tmp_path: Path, name: str) -> None:
    place = tmp_path / "base"
    folder, said = SILENT[name](tmp_path / "attempt", place, base(place, 1))
    assert base_reading(folder, said) == {}


def measured_every_time() -> AbstractContextManager[object]:
    return planted(room, "_measured", room._measured.__wrapped__)()


@proven_by(measured_every_time)
def test_one_state_of_the_files_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []
    monkeypatch.setattr(room, "measure_base", lambda place: (calls.append(place), measure_base(place))[1])
    found = base(tmp_path / "base", 5)
    folder = attempt(tmp_path / "attempt", tmp_path / "base")
    assert [base_reading(folder, hashed(found)) for _ in range(3)] == [{"base_artifact": Read(found, "file_hash")}] * 3
    assert len(calls) == 1
    other = base(tmp_path / "base", 6)
    assert base_reading(folder, hashed(found)) == {"base_artifact": Read(other, "file_hash")}
    assert len(calls) == 2


@proven_by(planted(local.base_files, "base_reading", lambda folder, word: {}))
def test_what_they_show_stands_beside_the_trainers_word(tmp_path: Path) -> None:
    world = World(tmp_path / "attempts")
    folder = world.attempt(1)
    found = base(tmp_path / "base", 1)
    attempt(folder, tmp_path / "base", nonce=folder.name)
    said: dict[str, Any] = {name: Read(spelling, "live_object") for name, spelling in CLEAN.items()}
    said["base_artifact"] = Read(CLEAN["base_artifact"], "file_hash")
    (folder / "effective.json").write_bytes(encode_effective(folder.name, said))
    shown = {member.source: member.coordinates["base_artifact"] for member in world.members("manifests")}
    assert shown == {"trainer": Read(CLEAN["base_artifact"], "file_hash"), "base files": Read(found, "file_hash")}
    standing = Standing(key(1), ControlState(None, (), (), False), manifests=world.members("manifests"))
    assert manifest_agreement(standing, CLEAN).diverging == (f"base_artifact: {CLEAN['base_artifact']} → {found} (base files)",)
