"""Texts as they may be shown.

Rules kept here:

1. No character that a terminal would obey, and none that would break a line or a column, leaves ``plain``; letters of every script do.
2. A document's whole numbers beyond 2^53 are strings, because JavaScript would read another number.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

JsonValue: TypeAlias = "None | bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue]"
Document: TypeAlias = dict[str, JsonValue]

_SAFE_INTEGER_MAX: Final = 2**53


def plain(text: str, length_max: int = 400) -> str:
    """``text`` without anything that a terminal would obey: what cannot be printed is escaped, and the rest is cut at ``length_max``."""
    kept = text if len(text) <= length_max else text[: length_max - 1] + "…"
    if kept.isprintable():
        return kept
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode("ascii") for character in kept
    )


def number(value: int) -> int | str:
    """A whole number as a document carries it."""
    return value if -_SAFE_INTEGER_MAX <= value <= _SAFE_INTEGER_MAX else str(value)


def listed(items: Iterable[str], none: str = "nothing") -> str:
    """Items as a sentence names them: ``a``, ``a and b``, ``a, b and c``."""
    found = tuple(items)
    if not found:
        return none
    return found[0] if len(found) == 1 else ", ".join(found[:-1]) + " and " + found[-1]


def either(items: Iterable[str]) -> str:
    """Items as a question offers them: ``a``, ``a or b``, ``a, b or c``."""
    found = tuple(items)
    return found[0] if len(found) == 1 else ", ".join(found[:-1]) + " or " + found[-1]


def counted(count: int, one: str, many: str | None = None) -> str:
    """``1 file``, ``3 files``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def sized(size_bytes: int) -> str:
    """A size for people: ``412 bytes``, ``1.2 MB``; powers of ten."""
    if size_bytes < 1000:
        return counted(size_bytes, "byte")
    for power, unit in enumerate(("kB", "MB", "GB", "TB"), start=1):
        if size_bytes < 999.95 * 1000**power:
            return f"{size_bytes / 1000**power:.1f} {unit}"
    return f"{size_bytes / 1000**5:.1f} PB"


def scaled(count: int) -> str:
    """A count for people: ``412``, ``1.2 M``, ``453 M``; powers of ten, three digits at most."""
    for power, unit in ((9, "B"), (6, "M")):
        if count >= 10**power:
            return f"{count / 10**power:.3g} {unit}" if count < 1000 * 10**power else f"{count / 10**power:,.0f} {unit}"
    return f"{count:,}"


def camel(name: str) -> str:
    """``snake_case`` as documents spell it."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
