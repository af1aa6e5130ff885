"""Values that read, check and spell themselves.

Rules kept here:

1. Text from outside becomes a value once, through ``read``, or comes back as ``Unreadable`` with the reason. ``read`` never raises on any
   input; the constructor raises ``ValueError``, because a bad argument there is a bug of ours.
2. ``spell`` is the one canonical text of a value, and ``read(spell(v)) == v`` for every value.
3. A value has one spelling: numbers are exact, digests are lower-case and carry their family.
4. No clock, no disk, no randomness: every room above may rely on these types in a replay.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from datetime import time as datetime_time
from decimal import Decimal
from typing import ClassVar, Generic, Protocol, Self, TypeVar, cast, final

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: Longest raw text that a value is read from, in characters; longer input is refused before it is looked at.
TEXT_LENGTH_MAX = 4096
_DECIMAL_DIGITS_MAX = 40
_DECIMAL_EXPONENT_MAX = 400
_DECIMAL_TEXT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_INTEGER_TEXT = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_HEX64 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@final
@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a raw input is not a value of the wanted type; ``why`` is a clause that fits after "because"."""

    why: str


class Value(Protocol):
    """What every value can do: be read from raw input (text, number, table) and be spelled canonically."""

    @classmethod
    def read(cls, raw: object) -> Self | Unreadable: ...

    def spell(self) -> str: ...


def is_unicode(text: str) -> bool:
    """Whether a text has bytes in UTF-8: a name of a file, or an argument of a command line, need not."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def shown(raw: object, length_max: int = 80) -> str:
    """A raw input as it may be shown to a person: escaped, quoted and cut to ``length_max`` characters."""
    text = ascii(raw[:length_max] if isinstance(raw, str) else raw)
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


def spelled(raw: object, length_max: int = 80) -> str:
    """A value of a recipe as recipes spell it (``true``, ``[1, "a"]``), cut to ``length_max`` characters; null where there is none."""
    text = _spelled(raw, 4)
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


def _key(name: object) -> str:
    return name if isinstance(name, str) and _BARE_KEY.fullmatch(name) else shown(name)


def _spelled(raw: object, depth: int) -> str:
    whole = raw
    if raw is None or isinstance(raw, bool):
        return "null" if raw is None else str(raw).lower()
    if isinstance(raw, Decimal | date | datetime_time):
        return str(raw)
    if isinstance(raw, list | tuple) and depth:
        return "[" + ", ".join(_spelled(item, depth - 1) for item in cast("tuple[object, ...]", raw)) + "]"
    if isinstance(raw, Mapping) and depth:
        items = cast("Mapping[object, object]", raw).items()
        return "{" + ", ".join(f"{_key(name)} = {_spelled(value, depth - 1)}" for name, value in items) + "}"
    return shown(whole)


@final
@dataclass(frozen=True, slots=True)
class NonEmpty(Generic[T_co]):
    """A population that cannot be empty: ``first`` and ``more``, in the order in which they were found."""

    first: T_co
    more: tuple[T_co, ...] = ()

    @classmethod
    def of(cls, items: Iterable[T]) -> "NonEmpty[T] | None":
        """The items as a non-empty population, or None when there are none."""
        found = tuple(items)
        return NonEmpty(found[0], found[1:]) if found else None

    def __iter__(self) -> Iterator[T_co]:
        yield self.first
        yield from self.more

    def __len__(self) -> int:
        return 1 + len(self.more)


@final
@dataclass(frozen=True, slots=True)
class Refused(Generic[T_co]):
    """A refusal as a value: every defect that was found, never only the first."""

    defects: NonEmpty[T_co]


@dataclass(frozen=True, slots=True)
class Digest:
    """64 lower-case hexadecimal digits with the family that says what was hashed."""

    hex: str
    family: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not _HEX64.fullmatch(self.hex):
            raise ValueError(f"{type(self).__name__} needs 64 lower-case hexadecimal digits")

    @classmethod
    def read(cls, raw: object) -> Self | Unreadable:
        prefix = cls.family + ":"
        if not isinstance(raw, str):
            return Unreadable(f"a digest is text that begins with {prefix}")
        if not raw.startswith(prefix):
            return Unreadable(f"it does not begin with {prefix}")
        digits = raw[len(prefix) :]
        if not _HEX64.fullmatch(digits):
            return Unreadable(f"{prefix} must be followed by 64 lower-case hexadecimal digits")
        return cls(digits)

    def spell(self) -> str:
        return f"{self.family}:{self.hex}"

    def __str__(self) -> str:
        return self.spell()


@final
@dataclass(frozen=True, slots=True)
class Sha256(Digest):
    """SHA-256 of bytes that the context names, spelled ``sha256:…``."""

    family: ClassVar[str] = "sha256"


@final
@dataclass(frozen=True, slots=True)
class WeightsRoot(Digest):
    """The weights root, spelled ``wr1:…``: independent of sharding and metadata (see ``countermark.weights``)."""

    family: ClassVar[str] = "wr1"


@final
@dataclass(frozen=True, slots=True)
class FilesDigest(Digest):
    """The digest of exact files, spelled ``fd1:…``."""

    family: ClassVar[str] = "fd1"


@final
@dataclass(frozen=True, slots=True)
class CompositionDigest(Digest):
    """What ran, spelled ``mc1:…``: base, adapters and how they were loaded (see ``countermark.recipe.composition``)."""

    family: ClassVar[str] = "mc1"


def _decimal(raw: object) -> Decimal | Unreadable:
    """An exact number from text, an int, a Decimal, or a float through its shortest round-trip text."""
    if isinstance(raw, bool) or not isinstance(raw, str | int | float | Decimal):
        return Unreadable("it is not a number")
    if isinstance(raw, int) and raw.bit_length() > 512:
        return Unreadable("it is too large")
    text = str(raw)
    if len(text) > 200 or not _DECIMAL_TEXT.fullmatch(text):
        return Unreadable("it is not a finite decimal number")
    number = Decimal(text)
    if number == 0:
        return Decimal(0)
    digits = number.as_tuple()
    significant = "".join(map(str, digits.digits)).strip("0")
    if len(significant) > _DECIMAL_DIGITS_MAX or abs(number.adjusted()) > _DECIMAL_EXPONENT_MAX:
        return Unreadable(f"it has over {_DECIMAL_DIGITS_MAX} digits or an exponent beyond {_DECIMAL_EXPONENT_MAX}")
    return number


def _spell_decimal(number: Decimal) -> str:
    """The one spelling of an exact number: plain from 1e-6 up to 1e15, else ``<digits>e<exponent>``; no trailing zeros."""
    if number == 0:
        return "0"
    if -6 <= number.adjusted() <= 15:
        return _without_zeros(f"{number:f}")
    mantissa, exponent = f"{number:e}".split("e")
    return f"{_without_zeros(mantissa)}e{int(exponent)}"


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, slots=True)
class _ExactNumber:
    """An exact decimal with a lower bound; ``number`` compares by value, so 2e-4 and 0.0002 are one value."""

    number: Decimal
    lowest: ClassVar[Decimal] = Decimal(0)
    lowest_allowed: ClassVar[bool] = True
    bound: ClassVar[str] = "at least 0"

    def __post_init__(self) -> None:
        if isinstance(checked := self._checked(self.number), Unreadable):
            raise ValueError(f"{type(self).__name__}: {checked.why}")

    @classmethod
    def _checked(cls, raw: object) -> Decimal | Unreadable:
        number = _decimal(raw)
        if isinstance(number, Unreadable):
            return number
        if number < cls.lowest or (number == cls.lowest and not cls.lowest_allowed):
            return Unreadable(f"it must be {cls.bound}")
        return number

    @classmethod
    def read(cls, raw: object) -> Self | Unreadable:
        checked = cls._checked(raw)
        return checked if isinstance(checked, Unreadable) else cls(checked)

    def spell(self) -> str:
        return _spell_decimal(self.number)

    def __str__(self) -> str:
        return self.spell()


@final
@dataclass(frozen=True, slots=True)
class NonNegativeDecimal(_ExactNumber):
    """An exact decimal ≥ 0."""


@final
@dataclass(frozen=True, slots=True)
class PositiveDecimal(_ExactNumber):
    """An exact decimal > 0."""

    lowest_allowed: ClassVar[bool] = False
    bound: ClassVar[str] = "greater than 0"


@dataclass(frozen=True, slots=True)
class _Integer:
    """A whole number within bounds; numbers as text are read when they are digits and nothing else."""

    number: int
    lowest: ClassVar[int] = 0
    highest: ClassVar[int] = 2**63 - 1

    def __post_init__(self) -> None:
        if isinstance(self.number, bool) or not self.lowest <= self.number <= self.highest:
            raise ValueError(f"{type(self).__name__}: must be from {self.lowest} to {self.highest}")

    @classmethod
    def read(cls, raw: object) -> Self | Unreadable:
        if isinstance(raw, str) and _INTEGER_TEXT.fullmatch(raw):
            raw = int(raw)
        if isinstance(raw, bool) or not isinstance(raw, int):
            return Unreadable("it is not a whole number")
        if not cls.lowest <= raw <= cls.highest:
            return Unreadable(f"it must be from {cls.lowest} to {cls.highest}")
        return cls(raw)

    def spell(self) -> str:
        return str(self.number)

    def __str__(self) -> str:
        return self.spell()


@final
@dataclass(frozen=True, slots=True)
class NonNegativeInt(_Integer):
    """A whole number ≥ 0."""


@final
@dataclass(frozen=True, slots=True)
class PositiveInt(_Integer):
    """A whole number ≥ 1."""

    lowest: ClassVar[int] = 1


@final
@dataclass(frozen=True, slots=True)
class U64(_Integer):
    """An unsigned 64-bit number, as seeds are."""

    highest: ClassVar[int] = 2**64 - 1


@final
@dataclass(frozen=True, slots=True)
class PerMille(_Integer):
    """A rate in thousandths, 0 to 1000. A rate strictly between 0 and 1 (``0.05``) is read as 50; one that is no whole number of
    thousandths is refused, never rounded, and ``1.0`` is refused because 1 ‰ and the rate 1 would look alike."""

    highest: ClassVar[int] = 1000

    @classmethod
    def read(cls, raw: object) -> Self | Unreadable:
        if isinstance(raw, int) or (isinstance(raw, str) and _INTEGER_TEXT.fullmatch(raw)):
            # Named, because zero-argument super() still means the class from before ``slots=True`` rebuilt it.
            return super(PerMille, cls).read(raw)
        number = _decimal(raw)
        if isinstance(number, Unreadable):
            return number
        if not 0 <= number < 1:
            return Unreadable("a rate lies between 0 and 1; write thousandths as a whole number from 0 to 1000")
        return cls.of_rate(raw)

    @classmethod
    def of_rate(cls, raw: object) -> Self | Unreadable:
        """From a rate 0 to 1 as trainers write it (``0.05`` → 50); ``1.0`` is 1000 here."""
        number = _decimal(raw)
        if isinstance(number, Unreadable):
            return number
        if not 0 <= number <= 1:
            return Unreadable("a rate lies between 0 and 1")
        thousandths = number * 1000
        if thousandths != int(thousandths):
            return Unreadable("it is no whole number of thousandths, and rounding it would name another computation")
        return cls(int(thousandths))


_NAME_TEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:/+-]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Name:
    """A short printable name without spaces or control characters."""

    text: str

    def __post_init__(self) -> None:
        if not _NAME_TEXT.fullmatch(self.text):
            raise ValueError(f"{type(self).__name__}: {shown(self.text)} is not a name")

    @classmethod
    def read(cls, raw: object) -> Self | Unreadable:
        if not isinstance(raw, str) or not _NAME_TEXT.fullmatch(raw):
            return Unreadable("a name is 1 to 200 letters, digits and ._@:/+- and begins with a letter or digit")
        return cls(raw)

    def spell(self) -> str:
        return self.text

    def __str__(self) -> str:
        return self.text


@final
@dataclass(frozen=True, slots=True)
class Principal(_Name):
    """The account under which a work is counted, or the person or service who requested it."""


@final
@dataclass(frozen=True, slots=True)
class Request(_Name):
    """The name that a requester gives to a demand of theirs."""
