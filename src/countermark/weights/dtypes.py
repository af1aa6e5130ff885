"""The data types that safetensors spells, and their sizes. A type that is not listed here is refused, never guessed."""

from types import MappingProxyType
from typing import Final

#: Bits per element, as the safetensors format 0.8 fixes them; the sub-byte types are packed and must fill whole bytes.
DTYPE_BITS: Final = MappingProxyType(
    {
        "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
        "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
        "U64": 64,
    }
)  # fmt: skip
