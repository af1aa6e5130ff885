"""The weight edit: which tensor was changed, by how much, and between which digests.

Rules kept here:

1. ``FIELDS`` is the one roster of what an edit can say: reading, the schema, the names of attributes and the docs iterate it.
2. An edit is refused whole, with every field that is wrong, or taken whole. A key that is none of its fields is refused too: a field that
   was left out in silence would be a field that says nothing happened.
3. A whole number may be written as a double that denotes it exactly (±2^53), and a double as a whole number. A truth value is neither.
4. A count that is larger than the shape holds is taken: who recorded it saw it, and surfaces print it without a total.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, Literal, TypeAlias, cast, final

from countermark.sessions.canonical import Json
from countermark.values import CompositionDigest, FilesDigest, NonEmpty, Refused, Unreadable, WeightsRoot, shown

#: What ``payload.kind`` says of a weight edit.
KIND: Final = "weights.edit"
#: What stands before the attributes of an edit in OpenTelemetry.
EDIT_PREFIX: Final = "countermark.weights."
#: More sizes than these no event carries.
SIZES_MAX: Final = 16
NAME_LENGTH_MAX: Final = 512
NOTE_LENGTH_MAX: Final = 2_000
DTYPE_LENGTH_MAX: Final = 64
#: More other names than these no event carries.
ALIASES_MAX: Final = 1_000
COUNT_MAX: Final = 2**63 - 1
_EXACT_MAX: Final = 2**53
_HEX64: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)

FieldKind: TypeAlias = Literal["name", "names", "sizes", "dtype", "count", "norm", "sha256", "checkpoint", "note"]


@final
@dataclass(frozen=True, slots=True)
class EditField:
    """One thing that an edit can say: its key in payloads, what it is, the name of its attribute in OpenTelemetry behind
    ``EDIT_PREFIX``, and what it means."""

    key: str
    kind: FieldKind
    attribute: str
    doc: str
    required: bool = False

    @property
    def keyword(self) -> str:
        """The field's name in Python: its key in snake_case."""
        return re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), self.key)


FIELDS: Final = (
    EditField("tensor", "name", "tensor", "the tensor's name, as the file of weights has it", required=True),
    EditField("shape", "sizes", "shape", f"its shape, {SIZES_MAX} sizes at most"),
    EditField("dtype", "dtype", "dtype", "its type, as safetensors spells it"),
    EditField("changed", "count", "changed", "elements whose bits differ", required=True),
    EditField("valueChanged", "count", "value_changed", "elements whose values differ (−0 equals 0, NaN equals NaN)"),
    EditField("nonFiniteCreated", "count", "non_finite_created", "elements that became NaN or infinite"),
    EditField("nonFiniteCleared", "count", "non_finite_cleared", "elements that are finite again"),
    EditField("l2", "norm", "l2", "the Euclidean norm of after − before, over pairs that are finite on both sides"),
    EditField("maxAbs", "norm", "max_abs", "the largest absolute value of after − before, over the same pairs"),
    EditField("sha256Before", "sha256", "before.sha256", "SHA-256 of the tensor's data before"),
    EditField("sha256After", "sha256", "after.sha256", "SHA-256 of the tensor's data after"),
    EditField("checkpointBefore", "checkpoint", "checkpoint.before", "the digest of the weights before"),
    EditField("checkpointAfter", "checkpoint", "checkpoint.after", "the digest of the weights after"),
    EditField("aliases", "names", "aliases", "other names of the same tensor"),
    EditField("note", "note", "note", f"free text, {NOTE_LENGTH_MAX:,} characters at most"),
)
_BY_KEY: Final[Mapping[str, EditField]] = {field.key: field for field in FIELDS}


@final
@dataclass(frozen=True, slots=True)
class EventFieldInvalid:
    """A field of an event (``time``, ``payload.l2``) holds what it cannot: ``found`` as it may be shown, ``wanted`` as what a good one
    has there."""

    field: str
    found: str
    wanted: str


@final
@dataclass(frozen=True, slots=True)
class EventFieldMissing:
    """An event does not say a field that it must."""

    field: str


@final
@dataclass(frozen=True, slots=True)
class EventFieldUnknown:
    """An event has a field that none has; ``near`` is the field that is meant, as far as a guess goes, or empty."""

    field: str
    near: str


EventFieldDefect = EventFieldInvalid | EventFieldMissing | EventFieldUnknown


@final
@dataclass(frozen=True, slots=True)
class WeightEdit:
    """One edit of one tensor. What the recorder did not say is None."""

    tensor: str
    changed: int
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    value_changed: int | None = None
    non_finite_created: int | None = None
    non_finite_cleared: int | None = None
    l2: float | None = None
    max_abs: float | None = None
    sha256_before: str | None = None
    sha256_after: str | None = None
    checkpoint_before: str | None = None
    checkpoint_after: str | None = None
    aliases: tuple[str, ...] | None = None
    note: str | None = None

    def payload(self) -> dict[str, Json]:
        """The edit as its event carries it: what was not said is absent, never null."""
        found: dict[str, Json] = {"kind": KIND}
        for key, keyword in _KEYWORDS:
            if (value := getattr(self, keyword)) is not None:
                found[key] = list(cast("tuple[Json, ...]", value)) if isinstance(value, tuple) else value
        return found


_KEYWORDS: Final = tuple((field.key, field.keyword) for field in FIELDS)


def is_edit(payload: object) -> bool:
    """Whether a payload says that it is a weight edit."""
    return isinstance(payload, Mapping) and cast("Mapping[object, object]", payload).get("kind") == KIND


def read_edit(payload: Mapping[str, object], place: str = "") -> WeightEdit | Refused[EventFieldDefect]:
    """A payload as an edit, or every field that keeps it from being one, each named behind ``place`` (``payload.``). What was not said is
    absent: null is refused."""
    defects: list[EventFieldDefect] = []
    said: dict[str, Any] = {}
    for key, value in payload.items():
        if key == "kind":
            continue
        if key not in _BY_KEY:
            defects.append(EventFieldUnknown(place + shown(key), near(key, _BY_KEY)))
        else:
            read = read_field(key, value)
            if isinstance(read, Unreadable):
                defects.append(EventFieldInvalid(place + key, shown(value), read.why))
            else:
                said[key] = read
    defects.extend(EventFieldMissing(place + field.key) for field in FIELDS if field.required and field.key not in payload)
    if (refused := NonEmpty.of(defects)) is not None:
        return Refused(refused)
    return WeightEdit(**{keyword: said[key] for key, keyword in _KEYWORDS if key in said})


def read_field(key: str, value: object) -> object:
    """What one field of the roster says, or ``Unreadable`` with what stands there in a good edit. Raises ``KeyError`` for another key."""
    return _READERS[_BY_KEY[key].kind](value)


def near(key: str, keys: Iterable[str]) -> str:
    """Which of the keys differs from ``key`` in case, underscores and hyphens alone; empty where none does."""
    return next((known for known in keys if _bare(known) == _bare(key)), "")


def _bare(key: str) -> str:
    return re.sub(r"[^a-z0-9]", "", key.lower()[:100])


def _name(value: object) -> str | Unreadable:
    if isinstance(value, str) and 1 <= len(value) <= NAME_LENGTH_MAX:
        return value
    return Unreadable(f"a text of 1 to {NAME_LENGTH_MAX} characters")


def _names(value: object) -> tuple[str, ...] | Unreadable:
    items = _sequence(value)
    if items is not None and len(items) <= ALIASES_MAX and not any(isinstance(_name(item), Unreadable) for item in items):
        return cast("tuple[str, ...]", items)
    return Unreadable(f"a list of at most {ALIASES_MAX:,} texts of 1 to {NAME_LENGTH_MAX} characters")


def _sizes(value: object) -> tuple[int, ...] | Unreadable:
    items = _sequence(value)
    if items is not None and len(items) <= SIZES_MAX:
        read = tuple(_whole(item, COUNT_MAX) for item in items)
        if not any(isinstance(size, Unreadable) for size in read):
            return cast("tuple[int, ...]", read)
    return Unreadable(f"a list of at most {SIZES_MAX} whole numbers from 0 to 2^63 − 1, as [2, 3]")


def _sequence(value: object) -> tuple[object, ...] | None:
    return tuple(cast("Sequence[object]", value)) if isinstance(value, list | tuple) else None


def _count(value: object) -> int | Unreadable:
    return _whole(value, COUNT_MAX)


def _whole(value: object, highest: int) -> int | Unreadable:
    if isinstance(value, float) and abs(value) <= _EXACT_MAX and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
        return Unreadable("a whole number from 0 to 2^63 − 1")
    return value


def _norm(value: object) -> float | Unreadable:
    wanted = Unreadable("a finite number, 0 or more")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return wanted
    try:
        read = float(value)
    except OverflowError:
        return wanted
    return read if isfinite(read) and read >= 0 else wanted


def _sha256(value: object) -> str | Unreadable:
    if isinstance(value, str) and _HEX64.fullmatch(value):
        return value.lower()
    return Unreadable("64 hexadecimal digits")


def _checkpoint(value: object) -> str | Unreadable:
    if isinstance(value, str):
        if _HEX64.fullmatch(value):
            return value.lower()
        if any(not isinstance(kind.read(value), Unreadable) for kind in (WeightsRoot, FilesDigest, CompositionDigest)):
            return value
    return Unreadable("a digest of weights (wr1:…, fd1:… or mc1:…) or 64 hexadecimal digits")


def _dtype(value: object) -> str | Unreadable:
    if isinstance(value, str) and 1 <= len(value) <= DTYPE_LENGTH_MAX:
        return value
    return Unreadable(f"the name of a type, 1 to {DTYPE_LENGTH_MAX} characters")


def _note(value: object) -> str | Unreadable:
    if isinstance(value, str) and len(value) <= NOTE_LENGTH_MAX:
        return value
    return Unreadable(f"a text of at most {NOTE_LENGTH_MAX:,} characters")


_READERS: Final[Mapping[FieldKind, Callable[[object], object]]] = {
    "name": _name, "names": _names, "sizes": _sizes, "dtype": _dtype, "count": _count, "norm": _norm, "sha256": _sha256,
    "checkpoint": _checkpoint, "note": _note,
}  # fmt: skip
