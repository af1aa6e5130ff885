"""What was seen of checkpoints as blocks: all of one, or a row for each, and what speaks against going on from them."""

from typing import Final

from countermark.lines.blocks import Block, Lines, Table
from countermark.lines.checkpoint import Inspected, Inspection, component_rows, folder_lines, summary_rows, verdict_lines
from countermark.lines.defects import AnyDefect, sentence
from countermark.run.checkpoint import CheckpointReadback

_SUMMARY: Final = ("checkpoint", "step", "layout", "publication", "resume", "weights only")


def inspection_blocks(found: Inspection, alone: tuple[AnyDefect, ...]) -> tuple[Block, ...]:
    """Everything that was looked at; ``alone`` are the defects of no single checkpoint."""
    looked_at = found.checkpoints
    return (*(_one(looked_at[0]) if len(looked_at) == 1 else _several(looked_at)), *_beside(found, alone))


def _one(inspected: Inspected) -> tuple[Lines | Table, ...]:
    """All of one checkpoint: what it is, its five components, and what is wrong with it."""
    readback = inspected.readback
    rows = component_rows(readback) if isinstance(readback, CheckpointReadback) else ()
    components = (Table(("component", "state", "step", "size", "digest"), rows),) if rows else ()
    return (Lines(verdict_lines(inspected)), *components, Lines(_against(inspected, "")))


def _several(checkpoints: tuple[Inspected, ...]) -> tuple[Lines | Table, ...]:
    """One row for each, and below what speaks against each."""
    against = tuple(line for each in checkpoints for line in _against(each, f"{each.readback.path}: "))
    return (Table(_SUMMARY, summary_rows(checkpoints)), Lines(against))


def _beside(found: Inspection, alone: tuple[AnyDefect, ...]) -> tuple[Lines, ...]:
    """What no single checkpoint says: what else lies in the folders, which names are shared, and digests that were wrong."""
    lines = (*(f"{type(each).__name__}: {sentence(each).message}" for each in alone), *folder_lines(found.folders))
    return (Lines(lines),) if lines else ()


def _against(inspected: Inspected, before: str) -> tuple[str, ...]:
    return tuple(f"{before}{type(each).__name__}: {sentence(each).message}" for each in inspected.defects())
