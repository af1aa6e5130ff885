"""The effective manifest, as a trainer's callback writes it: bytes ↔ values.

Rules kept here:

1. Every coordinate of the roster stands in it once, as read (value, how) or unread (reason). A missing or unknown coordinate, an unknown
   field or a repeated key makes the document unreadable; nothing has a default.
2. It is the trainer's word. Values are canonical spellings, checked by reading them.
"""

import json
from typing import Annotated, Final, Literal, final

import msgspec

from countermark.evidence.members import How, Read, Unread
from countermark.recipe import ROSTER, read_coordinate
from countermark.values import Unreadable, shown
from countermark.wire.receipts import Nonce32, without_repeats

EFFECTIVE_BYTES_MAX: Final = 1024 * 1024
Text = Annotated[str, msgspec.Meta(max_length=64 * 1024)]
#: A reason is for people: what is longer than this is cut when it is written, so that a writer never makes what no reader takes.
REASON_LENGTH_MAX: Final = 2000


@final
class _Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is", tag="read"):
    value: Text
    how: How


@final
class _Unread(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is", tag="unread"):
    reason: Text


@final
class EffectiveManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="effective-manifest"):
    """The document: which attempt, and what was read of each coordinate."""

    countermark: Literal[1]
    attempt: Nonce32
    coordinates: dict[str, _Read | _Unread]

    def readings(self) -> dict[str, Read | Unread]:
        """The coordinates as evidence values."""
        return {
            name: Read(reading.value, reading.how) if isinstance(reading, _Read) else Unread(reading.reason)
            for name, reading in self.coordinates.items()
        }


def encode_effective(attempt: str, readings: dict[str, Read | Unread]) -> bytes:
    """The bytes of an effective manifest, coordinates in roster order. Raises ``ValueError`` when one is missing or unknown."""
    if set(readings) != set(ROSTER):
        raise ValueError("an effective manifest speaks of every coordinate, and of nothing else")
    document = EffectiveManifest(
        1,
        attempt,
        {name: _Read(said.value, said.how) if isinstance(said := readings[name], Read) else _Unread(_told(said.reason)) for name in ROSTER},
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _told(reason: str) -> str:
    """A reason as UTF-8 can hold it: one that quotes a file's name may have characters that no text has."""
    return reason[:REASON_LENGTH_MAX].encode("utf-8", errors="backslashreplace").decode("utf-8")


# Of a union, the tag is required; of one struct alone, a missing tag would be let through. The other arm is never written.
@final
class _Other(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="another-document"):
    pass


_DOCUMENT: Final[msgspec.json.Decoder[EffectiveManifest | _Other]] = msgspec.json.Decoder(EffectiveManifest | _Other)


def decode_effective(data: bytes) -> EffectiveManifest | Unreadable:
    """The effective manifest that the bytes are, or why they are none."""
    if len(data) > EFFECTIVE_BYTES_MAX:
        return Unreadable(f"it has {len(data)} bytes; {EFFECTIVE_BYTES_MAX} are the most")
    try:
        document = _DOCUMENT.decode(data)
        json.loads(data, object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        return Unreadable(ascii(str(error))[1:-1][:300])
    if isinstance(document, _Other):
        return Unreadable("it is another document")
    problems = [f"{name} is missing" for name in ROSTER if name not in document.coordinates]
    problems += [f"{shown(name)} is no coordinate" for name in document.coordinates if name not in ROSTER]
    for name, reading in document.coordinates.items():
        if isinstance(reading, _Read) and name in ROSTER:
            value = read_coordinate(name, reading.value)
            if isinstance(value, Unreadable):
                problems.append(f"{name}: {value.why}")
            elif value.spell() != reading.value:
                problems.append(f"{name}: its canonical spelling is {value.spell()}")
    return Unreadable("; ".join(problems)) if problems else document
