"""The effective manifest's document: what is written reads back, and nothing else is read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.evidence.members import How, Read, Unread
from countermark.recipe import ROSTER
from countermark.values import Unreadable
from countermark.wire import effective
from countermark.wire.effective import EFFECTIVE_BYTES_MAX, EffectiveManifest, decode_effective, encode_effective
from tests.faults import planted, proven_by
from tests.recipe.examples import CLEAN

NONCE = "0123456789abcdef" * 2
HOWS: tuple[How, ...] = ("live_object", "file_hash", "artifact", "passed_through")
SAID: dict[str, Read | Unread] = {name: Read(value, "live_object") for name, value in CLEAN.items()}


def document(**changes: Any) -> dict[str, Any]:
    """The clean document as JSON, with fields changed, or left out where None."""
    found = json.loads(encode_effective(NONCE, SAID)) | changes
    return {name: value for name, value in found.items() if value is not None}


def coordinates(**changes: Any) -> dict[str, Any]:
    found = document()["coordinates"] | changes
    return document(coordinates={name: value for name, value in found.items() if value is not None})


def why(data: bytes | dict[str, Any]) -> str:
    read = decode_effective(data if isinstance(data, bytes) else json.dumps(data).encode())
    assert isinstance(read, Unreadable), read
    return read.why


@given(st.lists(st.one_of(st.sampled_from(HOWS), st.text(max_size=30)), min_size=len(ROSTER), max_size=len(ROSTER)))
def test_what_is_written_reads_back(arms: list[str]) -> None:
    said: dict[str, Read | Unread] = {
        name: Read(CLEAN[name], how) if (how := next((each for each in HOWS if each == arm), None)) else Unread(arm)
        for name, arm in zip(ROSTER, arms, strict=True)
    }
    read = decode_effective(encode_effective(NONCE, said))
    assert isinstance(read, EffectiveManifest)
    assert (read.attempt, read.readings()) == (NONCE, said)
    assert tuple(read.coordinates) == ROSTER


def test_a_writer_speaks_of_every_coordinate_and_of_nothing_else() -> None:
    for said in ({name: SAID[name] for name in ROSTER[1:]}, SAID | {"extra": Unread("?")}, {}):
        with pytest.raises(ValueError, match="every coordinate"):
            encode_effective(NONCE, said)


def test_a_reason_is_cut_and_made_text_rather_than_unwritable() -> None:
    read = decode_effective(encode_effective(NONCE, SAID | {"seed": Unread("\udcff" + "x" * 100_000)}))
    assert isinstance(read, EffectiveManifest)
    told = read.readings()["seed"]
    assert isinstance(told, Unread) and told.reason.startswith("\\udcffxxx") and len(told.reason) < 3000


ROWS: list[tuple[str, Any, str]] = [
    ("no kind", document(kind=None), "kind"),
    ("another kind", document(kind="terminal"), "kind"),
    ("another arm", {"kind": "another-document"}, "it is another document"),
    ("no version", document(countermark=None), "countermark"),
    ("another version", document(countermark=2), "countermark"),
    ("a version as text", document(countermark="1"), "countermark"),
    ("a version that is true", document(countermark=True), "countermark"),
    ("no attempt", document(attempt=None), "attempt"),
    ("an attempt in capitals", document(attempt=NONCE.upper()), "attempt"),
    ("an attempt and a newline", document(attempt=NONCE + "\n"), "attempt"),
    ("an unknown field", document(extra=1), "extra"),
    ("no coordinates", document(coordinates=None), "coordinates"),
    ("coordinates as a list", document(coordinates=[]), "coordinates"),
    ("a missing coordinate", coordinates(seed=None), "seed is missing"),
    ("an unknown coordinate", coordinates(sead={"is": "unread", "reason": ""}), "'sead' is no coordinate"),
    ("a reading without its arm", coordinates(seed={"value": "17", "how": "live_object"}), "is"),
    ("a reading of another arm", coordinates(seed={"is": "guessed", "value": "17"}), "guessed"),
    ("a reading with an unknown field", coordinates(seed={"is": "unread", "reason": "", "value": "17"}), "value"),
    ("a reading without how", coordinates(seed={"is": "read", "value": "17"}), "how"),
    ("a reading by hearsay", coordinates(seed={"is": "read", "value": "17", "how": "hearsay"}), "hearsay"),
    ("a number where its spelling stands", coordinates(seed={"is": "read", "value": 17, "how": "live_object"}), "str"),
    ("a spelling that is not canonical", coordinates(seed={"is": "read", "value": "017", "how": "live_object"}), "seed: "),
    ("a spelling of nothing", coordinates(rank={"is": "read", "value": "many", "how": "live_object"}), "rank: "),
]


@pytest.mark.parametrize(("data", "told"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_anything_else_is_refused_with_its_reason(data: dict[str, Any], told: str) -> None:
    assert told in why(data)


class AnySpelling:
    """A coordinate that is whatever stands there."""

    def __init__(self, name: str, raw: str) -> None:
        self.raw = raw

    def spell(self) -> str:
        return self.raw


def spellings_are_not_read() -> Any:
    return planted(effective, "read_coordinate", AnySpelling)()


@proven_by(spellings_are_not_read)
def test_everything_that_is_wrong_with_the_coordinates_is_named() -> None:
    found = why(coordinates(seed=None, rank={"is": "read", "value": "many", "how": "artifact"}, extra={"is": "unread", "reason": ""}))
    assert [part.partition(" ")[0] for part in found.split("; ")] == ["seed", "'extra'", "rank:"]


def repeats_are_let_through() -> Any:
    return planted(effective, "without_repeats", dict)()


@proven_by(repeats_are_let_through)
@pytest.mark.parametrize("where", ["attempt", "coordinate", "value"])
def test_a_key_that_stands_twice_is_refused(where: str) -> None:
    clean = json.dumps(document()).encode()
    twice = {
        "attempt": clean.replace(b'"attempt":', b'"attempt": "' + b"f" * 32 + b'", "attempt":', 1),
        "coordinate": clean.replace(b'"seed":', b'"seed": {"is": "unread", "reason": ""}, "seed":', 1),
        "value": clean.replace(b'"value": "17"', b'"value": "18", "value": "17"', 1),
    }[where]
    assert twice != clean and isinstance(decode_effective(clean), EffectiveManifest)
    read = decode_effective(twice)
    assert isinstance(read, Unreadable) and read.why == "a key occurs twice in one object"


HOSTILE = {
    "nothing": b"",
    "white space": b" \n",
    "no json": b"\x00\x01\x02",
    "utf-16": json.dumps(document()).encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps(document()).encode(),
    "a lone surrogate": json.dumps(document()).encode().replace(b'"17"', b'"\\ud800"'),
    "no utf-8": json.dumps(document()).encode().replace(b'"17"', b'"\xff"'),
    "torn": json.dumps(document()).encode()[:-20],
    "two documents": json.dumps(document()).encode() * 2,
    "nested": b"[" * 100_000,
    "a list": b"[]",
    "null": b"null",
    "large": b" " * (EFFECTIVE_BYTES_MAX + 1),
    "a long number": json.dumps(document()).encode().replace(b'"17"', b'"' + b"9" * 60_000 + b'"'),
    "a long text": json.dumps(document()).encode().replace(b'"17"', b'"' + b"x" * 70_000 + b'"'),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_an_answer(data: bytes) -> None:
    assert why(data)


@given(st.data())
def test_no_cut_and_no_changed_byte_crashes_it(data: st.DataObject) -> None:
    clean = encode_effective(NONCE, SAID)
    assert isinstance(decode_effective(clean[: data.draw(st.integers(0, len(clean) - 3))]), Unreadable)
    at, byte = data.draw(st.integers(0, len(clean) - 1)), data.draw(st.integers(0, 255))
    read = decode_effective(clean[:at] + bytes([byte]) + clean[at + 1 :])
    assert isinstance(read, EffectiveManifest | Unreadable)
