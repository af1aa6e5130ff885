"""A checkpoint as it was read back: a document, a table of its components, and what it is good for.

Rules kept here:

1. Nothing is decided here: whether it can be resumed from, or used for its weights, comes from ``admit_checkpoint`` and
   ``admit_weights_only``.
2. A component is ``read``, ``missing`` or ``unread``; one that changed while it was read is ``unread``.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from countermark.lines.surface import SeveralOfStep
from countermark.lines.texts import Document, JsonValue, listed, number, plain, sized
from countermark.run.checkpoint import (
    AdmittedCheckpoint,
    Atomic,
    CheckpointDefect,
    CheckpointNotThere,
    CheckpointReadback,
    ComponentAbsent,
    ComponentChanging,
    ComponentRead,
    ComponentReading,
    ComponentUnreadable,
    Incomplete,
    Publication,
    SoundCheckpoint,
    Unobserved,
    WeightsOnlyCheckpoint,
)
from countermark.values import Refused


@final
@dataclass(frozen=True, slots=True)
class Inspected:
    """A checkpoint with both answers about it."""

    readback: CheckpointReadback | CheckpointNotThere
    resume: AdmittedCheckpoint | SoundCheckpoint | Refused[CheckpointDefect]
    weights_only: WeightsOnlyCheckpoint | Refused[CheckpointDefect]

    def defects(self) -> tuple[CheckpointDefect, ...]:
        """Everything that speaks against going on from it."""
        return tuple(self.resume.defects) if isinstance(self.resume, Refused) else ()


@final
@dataclass(frozen=True, slots=True)
class FolderListed:
    """A folder that was named for the checkpoints in it: (step, name) in their order, the step None where a name counts something else, and
    the names of what is no checkpoint."""

    path: str
    checkpoints: tuple[tuple[int | None, str], ...]
    others: tuple[str, ...]

    @property
    def shared(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """Steps that several names tell, with those names."""
        told = Counter(step for step, _ in self.checkpoints if step is not None)
        return tuple((step, tuple(name for one, name in self.checkpoints if one == step)) for step, times in told.items() if times > 1)

    def places(self, step: int | None) -> tuple[str, ...]:
        """The paths of its checkpoints, or of those of one step."""
        return tuple(f"{self.path.rstrip('/')}/{name}" for one, name in self.checkpoints if step is None or one == step)


@final
@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything that was looked at in one call: the checkpoints in the order in which they were named, the folders that stood for some of
    them, and what was named twice."""

    checkpoints: tuple[Inspected, ...]
    folders: tuple[FolderListed, ...] = ()
    shared: tuple[SeveralOfStep, ...] = ()


def publication_word(publication: Publication) -> str:
    """``atomic``, ``incomplete`` or ``unobserved``."""
    match publication:
        case Atomic():
            return "atomic"
        case Incomplete():
            return "incomplete"
        case Unobserved():
            return "unobserved"


def publication_why(publication: Publication) -> str:
    """What was seen of the publication, in one phrase."""
    match publication:
        case Atomic(receipt):
            return plain(receipt)
        case Incomplete(whys) | Unobserved(whys):
            return listed(map(plain, whys))


def checkpoint_document(inspected: Inspected) -> Document:
    """The document of one checkpoint, without its defects."""
    readback = inspected.readback
    admissible: Document = {
        "resume": not isinstance(inspected.resume, Refused),
        "weightsOnly": not isinstance(inspected.weights_only, Refused),
        "vouched": isinstance(inspected.resume, AdmittedCheckpoint | SoundCheckpoint) and inspected.resume.vouched,
        "heldAgainst": "itself" if isinstance(inspected.resume, SoundCheckpoint) else "a manifest",
    }
    if isinstance(readback, CheckpointNotThere):
        nothing: Document = {"layout": None, "step": None, "publication": None, "components": {}, "witnesses": [], "notes": []}
        return {"path": readback.path, **nothing, "admissible": admissible}
    digest = readback.digest
    return {
        "path": readback.path,
        "layout": readback.layout,
        "step": number(readback.step),
        "publication": publication_word(readback.publication),
        "publicationWhy": publication_why(readback.publication),
        "digest": None if digest is None else digest.spell(),
        "attempt": readback.attempt,
        "workKey": readback.work_key,
        "components": {component.value: _component(reading) for component, reading in readback.components.items()},
        "witnesses": _witnesses(readback),
        "microBatches": None if readback.micro_batches is None else number(readback.micro_batches),
        "notes": list(readback.notes),
        "admissible": admissible,
    }


def _component(reading: ComponentReading) -> Document:
    match reading:
        case ComponentRead(files, steps):
            listing: list[JsonValue] = [{"name": each.name, "sha256": each.sha256.spell(), "bytes": number(each.bytes)} for each in files]
            return {"state": "read", "digest": reading.digest.spell(), "step": _step(reading), "files": listing, "told": len(steps)}
        case ComponentAbsent(names):
            return {"state": "missing", "digest": None, "step": None, "files": [{"name": name} for name in names]}
        case ComponentUnreadable(whys):
            return {"state": "unread", "digest": None, "step": None, "files": [], "whys": list(whys)}
        case ComponentChanging(names):
            return {"state": "unread", "digest": None, "step": None, "files": [{"name": name} for name in names], "whys": ["changing"]}


def _step(reading: ComponentRead) -> int | str | None:
    """The step that the component tells; None where it tells none or several."""
    told = {witness.step for witness in reading.steps}
    return number(told.pop()) if len(told) == 1 else None


def _witnesses(readback: CheckpointReadback) -> list[JsonValue]:
    return [
        {"component": component.value, "source": witness.source, "step": number(witness.step)}
        for component, reading in readback.components.items()
        if isinstance(reading, ComponentRead)
        for witness in reading.steps
    ]


def component_rows(readback: CheckpointReadback) -> tuple[tuple[str, str, str, str, str], ...]:
    """Component, state, the step it tells, size and digest: one row for each of the five."""
    return tuple((component.value, *_row(reading)) for component, reading in readback.components.items())


def _row(reading: ComponentReading) -> tuple[str, str, str, str]:
    match reading:
        case ComponentRead():
            step = _step(reading)
            return ("read", "-" if step is None else str(step), sized(reading.bytes), reading.digest.hex[:12])
        case ComponentAbsent():
            return ("missing", "-", "-", "-")
        case ComponentUnreadable() | ComponentChanging():
            return ("unread", "-", "-", "-")


def verdict_lines(inspected: Inspected) -> tuple[str, ...]:
    """What the checkpoint is and what it is good for."""
    readback = inspected.readback
    if isinstance(readback, CheckpointNotThere):
        return (f"{plain(readback.path)}: there is no checkpoint ({plain(readback.why)})",)
    published = f"{publication_word(readback.publication)}: {publication_why(readback.publication)}"
    notes = tuple(f"note         {plain(note)}" for note in readback.notes)
    return (
        f"checkpoint   {plain(readback.path)}",
        f"layout       {plain(readback.layout)}, step {readback.step}",
        f"publication  {published}",
        f"resume       {_answer(inspected.resume)}",
        f"weights only {_answer(inspected.weights_only)}",
        *notes,
    )


def _answer(answer: AdmittedCheckpoint | SoundCheckpoint | WeightsOnlyCheckpoint | Refused[CheckpointDefect]) -> str:
    match answer:
        case AdmittedCheckpoint(vouched=True) | SoundCheckpoint(vouched=True):
            return "admissible, because you vouch for its publication"
        case SoundCheckpoint():
            return "whole in itself; hold it against the work that is to go on: --for RECIPE or --for RUN"
        case AdmittedCheckpoint():
            return "admissible"
        case WeightsOnlyCheckpoint():
            return "admissible, for evaluation"
        case Refused(defects):
            return f"not admissible ({listed(dict.fromkeys(type(defect).__name__ for defect in defects))})"


def summary_rows(checkpoints: tuple[Inspected, ...]) -> tuple[tuple[str, ...], ...]:
    """Of each checkpoint one row: path, step, layout, publication, and whether it is good for going on and for its weights."""
    return tuple(
        (one.readback.path, *_told(one.readback), _word(one.resume), "no" if isinstance(one.weights_only, Refused) else "yes")
        for one in checkpoints
    )


def _told(readback: CheckpointReadback | CheckpointNotThere) -> tuple[str, str, str]:
    if isinstance(readback, CheckpointNotThere):
        return ("-", "-", "-")
    return (str(readback.step), readback.layout, publication_word(readback.publication))


def _word(answer: AdmittedCheckpoint | SoundCheckpoint | Refused[CheckpointDefect]) -> str:
    match answer:
        case Refused():
            return "no"
        case AdmittedCheckpoint(vouched=True) | SoundCheckpoint(vouched=True):
            return "vouched for"
        case AdmittedCheckpoint():
            return "yes"
        case SoundCheckpoint():
            return "whole"


def folder_lines(folders: tuple[FolderListed, ...]) -> tuple[str, ...]:
    """What lies beside the checkpoints of each folder and is none."""
    return tuple(f"{plain(one.path)}: no checkpoints by their names: {listed(map(plain, one.others))}" for one in folders if one.others)


def document_of(inspection: Inspection, defects_of: Mapping[int, list[JsonValue]], hashed: int) -> Document:
    """Every checkpoint, and the fields of the only one at the top where there is one; ``hashed``: the bytes that were not known before."""
    checkpoints = inspection.checkpoints
    each: list[JsonValue] = [
        {"ok": not isinstance(inspected.resume, Refused), **checkpoint_document(inspected), "defects": defects_of.get(at, [])}
        for at, inspected in enumerate(checkpoints)
    ]
    folders: list[JsonValue] = [{"path": one.path, "others": list(one.others)} for one in inspection.folders]
    top = checkpoint_document(checkpoints[0]) if len(checkpoints) == 1 else {}
    return {**top, "checkpoints": each, "folders": folders, "hashedBytes": number(hashed)}
