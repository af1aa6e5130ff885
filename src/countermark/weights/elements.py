"""What the bytes of a tensor mean: from a data type and bytes to numbers, exactly.

Rules kept here:

1. Widening is exact: every value of every type below 64 bits is a float64 or an int64, and nothing is rounded on the way.
2. The small float types go through a table with one entry per code, made from the type's own definition (sign, exponent, mantissa, bias).
3. Packed codes are unpacked in the order in which they are stored: the lower bits of the first byte hold the first element.
4. A type whose bytes are no numbers to anybody but its kernel is *raw*: it is compared by bits alone, and says so.

NumPy is imported here and in ``countermark.weights.statistics``, and nothing that prints help imports either.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from countermark.weights.difference import Domain
from countermark.weights.dtypes import DTYPE_BITS

#: An array of elements. Its type is one that no type checker follows through NumPy's own rules of promotion.
Elements: TypeAlias = Any

#: Where the bytes are what NumPy reads by itself (little-endian).
_PLAIN: Final = {
    "I8": "<i1", "U8": "<u1", "I16": "<i2", "U16": "<u2", "I32": "<i4", "U32": "<u4", "I64": "<i8", "U64": "<u8", "F16": "<f2",
    "F32": "<f4", "F64": "<f8", "C64": "<c8",
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class SmallFloat:
    """A float type of at most 8 bits. ``special`` says what its largest exponent or codes mean: ``ieee`` (infinities and NaN), ``fn`` (only
    the all-ones code is NaN), ``fnuz`` (only minus zero's code is NaN), ``finite`` (every code is a number)."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    special: Literal["ieee", "fn", "fnuz", "finite"]

    def value(self, code: int) -> float:
        """The number that a code stands for."""
        bits = 1 + self.exponent_bits + self.mantissa_bits
        sign = -1.0 if code >> (bits - 1) else 1.0
        exponent = (code >> self.mantissa_bits) & ((1 << self.exponent_bits) - 1)
        mantissa = code & ((1 << self.mantissa_bits) - 1)
        top = exponent == (1 << self.exponent_bits) - 1
        if self.special == "ieee" and top:
            return float("nan") if mantissa else sign * float("inf")
        if self.special == "fn" and top and mantissa == (1 << self.mantissa_bits) - 1:
            return float("nan")
        if self.special == "fnuz" and code == 1 << (bits - 1):
            return float("nan")
        if exponent == 0:
            return sign * mantissa * 2.0 ** (1 - self.bias - self.mantissa_bits)
        return sign * (1 + mantissa / (1 << self.mantissa_bits)) * 2.0 ** (exponent - self.bias)


#: OCP Microscaling Formats 1.0 and OCP 8-bit floating point 1.0; the ``FNUZ`` types as their makers define them.
SMALL_FLOATS: Final = {
    "F4": SmallFloat(2, 1, 1, "finite"),
    "F6_E2M3": SmallFloat(2, 3, 1, "finite"),
    "F6_E3M2": SmallFloat(3, 2, 3, "finite"),
    "F8_E5M2": SmallFloat(5, 2, 15, "ieee"),
    "F8_E4M3": SmallFloat(4, 3, 7, "fn"),
    "F8_E5M2FNUZ": SmallFloat(5, 2, 16, "fnuz"),
    "F8_E4M3FNUZ": SmallFloat(4, 3, 8, "fnuz"),
}


def _table(codes: int, values: list[float]) -> NDArray[np.float64]:
    table = np.array(values, dtype=np.float64)
    assert table.size == codes
    table.flags.writeable = False
    return table


_TABLES: Final = {
    name: _table(1 << DTYPE_BITS[name], [kind.value(code) for code in range(1 << DTYPE_BITS[name])]) for name, kind in SMALL_FLOATS.items()
} | {
    # A scale alone: no sign, no mantissa, no zero; the last code is NaN.
    "F8_E8M0": _table(256, [2.0 ** (code - 127) for code in range(255)] + [float("nan")])
}


def domain_of(dtype: str) -> Domain:
    """What kind of numbers a type holds."""
    if dtype == "C64":
        return "complex"
    return "integer" if dtype == "BOOL" or dtype[0] in "IU" else "float"


def element_count(dtype: str, size_bytes: int) -> int:
    """How many elements of a type fill ``size_bytes``."""
    return size_bytes * 8 // DTYPE_BITS[dtype]


def codes_of(dtype: str, data: memoryview) -> Elements:
    """The elements' bit patterns, as unsigned whole numbers of the smallest width: equal codes are equal bits. ``C64`` gives pairs of
    32 bits as one number of 64."""
    bits = DTYPE_BITS[dtype]
    raw = np.frombuffer(data, dtype=np.uint8)
    if bits == 4:
        return np.stack((raw & 0x0F, raw >> 4), axis=1).reshape(-1)
    if bits == 6:
        first, second, third = (raw[at::3].astype(np.uint16) for at in range(3))
        parts = (first & 0x3F, (first >> 6) | ((second & 0x0F) << 2), (second >> 4) | ((third & 0x03) << 4), third >> 2)
        return np.stack(parts, axis=1).reshape(-1).astype(np.uint8)
    return raw.view(f"<u{bits // 8}")


def numbers_of(dtype: str, data: memoryview) -> Elements:
    """The elements as numbers, exactly: float32 or float64 for the float types, whole numbers for the rest, complex64 for ``C64``."""
    if (plain := _PLAIN.get(dtype)) is not None:
        found: Elements = np.frombuffer(data, dtype=plain)
        return found.astype(np.float32) if dtype == "F16" else found
    if dtype == "BF16":
        wide = np.frombuffer(data, dtype="<u2").astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    if dtype == "BOOL":
        return (np.frombuffer(data, dtype=np.uint8) != 0).astype(np.int8)
    return _TABLES[dtype][codes_of(dtype, data)]


@final
class Wide:
    """Real numbers as float64, exactly, in memory that is made once and used again: fresh memory for each piece costs as much as what is
    done with it."""

    __slots__ = ("_codes", "_values")

    def __init__(self, most: int) -> None:
        """``most``: of how many elements a piece is."""
        self._codes: NDArray[np.uint32] = np.empty(most, dtype=np.uint32)
        self._values: NDArray[np.float64] = np.empty(most, dtype=np.float64)

    def of(self, dtype: str, data: memoryview) -> NDArray[np.float64]:
        """The elements of a float type. They are gone when the next are asked for."""
        found = self._values[: element_count(dtype, len(data))]
        if dtype == "BF16":
            codes = self._codes[: found.size]
            np.copyto(codes, np.frombuffer(data, dtype="<u2"))
            np.left_shift(codes, 16, out=codes)
            np.copyto(found, codes.view(np.float32))
        elif dtype in _PLAIN:
            np.copyto(found, np.frombuffer(data, dtype=_PLAIN[dtype]))
        else:
            # A code is an index of its table, so that nothing is to be cut off.
            np.take(_TABLES[dtype], codes_of(dtype, data), out=found, mode="clip")
        return found
