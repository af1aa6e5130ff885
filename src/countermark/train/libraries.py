"""The training stack, loaded when it is used and never before.

Rules kept here:

1. Nothing of this room imports torch, transformers, peft, accelerate, trl or datasets when it is imported itself.
2. The stack is opaque to the type checkers: what comes out of it is read into values at once.
"""

import importlib
import sys
from typing import Any

from countermark.train.failures import CannotTrain


def library(name: str) -> Any:
    """A module of the training stack. Raises ``CannotTrain`` where it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        extra = "trl" if name.partition(".")[0] in {"trl", "datasets"} else "train"
        raise CannotTrain(f"{name} cannot be imported ({error}). Install it: pip install 'countermark[{extra}]'.") from error


def loaded(name: str) -> Any:
    """A module that somebody has loaded already, or None."""
    return sys.modules.get(name)
