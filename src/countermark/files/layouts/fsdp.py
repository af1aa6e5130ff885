"""What FSDP leaves in a trainer's or Accelerate's folder where it does not gather: a distributed checkpoint for each model and optimizer.

Rules kept here:

1. ``pytorch_model_fsdp_N`` holds the weights and ``optimizer_N`` what steps them, each a folder of its own with its own ``.metadata``. A
   folder without it is one that its writer had not finished. None is missing below the highest number, and no file beside holds the same.
2. Pieces are put together by whoever loads them, by any number of workers: they are the state of no worker in particular.
3. Who wrote a piece is in its name: as many workers as that have their random generators in the folder around.
4. The folder around is written in place. Its publication is incomplete where that of a folder in it is, and never more than unobserved.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from countermark.files.layouts.dcp import DcpReading, read_dcp, writers
from countermark.files.layouts.distributed import judge_optimizer
from countermark.files.layouts.reading import LayoutReading, Parts
from countermark.files.layouts.torch_files import note_gaps, ranks_of
from countermark.files.layouts.weights import CARRIERS
from countermark.files.reading import Entry
from countermark.run.checkpoint import Component, Incomplete

_STEMS: Final = {Component.MODEL_WEIGHTS: "pytorch_model_fsdp", Component.OPTIMIZER_STATE: "optimizer"}
_PIECE: Final = re.compile(rf"(?:{'|'.join(_STEMS.values())})_(?:0|[1-9][0-9]{{0,3}})/([^/]+)")


def workers_of(names: Iterable[str]) -> int:
    """How many workers left pieces, by the names of these; one where there are none."""
    return writers(found[1] for name in names if (found := _PIECE.fullmatch(name)))


def note_beside(parts: Parts, names: Iterable[str], what: str) -> None:
    """Note the files that hold in one what pieces hold too: nothing tells which of the two goes with the rest."""
    parts.whys.extend(f"{name} lies beside the pieces of {what}" for name in names)


def take_pieces(folder: Path, entries: tuple[Entry, ...], reading: LayoutReading) -> dict[Component, Parts]:
    """The weights and the optimizers that lie in pieces in the folder; a component that does not is not in the answer."""
    folders = [entry.name for entry in entries if entry.kind == "a folder"]
    numbers = {component: ranks_of(re.compile(rf"{stem}_(0|[1-9][0-9]{{0,3}})", re.ASCII), folders) for component, stem in _STEMS.items()}
    every = {
        component: [_taken(folder, entries, f"{_STEMS[component]}_{number}", component, reading) for number in found]
        for component, found in numbers.items()
    }
    tensors = {name: tensor for one in every[Component.MODEL_WEIGHTS] for name, tensor in one.tensors.items()}
    for found in every[Component.OPTIMIZER_STATE]:
        found.tensors = tensors
        judge_optimizer(found, reading)
    parts = {component: _joined(component, found) for component, found in every.items() if found}
    for component, joined in parts.items():
        note_gaps(joined, numbers[component], f"{_STEMS[component]}_{{}}", 0)
    if Component.MODEL_WEIGHTS in parts:
        beside = sorted(entry.name for entry in entries if entry.name in CARRIERS)
        note_beside(parts[Component.MODEL_WEIGHTS], beside, "the weights")
    return parts


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
