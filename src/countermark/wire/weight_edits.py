"""Weight edits as events, one JSON object a line: bytes ↔ values.

Rules kept here:

1. An event is a notification whose payload has ``kind`` ``weights.edit``; a line that is another event is passed over, a line that is no
   event at all is refused by its number. Every line that is refused is named, never the first alone.
2. The payload's keys are the ones of the edit and nothing else; ``tensor`` and ``changed`` are required. A digest is 64 hexadecimal digits
   in either case, kept in lower case. No number is NaN or infinite, and no shape has more than 16 sizes.
3. What is written is what is read: keys sorted, floats in their shortest form, whole floats as whole numbers.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, cast, final

import msgspec

from countermark.values import NonEmpty, Refused, Sha256
from countermark.weights.difference import TensorDifference
from countermark.weights.edits import EditUnreadable, TensorEdit

#: The longest line that is read, in bytes; a note has 2,000 characters.
LINE_BYTES_MAX: Final = 256 * 1024
#: More sizes than these no event carries.
SIZES_MAX: Final = 16
_OMITTED: Final = "the shape has {sizes} sizes, more than an event carries, and is left out"

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Size = Annotated[int, msgspec.Meta(ge=0)]
_Norm = Annotated[float, msgspec.Meta(ge=0)]
_Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-fA-F]{64}\Z")]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]


@final
class EditPayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True, kw_only=True):
    """A weight edit as it travels. What the recorder did not say is absent from the document; it is never null."""

    kind: str
    tensor: _Name
    changed: _Count
    shape: Annotated[list[_Size], msgspec.Meta(max_length=SIZES_MAX)] | msgspec.UnsetType = msgspec.UNSET
    dtype: Annotated[str, msgspec.Meta(max_length=64)] | msgspec.UnsetType = msgspec.UNSET
    value_changed: _Count | msgspec.UnsetType = msgspec.UNSET
    non_finite_created: _Count | msgspec.UnsetType = msgspec.UNSET
    non_finite_cleared: _Count | msgspec.UnsetType = msgspec.UNSET
    l2: _Norm | msgspec.UnsetType = msgspec.UNSET
    max_abs: _Norm | msgspec.UnsetType = msgspec.UNSET
    sha256_before: _Digest | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="sha256Before")
    sha256_after: _Digest | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="sha256After")
    checkpoint_before: str | msgspec.UnsetType = msgspec.UNSET
    checkpoint_after: str | msgspec.UnsetType = msgspec.UNSET
    aliases: list[_Name] | msgspec.UnsetType = msgspec.UNSET
    note: Annotated[str, msgspec.Meta(max_length=2000)] | msgspec.UnsetType = msgspec.UNSET


def payload_of(row: TensorDifference, checkpoint_before: str | None, checkpoint_after: str | None) -> Mapping[str, object] | None:
    """A changed tensor as a payload, or None for a row that is no edit of one tensor's values (added, removed, reshaped, cast, equal)."""
    if row.status != "changed" or row.numbers is None or row.a is None or row.b is None or row.numbers.changed is None:
        return None
    numbers = row.numbers
    said: dict[str, object] = {
        "kind": "weights.edit",
        "tensor": row.a.name,
        "dtype": row.a.dtype,
        "changed": numbers.changed,
        "valueChanged": numbers.value_changed,
        "l2": numbers.l2,
        "maxAbs": numbers.max_abs,
        "nonFiniteCreated": None if numbers.domain == "raw" else numbers.non_finite_created,
        "nonFiniteCleared": None if numbers.domain == "raw" else numbers.non_finite_cleared,
        "sha256Before": row.a.sha256.hex,
        "sha256After": row.b.sha256.hex,
        "checkpointBefore": checkpoint_before,
        "checkpointAfter": checkpoint_after,
        "aliases": sorted((row.a.name, *row.aliases)) if row.aliases else None,
    }
    fits = len(row.a.shape) <= SIZES_MAX
    said |= {"shape": list(row.a.shape)} if fits else {"note": _OMITTED.format(sizes=len(row.a.shape))}
    return {key: value for key, value in sorted(said.items()) if value is not None}


def event_line(payload: Mapping[str, object], event_id: str, session: str, time: str) -> bytes:
    """A payload in its event, as one line with its end."""
    event = {
        "id": event_id,
        "payload": {key: _respelled(value) for key, value in payload.items()},
        "session": session,
        "time": time,
        "type": "notification",
    }
    return (
        json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode("utf-8", "backslashreplace")
        + b"\n"
    )


def _respelled(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def edits_of(file: str, data: bytes) -> tuple[TensorEdit, ...] | Refused[EditUnreadable]:
    """The weight edits of a file of events, in its order, or every line that is none; ``file`` is its name in refusals."""
    edits: list[TensorEdit] = []
    defects: list[EditUnreadable] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        found = _edit(f"{file}:{number}", line)
        if isinstance(found, EditUnreadable):
            defects.append(found)
        elif found is not None:
            edits.append(found)
    return Refused(refused) if (refused := NonEmpty.of(defects)) is not None else tuple(edits)


def _edit(source: str, line: bytes) -> TensorEdit | EditUnreadable | None:
    """The edit of one line; None where it is another event."""
    if len(line) > LINE_BYTES_MAX:
        return EditUnreadable(source, f"the line has {len(line)} bytes, and {LINE_BYTES_MAX} are the most")
    try:
        event: object = json.loads(line, object_pairs_hook=_object)
    except RecursionError:
        return EditUnreadable(source, "it is nested too deep")
    except ValueError as error:
        return EditUnreadable(source, f"it is not JSON ({error})")
    if not isinstance(event, dict):
        return EditUnreadable(source, "it is not a JSON object")
    outer = cast(dict[str, object], event)
    payload = outer.get("payload", outer)
    if not isinstance(payload, dict) or cast(dict[str, object], payload).get("kind") != "weights.edit":
        return None
    try:
        read = msgspec.convert(payload, EditPayload)
    except (msgspec.ValidationError, OverflowError) as error:
        return EditUnreadable(source, str(error))
    return TensorEdit(source, read.tensor, _digest(read.sha256_before), _digest(read.sha256_after), _or_none(read.dtype), _shape(read))


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _digest(text: str | msgspec.UnsetType) -> Sha256 | None:
    return None if isinstance(text, msgspec.UnsetType) else Sha256(text.lower())


def _or_none(text: str | msgspec.UnsetType) -> str | None:
    return None if isinstance(text, msgspec.UnsetType) else text


def _shape(read: EditPayload) -> tuple[int, ...] | None:
    return None if isinstance(read.shape, msgspec.UnsetType) else tuple(read.shape)
