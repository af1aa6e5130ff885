"""The states of the random generators that a training draws from, as checkpoints keep them.

They are plain values and tensors alone, so that torch loads them without unpickling anything else.
"""

import random
from collections.abc import Mapping
from typing import Any

from countermark.train.libraries import library


def states() -> dict[str, Any]:
    """The states of Python's, NumPy's and torch's generators."""
    torch = library("torch")
    kind, words, *rest = library("numpy").random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(words.astype("int64")), *rest),
        "cpu": torch.get_rng_state(),
        "cuda": list(torch.cuda.get_rng_state_all()) if torch.cuda.is_available() else [],
    }


def restore(found: Mapping[str, Any]) -> None:
    """Put the generators into these states."""
    torch = library("torch")
    random.setstate(found["python"])
    kind, words, *rest = found["numpy"]
    library("numpy").random.set_state((kind, words.numpy().astype("uint32"), *rest))
    torch.set_rng_state(found["cpu"].cpu())
    if found["cuda"]:
        torch.cuda.set_rng_state_all([state.cpu() for state in found["cuda"]])
