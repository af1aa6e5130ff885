"""What torch needs to say the same: ``python bench/peer_torch.py diff A B`` or ``… root A``.

Both files are loaded as its readers do; then, tensor by tensor: whether they are equal, else how many numbers differ in their bits and in
their values, the l2 in float64, the largest difference, what became non-finite; and the SHA-256 of the bytes, of equal tensors once.
"""

import hashlib
import json
import sys
from typing import Any

import torch
from safetensors.torch import load_file


def digest(tensor: Any) -> str:
    return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy()).hexdigest()


def apart(a: Any, b: Any) -> dict[str, Any]:
    if torch.equal(a, b):
        both = digest(a)
        return {"equal": True, "a": both, "b": both}
    bits = torch.int32 if a.dtype == torch.float32 else torch.int16
    wide_a, wide_b = a.double(), b.double()
    finite_a, finite_b = torch.isfinite(wide_a), torch.isfinite(wide_b)
    pairs = finite_a & finite_b
    difference = torch.where(pairs, wide_b - wide_a, 0.0)
    return {
        "changed": int((a.view(bits) != b.view(bits)).sum()),
        "valueChanged": int((wide_a != wide_b).sum()),
        "l2": float(torch.linalg.vector_norm(difference)),
        "maxAbs": float(difference.abs().max()),
        "normA": float(torch.linalg.vector_norm(torch.where(finite_a, wide_a, 0.0))),
        "created": int((finite_a & ~finite_b).sum()),
        "cleared": int((~finite_a & finite_b).sum()),
        "a": digest(a),
        "b": digest(b),
    }


def main() -> None:
    what, *paths = sys.argv[1:]
    sides = [load_file(path) for path in paths]
    if what == "root":
        print(json.dumps({name: digest(tensor) for name, tensor in sides[0].items()}))
    else:
        print(json.dumps({name: apart(tensor, sides[1][name]) for name, tensor in sides[0].items()}))


if __name__ == "__main__":
    main()
