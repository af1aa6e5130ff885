"""Which tensors hold packed codes of a quantized model: their bytes are compared, and never taken for numbers.

Rules kept here:

1. What gives a packed tensor away is its neighbourhood, not its type alone: bytes can be a mask or a count. Known are the layouts of
   bitsandbytes (4-bit blobs of shape [n,1] with their quantization state beside them), GPTQ and AWQ (``qweight`` and ``qzeros``),
   compressed-tensors (``weight_packed``) and MXFP4 (``…_blocks`` beside ``…_scales``).
2. One column of bytes is a packed blob by its shape alone: no layer's weight is a [n,1] matrix of bytes.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from countermark.weights.header import TensorSpan

_ENDS: Final = ("qweight", "qzeros", "weight_packed")
_BESIDE: Final = (".absmax", ".quant_map", ".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4")


def packed(spans: Iterable[TensorSpan]) -> Iterator[str]:
    """The names of the tensors that hold packed codes."""
    kept = tuple(spans)
    names = {span.name for span in kept}
    for span in kept:
        if span.dtype not in ("U8", "I8", "I32"):
            continue
        last = span.name.rpartition(".")[2]
        column = span.dtype == "U8" and len(span.shape) == 2 and span.shape[1] == 1
        beside = any(span.name + end in names for end in _BESIDE)
        blocks = last.endswith("_blocks") and span.name.removesuffix("_blocks") + "_scales" in names
        if column or last in _ENDS or beside or blocks:
            yield span.name
