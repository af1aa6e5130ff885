"""Decimals that a trainer's float64 carries exactly as they are written.

Rules kept here:

1. A number is exact, and compares by value: ``2e-4`` and ``0.0002`` are one coordinate.
2. A decimal that a float64 cannot carry (too many digits, too large, too small) is refused, never rounded: the trainer would compute with
   its neighbour, and one computation would get two identities.
3. A float enters through its shortest round-trip text, which is its one spelling here.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Self, final

from countermark.values import NonNegativeDecimal, PositiveDecimal, PositiveInt, Unreadable


@dataclass(frozen=True, slots=True)
class _Real:
    """A decimal that is the shortest text of a float64, with bounds."""

    number: Decimal
    bounds: ClassVar[type[NonNegativeDecimal] | type[PositiveDecimal]] = NonNegativeDecimal
    below: ClassVar[Decimal | None] = None

    def __post_init__(self) -> None:
        if isinstance(checked := self._checked(self.number), Unreadable):
            raise ValueError(f"{type(self).__name__}: {checked.why}")

    @classmethod
    def _checked(cls, raw: object) -> Decimal | Unreadable:
        exact = cls.bounds.read(raw)
        if isinstance(exact, Unreadable):
            return exact
        carried = repr(float(exact.number))
        if Decimal(carried) != exact.number:
            return Unreadable(f"a trainer's float64 cannot carry it as it is written; the nearest that it can is {carried}")
        if cls.below is not None and exact.number >= cls.below:
            return Unreadable(f"it must be less than {cls.below}")
        return exact.number

    @classmethod
    def read(cls, raw: object) -> Self | Unreadable:
        checked = cls._checked(raw)
        return checked if isinstance(checked, Unreadable) else cls(checked)

    def spell(self) -> str:
        return NonNegativeDecimal(self.number).spell()

    def __str__(self) -> str:
        return self.spell()

    def __float__(self) -> float:
        """The float64 that the trainer is handed: no digit is lost."""
        return float(self.number)


@final
@dataclass(frozen=True, slots=True)
class NonNegativeReal(_Real):
    """A float64 ≥ 0 by its shortest text."""


@final
@dataclass(frozen=True, slots=True)
class PositiveReal(_Real):
    """A float64 > 0 by its shortest text."""

    bounds: ClassVar[type[NonNegativeDecimal] | type[PositiveDecimal]] = PositiveDecimal


@final
@dataclass(frozen=True, slots=True)
class DecayRate(_Real):
    """A float64 from 0 up to and without 1, as an optimizer's betas are."""

    below: ClassVar[Decimal | None] = Decimal(1)


@final
@dataclass(frozen=True, slots=True)
class Several:
    """A whole number from 2."""

    number: int

    def __post_init__(self) -> None:
        if PositiveInt(self.number).number < 2:
            raise ValueError("Several: must be from 2")

    @classmethod
    def read(cls, raw: object) -> Self | Unreadable:
        number = PositiveInt.read(raw)
        if isinstance(number, Unreadable):
            return number
        return cls(number.number) if number.number > 1 else Unreadable("it must be from 2")

    def spell(self) -> str:
        return str(self.number)
