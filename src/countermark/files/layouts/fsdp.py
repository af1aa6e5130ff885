"""What FSDP leaves in a trainer's or Accelerate's folder where it does not gather: a distributed checkpoint for each model and optimizer.

Rules kept here:

1. ``pytorch_model_fsdp_N`` holds the weights and ``optimizer_N`` what steps them, each a folder of its own with its own ``.metadata``. A
   folder without it is one that its writer had not finished.
2. Pieces are put together by whoever loads them, by any number of workers: they are the state of no worker in particular.
3. Who wrote a piece is in its name: as many workers as that have their random generators in the folder around.
4. The folder around is written in place. Its publication is incomplete where that of a folder in it is, and never more than unobserved.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from countermark.files.layouts.dcp import DcpReading, read_dcp
from countermark.files.layouts.distributed import judge_optimizer
from countermark.files.layouts.reading import LayoutReading, Parts
from countermark.files.reading import Entry
from countermark.run.checkpoint import Component, Incomplete

_WEIGHTS: Final = re.compile(r"pytorch_model_fsdp_(0|[1-9][0-9]{0,3})", re.ASCII)
_OPTIMIZER: Final = re.compile(r"optimizer_(0|[1-9][0-9]{0,3})", re.ASCII)
_PIECE: Final = re.compile(rf"(?:{_WEIGHTS.pattern}|{_OPTIMIZER.pattern})/__([0-9]{{1,7}})_[0-9]+\.distcp", re.ASCII)


def workers_of(names: Iterable[str]) -> int:
    """How many workers left pieces, by the names of these; one where there are none."""
    return max((int(found[3]) for name in names if (found := _PIECE.fullmatch(name))), default=0) + 1


def take_pieces(folder: Path, entries: tuple[Entry, ...], reading: LayoutReading) -> dict[Component, Parts]:
    """The weights and the optimizers that lie in pieces in the folder; a component that does not is not in the answer."""
    weights = [_taken(folder, entries, name, Component.MODEL_WEIGHTS, reading) for name in _folders(entries, _WEIGHTS)]
    optimizers = [_taken(folder, entries, name, Component.OPTIMIZER_STATE, reading) for name in _folders(entries, _OPTIMIZER)]
    for found in optimizers:
        found.tensors = {name: tensor for one in weights for name, tensor in one.tensors.items()}
        judge_optimizer(found, reading)
    every = {Component.MODEL_WEIGHTS: weights, Component.OPTIMIZER_STATE: optimizers}
    return {component: _joined(component, found) for component, found in every.items() if found}


def _folders(entries: tuple[Entry, ...], form: re.Pattern[str]) -> Iterator[str]:
    return (entry.name for entry in entries if entry.kind == "a folder" and form.fullmatch(entry.name))


def _taken(folder: Path, entries: tuple[Entry, ...], name: str, component: Component, reading: LayoutReading) -> DcpReading:
    found = read_dcp(folder, entries, f"{name}/")
    if isinstance(found.publication, Incomplete):
        before = reading.publication.whys if isinstance(reading.publication, Incomplete) else ()
        reading.publication = Incomplete((*before, *(f"{name}: {why}" for why in found.publication.whys)))
    own = found.parts.get(component)
    if own is not None:
        own.whys.extend(f"{name} holds something of {other} too" for other, parts in found.parts.items() if parts is not own)
    return found


def _joined(component: Component, found: list[DcpReading]) -> Parts:
    parts = Parts()
    for one in found:
        parts.join(one.parts.get(component, Parts(whys=[f"its pieces hold nothing of {component}"])))
    return parts
