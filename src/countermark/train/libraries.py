"""The training stack, loaded when it is used and never before.

Rules kept here:

1. Nothing of this room imports torch, transformers, peft, accelerate, trl or datasets when it is imported itself.
2. The stack is opaque to the type checkers: what comes out of it is read into values at once.
3. Threads that wait do not spin, unless the environment says otherwise: on a machine that is shared, spinning ones make a training of
   several threads ten times slower. It changes no bits, and libraries read it once, when they are loaded.
"""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from countermark.train.failures import CannotTrain

#: A library's first name → the extra of ours that brings it, where that is not ``train``.
EXTRAS: Final[Mapping[str, str]] = {"lightning": "lightning", "trl": "trl", "datasets": "trl"}
_PATIENT: Final[Mapping[str, str]] = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}


def library(name: str) -> Any:
    """A module of the training stack. Raises ``CannotTrain`` where it is not installed."""
    for variable, value in _PATIENT.items():
        os.environ.setdefault(variable, value)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(name.partition(".")[0], "train")
        raise CannotTrain(f"{name} cannot be imported ({error}). Install it: pip install 'countermark[{extra}]'.") from error


def loaded(name: str) -> Any:
    """A module that somebody has loaded already, or None."""
    return sys.modules.get(name)
