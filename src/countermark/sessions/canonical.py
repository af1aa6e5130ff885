"""One spelling for what came from outside: a payload that says the same is the same bytes, whichever way it came in.

Rules kept here:

1. The spelling is JSON: keys sorted by code point, no blanks, doubles as ECMAScript prints them (a whole double is a whole number), whole
   numbers exact. It is not RFC 8785, which rounds above 2^53. Spelling what was spelled changes nothing.
2. NaN and the infinities have no spelling: each is refused by its place, never stored, never written.
3. What some database cannot keep is replaced the same way for all: half a surrogate pair and NUL become U+FFFD, a text is cut at
   ``TEXT_LENGTH_MAX``. The place of each change is told, so that nothing is changed in silence.
4. Depth and size are bounded, so that a hostile document is refused and never exhausts anything.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from math import isfinite
from typing import Final, TypeAlias, cast, final

import msgspec

from countermark.recipe.canonical import spell_double
from countermark.values import NonEmpty, Refused

Json: TypeAlias = "None | bool | int | float | str | Sequence[Json] | Mapping[str, Json]"

#: The longest text that is kept whole, in characters.
TEXT_LENGTH_MAX: Final = 1_000_000
#: The longest key that is kept whole, in characters.
KEY_LENGTH_MAX: Final = 1_000
DEPTH_MAX: Final = 64
#: The longest spelling, in characters.
SPELLING_LENGTH_MAX: Final = 4_000_000
#: A whole number with more bits has no place in an event.
INTEGER_BITS_MAX: Final = 4096
#: Places that are told of one payload; the last of more says that there are more.
PLACES_MAX: Final = 20
AND_MORE: Final = "…"
#: Defects that are told of one payload.
DEFECTS_MAX: Final = 100

_UNKEPT: Final = re.compile("[\0\ud800-\udfff]")
_CUT: Final = "\ufffd"
_ENCODED: Final = msgspec.json.Encoder(order="sorted").encode
#: NUL in a JSON text; the escape's own text, which is kept, holds it too and is looked at more closely.
_NUL_WRITTEN: Final = b"\\u0000"


def as_table(value: object) -> Mapping[str, object]:
    """A JSON value where it is an object; an empty one where it is anything else."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def as_text(value: object) -> str | None:
    """A JSON value where it is a text that is not empty."""
    return value if isinstance(value, str) and value else None


@final
@dataclass(frozen=True, slots=True)
class ValueUnspellable:
    """A value at ``place`` (``payload.l2``) has no spelling; ``why`` is a clause about it."""

    place: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class Spelling:
    """A JSON value as it is stored: its text, its value after the replacements, and the places of these."""

    text: str
    value: Json
    sanitized: tuple[str, ...] = ()


def kept_text(text: str, length_max: int = TEXT_LENGTH_MAX) -> str:
    """A text as every database keeps it; the same object where nothing of it had to change."""
    kept = text if len(text) <= length_max else text[: length_max - 1] + _CUT
    return kept if _UNKEPT.search(kept) is None else _UNKEPT.sub(_CUT, kept)


def spelled_json(value: object, place: str) -> Spelling | Refused[ValueUnspellable]:
    """The one spelling of a JSON value (None, bool, int, float, str, list, tuple, mapping), or everything in it that has none. ``place``
    is what the value is called in refusals."""
    if (quickly := _as_it_is(value)) is not None:
        return Spelling(quickly, cast(Json, value))
    writer = _Writer()
    kept = writer.write(value, place, 0)
    text = "".join(writer.parts)
    if len(text) > SPELLING_LENGTH_MAX:
        writer.defects.append(ValueUnspellable(place, f"it takes {len(text):,} characters, and {SPELLING_LENGTH_MAX:,} are the most"))
    if (refused := NonEmpty.of(writer.defects)) is not None:
        return Refused(refused)
    places = writer.places if len(writer.places) <= PLACES_MAX else [*writer.places[: PLACES_MAX - 1], AND_MORE]
    return Spelling(text, kept, tuple(places))


def _as_it_is(value: object) -> str | None:
    """The spelling of a value of which nothing is replaced, cut or refused, by msgspec's encoder, which takes a twentieth of the time; None
    where somebody has to look closer."""
    if not _plain(value, 0):
        return None
    try:
        written = _ENCODED(value)
    except UnicodeEncodeError:
        return None
    # No text has more characters than bytes.
    return None if len(written) > SPELLING_LENGTH_MAX or _NUL_WRITTEN in written else written.decode()


def _plain(value: object, depth: int) -> bool:
    """Whether a value has the types, lengths and numbers that msgspec spells as we do; which characters it has is not looked at."""
    kind = type(value)
    if kind is str:
        return len(cast(str, value)) <= TEXT_LENGTH_MAX
    if kind is int:
        return cast(int, value).bit_length() <= INTEGER_BITS_MAX
    if value is None or kind is bool:
        return True
    if kind is float:
        told = repr(value)
        return "." in told and "e" not in told and not told.endswith(".0")
    if depth >= DEPTH_MAX:
        return False
    if kind is dict:
        for key, inner in cast("dict[object, object]", value).items():
            if type(key) is not str or len(key) > KEY_LENGTH_MAX or not _plain(inner, depth + 1):
                return False
        return True
    return kind is list and all(_plain(inner, depth + 1) for inner in cast("list[object]", value))


class _Writer:
    """One walk over a value: its text in parts, its defects, and the places of what was replaced."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.defects: list[ValueUnspellable] = []
        self.places: list[str] = []

    def write(self, value: object, place: str, depth: int) -> Json:
        """Write a value; what is kept of it comes back."""
        if isinstance(value, str):
            kept = kept_text(value)
            if kept is not value:
                self.places.append(place)
            self.parts.append(encode_basestring(kept))
            return kept
        if value is None or isinstance(value, bool):
            self.parts.append("null" if value is None else "true" if value else "false")
            return value
        if isinstance(value, int):
            return self._whole(value, place)
        if isinstance(value, float):
            return self._double(value, place)
        if depth >= DEPTH_MAX:
            return self._refuse(place, f"it is nested deeper than {DEPTH_MAX} levels")
        if isinstance(value, Mapping):
            return self._object(cast("Mapping[object, object]", value), place, depth + 1)
        if isinstance(value, list | tuple):
            return self._items(cast("Sequence[object]", value), place, depth + 1)
        return self._refuse(place, f"a {type(value).__name__} is no JSON value")

    def _whole(self, value: int, place: str) -> Json:
        if value.bit_length() > INTEGER_BITS_MAX:
            return self._refuse(place, f"the whole number has over {INTEGER_BITS_MAX} bits")
        self.parts.append(int.__repr__(value))
        return value

    def _double(self, value: float, place: str) -> Json:
        if not isfinite(value):
            return self._refuse(place, f"{value} is not a finite number")
        told = spell_double(value)
        self.parts.append(told)
        # What would be read back, so that the value and its spelling never part: 5.0 comes back as 5.
        return float(value) if "." in told or "e" in told else int(told)

    def _items(self, items: Sequence[object], place: str, depth: int) -> Json:
        kept: list[Json] = []
        self.parts.append("[")
        for position, item in enumerate(items):
            if position:
                self.parts.append(",")
            kept.append(self.write(item, f"{place}[{position}]", depth))
        self.parts.append("]")
        return kept

    def _object(self, table: Mapping[object, object], place: str, depth: int) -> Json:
        named: dict[str, object] = {}
        replaced: list[str] = []
        for key, value in table.items():
            if not isinstance(key, str):
                self._refuse(place, "a key of it is no text")
            elif kept_text(key, KEY_LENGTH_MAX) is key:
                named[key] = value
            else:
                replaced.append(key)
        # Keys that differed in what was replaced stay apart, in an order that does not depend on the document's.
        for key in sorted(replaced):
            name = kept_text(key, KEY_LENGTH_MAX)
            while name in named:
                name += _CUT
            named[name] = table[key]
            self.places.append(f"{place}.{name}")
        kept: dict[str, Json] = {}
        self.parts.append("{")
        for position, name in enumerate(sorted(named)):
            self.parts.append(f"{',' if position else ''}{encode_basestring(name)}:")
            kept[name] = self.write(named[name], f"{place}.{name}", depth)
        self.parts.append("}")
        return kept

    def _refuse(self, place: str, why: str) -> Json:
        if len(self.defects) < DEFECTS_MAX:
            self.defects.append(ValueUnspellable(place, why))
        return None
