"""``manifest.json``: what COMMAND is handed reads back, and nothing else is taken for it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.files import desired as room
from countermark.files.desired import DESIRED_BYTES_MAX, Desired, decode_desired, encode_desired, read_desired
from countermark.recipe.manifest import CoordinateMissing, CoordinateUnknown, CoordinateUnreadable
from countermark.values import Refused
from countermark.weights.refusals import DocumentUnreadable
from tests.faults import planted, proven_by
from tests.recipe.examples import clean_manifest

NONCE = "0123456789abcdef" * 2
KEY = "wk1:" + "e" * 64
CLEAN = Desired(
    NONCE,
    KEY,
    clean_manifest(),
    {"model": "/models/ünïcode base", "dataset": "/d.jsonl", "dataset_limit": "16"},
    {"save_steps": 5, "x": "y"},
)


def document(**changes: Any) -> dict[str, Any]:
    """The clean document as JSON, with fields changed, or left out where None."""
    found = json.loads(encode_desired(CLEAN)) | changes
    return {name: value for name, value in found.items() if value is not None}


def within(table: str, **changes: Any) -> dict[str, Any]:
    found = document()[table] | changes
    return document(**{table: {name: value for name, value in found.items() if value is not None}})


def whys(data: bytes | dict[str, Any]) -> list[str]:
    """The reasons of a document that is refused for itself, not for its coordinates."""
    read = decode_desired(data if isinstance(data, bytes) else json.dumps(data).encode())
    assert isinstance(read, Refused), read
    assert all(isinstance(defect, DocumentUnreadable) and defect.file == "manifest.json" for defect in read.defects), read
    return [defect.why for defect in read.defects if isinstance(defect, DocumentUnreadable)]


def test_what_is_written_reads_back_and_the_bytes_follow_from_the_values() -> None:
    assert decode_desired(encode_desired(CLEAN)) == CLEAN
    turned = Desired(NONCE, KEY, clean_manifest(), dict(list(CLEAN.sources.items())[::-1]), dict(list(CLEAN.trainer.items())[::-1]))
    assert encode_desired(turned) == encode_desired(CLEAN)


ROWS: list[tuple[str, Any, list[str]]] = [
    ("no version", document(countermark=None), ["countermark is missing"]),
    ("another version", document(countermark=2), ["countermark is 2, and this release reads format 1"]),
    ("a version that is true", document(countermark=True), ["countermark is True, and this release reads format 1"]),
    ("a version with a point", document(countermark=1.0), ["countermark is 1.0, and this release reads format 1"]),
    ("no kind", document(kind=None), ["kind is missing"]),
    ("another kind", document(kind="checkpoint"), ["kind is 'checkpoint' and must be desired-manifest"]),
    ("an unknown field", document(extra=1), ["'extra' is no field of it"]),
    ("no attempt", document(attempt=None), ["attempt is missing"]),
    ("an attempt as a number", document(attempt=7), ["attempt must be 32 lower-case hexadecimal digits"]),
    ("an attempt and a newline", document(attempt=NONCE + "\n"), ["attempt must be 32 lower-case hexadecimal digits"]),
    ("a key of another family", document(workKey="wk2:" + "e" * 64), ["workKey must be wk1: and 64 lower-case hexadecimal digits"]),
    ("sources as a list", document(sources=[]), ["sources must be a table"]),
    ("no trainer", document(trainer=None), ["trainer is missing"]),
    ("trainer as text", document(trainer="x"), ["trainer must be a table"]),
    ("an unknown source", within("sources", weights="/w"), ["sources.'weights' cannot be '/w'"]),
    ("a relative source", within("sources", model="models/base"), ["sources.'model' cannot be 'models/base'"]),
    ("a source that is a number", within("sources", model=5), ["sources.'model' cannot be 5"]),
    ("no number of rows", within("sources", dataset_limit="-1"), ["sources.'dataset_limit' cannot be '-1'"]),
    ("a setting that is a list", within("trainer", save_steps=[5]), ["trainer.'save_steps' cannot be [5]"]),
    ("a setting that is true", within("trainer", save_steps=True), ["trainer.'save_steps' cannot be True"]),
    ("a setting that is nothing", document(trainer={"save_steps": None}), ["trainer.'save_steps' cannot be None"]),
]


@pytest.mark.parametrize(("data", "told"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_anything_else_is_refused_with_exactly_its_reason(data: dict[str, Any], told: list[str]) -> None:
    assert whys(data) == told


def test_coordinates_are_read_as_a_manifest_is() -> None:
    def defects(**changes: Any) -> list[object]:
        read = decode_desired(json.dumps(within("manifest", **changes)).encode())
        assert isinstance(read, Refused)
        return list(read.defects)

    assert defects(seed=None) == [CoordinateMissing("seed")]
    assert defects(sead="17") == [CoordinateUnknown("sead")]
    assert [type(defect) for defect in defects(seed="017")] == [CoordinateUnreadable]
    assert [type(defect) for defect in defects(seed=17)] == [CoordinateUnreadable]
    read = decode_desired(json.dumps(document(manifest=[])).encode())
    assert isinstance(read, Refused) and DocumentUnreadable("manifest.json", "manifest must be a table") in tuple(read.defects)


def the_shape_is_not_looked_at() -> Any:
    return planted(room, "_shape", lambda document: ())()


@proven_by(the_shape_is_not_looked_at)
def test_everything_is_named_at_once() -> None:
    data = within("manifest", seed=None, rank="many") | {"kind": "x", "sources": {"model": "here"}, "extra": 1, "attempt": "f"}
    read = decode_desired(json.dumps(data).encode())
    assert isinstance(read, Refused)
    assert [defect.why if isinstance(defect, DocumentUnreadable) else type(defect).__name__ for defect in read.defects] == [
        "'extra' is no field of it",
        "kind is 'x' and must be desired-manifest",
        "attempt must be 32 lower-case hexadecimal digits",
        "sources.'model' cannot be 'here'",
        "CoordinateMissing",
        "CoordinateUnreadable",
    ]


HOSTILE = {
    "nothing": b"",
    "no json": b"\x00",
    "a list": b"[]",
    "utf-16": json.dumps(document()).encode("utf-16"),
    "nested": b"[" * 100_000,
    "NaN": json.dumps(document()).encode().replace(b'"countermark": 1', b'"countermark": NaN'),
    "torn": encode_desired(CLEAN)[:-9],
    "large": b" " * (DESIRED_BYTES_MAX + 1),
    "a field twice": encode_desired(CLEAN).replace(b'"attempt":', b'"attempt": "x", "attempt":', 1),
    "a coordinate twice": encode_desired(CLEAN).replace(b'"seed":', b'"seed": "18", "seed":', 1),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_an_answer(data: bytes) -> None:
    assert len(whys(data)) == 1


@given(st.data())
def test_no_cut_and_no_changed_byte_crashes_it(data: st.DataObject) -> None:
    clean = encode_desired(CLEAN)
    at, byte = data.draw(st.integers(0, len(clean) - 1)), data.draw(st.integers(0, 255))
    assert isinstance(decode_desired(clean[:at] + bytes([byte]) + clean[at + 1 :]), Desired | Refused)


def test_a_folder_without_one_and_a_folder_with_a_broken_one_are_told_apart(tmp_path: Path) -> None:
    assert read_desired(tmp_path) is None
    (tmp_path / "manifest.json").write_bytes(encode_desired(CLEAN))
    assert read_desired(tmp_path) == CLEAN
    (tmp_path / "manifest.json").write_bytes(b"{")
    assert isinstance(read_desired(tmp_path), Refused)
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "manifest.json").symlink_to("/dev/zero")
    assert isinstance(read_desired(tmp_path), Refused)
