"""Weight edits as recorded: from a difference of weights to edits, and from a file of events to what composes.

Rules kept here:

1. A line that is another event is passed over, a line that is no event at all is refused by its number, and so is an edit for each of its
   fields that is wrong: never the first alone.
2. What the file says around the payload is not looked at: a bare payload a line is a record of edits too.
"""

from collections.abc import Mapping
from typing import Final, cast

from countermark.lines.of_sessions import event_sentence
from countermark.sessions.edits import SIZES_MAX, WeightEdit, is_edit, read_edit
from countermark.sessions.events import EventUnreadable
from countermark.values import NonEmpty, Refused, Sha256
from countermark.weights.difference import TensorDifference
from countermark.weights.edits import EditUnreadable, TensorEdit
from countermark.wire.events import read_json

_OMITTED: Final = "the shape has {sizes} sizes, more than an event carries, and is left out"


def edit_of(row: TensorDifference, checkpoint_before: str | None, checkpoint_after: str | None) -> WeightEdit | None:
    """A changed tensor as an edit, or None for a row that is no edit of one tensor's values (added, removed, reshaped, cast, equal)."""
    numbers = row.numbers
    if row.status != "changed" or numbers is None or row.a is None or row.b is None or numbers.changed is None:
        return None
    fits = len(row.a.shape) <= SIZES_MAX
    return WeightEdit(
        tensor=row.a.name,
        changed=numbers.changed,
        shape=row.a.shape if fits else None,
        dtype=row.a.dtype,
        value_changed=numbers.value_changed,
        non_finite_created=None if numbers.domain == "raw" else numbers.non_finite_created,
        non_finite_cleared=None if numbers.domain == "raw" else numbers.non_finite_cleared,
        l2=numbers.l2,
        max_abs=numbers.max_abs,
        sha256_before=row.a.sha256.hex,
        sha256_after=row.b.sha256.hex,
        checkpoint_before=checkpoint_before,
        checkpoint_after=checkpoint_after,
        aliases=tuple(sorted((row.a.name, *row.aliases))) if row.aliases else None,
        note=None if fits else _OMITTED.format(sizes=len(row.a.shape)),
    )


def edits_of(file: str, data: bytes) -> tuple[TensorEdit, ...] | Refused[EditUnreadable]:
    """The weight edits of a file of events, in its order, or everything that is wrong with each line; ``file`` is its name in refusals."""
    edits: list[TensorEdit] = []
    defects: list[EditUnreadable] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        found = _edit(f"{file}:{number}", line)
        if isinstance(found, Refused):
            defects.extend(found.defects)
        elif found is not None:
            edits.append(found)
    return Refused(refused) if (refused := NonEmpty.of(defects)) is not None else tuple(edits)


def _edit(source: str, line: bytes) -> TensorEdit | Refused[EditUnreadable] | None:
    """The edit of one line; None where it is another event."""
    event = read_json(line)
    if isinstance(event, EventUnreadable):
        return Refused(NonEmpty(EditUnreadable(source, event.why)))
    if not isinstance(event, dict):
        return Refused(NonEmpty(EditUnreadable(source, "it is not a JSON object")))
    outer = cast("Mapping[str, object]", event)
    return edit_of_payload(source, outer.get("payload", outer))


def edit_of_payload(source: str, payload: object) -> TensorEdit | Refused[EditUnreadable] | None:
    """The edit of an event's payload, called ``source`` in refusals; None where it is another event's."""
    if not is_edit(payload):
        return None
    read = read_edit(cast("Mapping[str, object]", payload))
    if isinstance(read, Refused):
        first, *more = (EditUnreadable(source, event_sentence(defect).message) for defect in read.defects)
        return Refused(NonEmpty(first, tuple(more)))
    return TensorEdit(source, read.tensor, _digest(read.sha256_before), _digest(read.sha256_after), read.dtype, read.shape)


def _digest(text: str | None) -> Sha256 | None:
    return None if text is None else Sha256(text)
