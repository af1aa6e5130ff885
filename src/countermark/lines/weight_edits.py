"""A weight edit as one line: the only place that writes it. The command line, MCP, the viewer and the exporters call it.

Rules kept here:

1. Every payload has a line, also one in which no field is well formed: rows of other origin are shown as far as they can be read.
2. "3 of 4,194,304 weights" is said only where the shape is valid and holds the count.
3. Norms have three significant digits, small ones in scientific form; none is rounded to infinity, or to 0 unless it is 0.
4. Control characters and terminal escapes are made visible.
"""

from collections.abc import Mapping
from math import prod
from typing import Final, cast

from countermark.lines.numbers import shown_norm
from countermark.lines.texts import counted, plain
from countermark.sessions.edits import COUNT_MAX, FIELDS, read_field
from countermark.values import Unreadable

_NOTE_SHOWN_MAX: Final = 200


def format_weight_edit(payload: Mapping[str, object]) -> str:
    """The line of a weight edit's payload, as ``layers.0.w: 3 of 4,194,304 weights changed, ‖Δ‖ 0.0120, max 0.00500``."""
    read = {field.key: value for field in FIELDS if not isinstance(value := _read(field.key, payload), Unreadable)}
    tensor = read.get("tensor")
    subject = plain(tensor, 512) if isinstance(tensor, str) else "a tensor without a name"
    parts = [_changed(read), *_norms(read), *_non_finite(read)]
    if isinstance(note := read.get("note"), str) and note:
        parts.append(f"note: {plain(note, _NOTE_SHOWN_MAX)}")
    return f"{subject}: {', '.join(parts)}"


def _read(key: str, payload: Mapping[str, object]) -> object:
    return read_field(key, payload[key]) if key in payload else Unreadable("it was not said")


def _changed(read: Mapping[str, object]) -> str:
    changed, shape, values = read.get("changed"), read.get("shape"), read.get("valueChanged")
    if not isinstance(changed, int):
        return "edited"
    total = prod(cast("tuple[int, ...]", shape)) if isinstance(shape, tuple) else 0
    holds = 0 < total <= COUNT_MAX and changed <= total
    told = f"{changed:,} of {counted(total, 'weight')} changed" if holds else f"{counted(changed, 'weight')} changed"
    return f"{told} ({values:,} in value)" if isinstance(values, int) and values != changed else told


def _norms(read: Mapping[str, object]) -> list[str]:
    named = (("‖Δ‖", read.get("l2")), ("max", read.get("maxAbs")))
    return [f"{name} {shown_norm(value)}" for name, value in named if isinstance(value, float)]


def _non_finite(read: Mapping[str, object]) -> list[str]:
    named = ((read.get("nonFiniteCreated"), "became NaN or infinite"), (read.get("nonFiniteCleared"), "finite again"))
    return [f"{count:,} {what}" for count, what in named if isinstance(count, int) and count]
