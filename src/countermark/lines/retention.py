"""What becomes of each checkpoint of a folder, as a document, as rows and as lines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from countermark.lines.sentence import short
from countermark.lines.texts import Document, JsonValue, counted, listed, number, plain, sized
from countermark.run.checkpoint import AdmittedCheckpoint
from countermark.run.retention import AmongTheLast, BegunAt, Fate, Goes, Held, NotAdmitted, OnlyAdmitted, RetentionPlan, Surplus, Torn


@final
@dataclass(frozen=True, slots=True)
class Pruning:
    """A plan for the checkpoints in ``path`` that keeps ``keep``; the leftovers there by name, each with what is known of it (``dead``,
    ``live``, ``unknown``); what else lies there; and, where the plan was carried out, the names that went (else None)."""

    path: str
    keep: int
    plan: RetentionPlan
    leftovers: Mapping[str, str]
    others: tuple[str, ...]
    gone: tuple[str, ...] | None = None


def fate_word(pruning: Pruning, held: Held, fate: Fate) -> str:
    """``stays``, ``would go`` or ``went``."""
    if not isinstance(fate, Goes):
        return "stays"
    return "would go" if pruning.gone is None else "went" if held.name in pruning.gone else "stays"


def fate_why(fate: Fate) -> str:
    """Why it stays or goes, in one phrase."""
    match fate:
        case AmongTheLast(place):
            return "the newest admitted" if place == 1 else f"number {place} of the last admitted"
        case OnlyAdmitted():
            return "the only admitted checkpoint of its computation here"
        case BegunAt(attempt):
            return f"attempt {short(attempt)} begins at it and has not ended"
        case NotAdmitted(defects):
            why = listed(dict.fromkeys(type(defect).__name__ for defect in defects)) or "held against no work"
            return f"not admitted, so it counts for nothing ({why})"
        case Surplus(successor):
            return f"admitted, and so are enough newer ones ({plain(successor)} is next)"
        case Torn(successor, defects):
            why = listed(dict.fromkeys(type(defect).__name__ for defect in defects))
            return f"torn ({why}), and {plain(successor)} is newer and admitted"


def pruning_rows(pruning: Pruning) -> tuple[tuple[str, str, str, str], ...]:
    """Checkpoint, size, what becomes of it, and why."""
    return tuple((plain(held.name), sized(held.bytes), fate_word(pruning, held, fate), fate_why(fate)) for held, fate in pruning.plan.fates)


def pruning_lines(pruning: Pruning) -> tuple[str, ...]:
    """What it comes to, and what else lies there."""
    going, total = len(pruning.plan.going), counted(len(pruning.plan.fates), "checkpoint")
    if pruning.gone is not None:
        first = f"{len(pruning.gone)} of {total} went, {sized(pruning.plan.bytes)}"
    elif going or "dead" in pruning.leftovers.values():
        first = f"{going} of {total} would go, {sized(pruning.plan.bytes)}; nothing was deleted: --yes does it"
    else:
        first = f"none of {total} would go; nothing was deleted"
    said = {
        "dead": "left by a process that died" + ("; --yes takes it away" if pruning.gone is None else "; taken away"),
        "live": "being written at this moment; left alone",
        "unknown": "nobody can tell here whether somebody still writes it; delete it by hand when nobody does",
    }
    leftovers = tuple(f"leftover {plain(name)}: {said[state]}" for name, state in pruning.leftovers.items())
    others = (f"no checkpoints, left alone: {listed(map(plain, pruning.others))}",) if pruning.others else ()
    return (first, *leftovers, *others)


def pruning_document(pruning: Pruning, defects_of: Mapping[str, list[JsonValue]]) -> Document:
    """The whole of it. ``bytes`` is what goes."""
    checkpoints: list[JsonValue] = [
        {
            "name": held.name,
            "path": held.readback.path,
            "step": number(held.step),
            "bytes": number(held.bytes),
            "admitted": isinstance(held.answer, AdmittedCheckpoint),
            "fate": fate_word(pruning, held, fate),
            "why": type(fate).__name__,
            "message": fate_why(fate),
            "defects": defects_of.get(held.name, []),
        }
        for held, fate in pruning.plan.fates
    ]
    leftovers: list[JsonValue] = [{"name": name, "state": state} for name, state in pruning.leftovers.items()]
    return {
        "path": pruning.path,
        "keep": number(pruning.keep),
        "dryRun": pruning.gone is None,
        "bytes": number(pruning.plan.bytes),
        "checkpoints": checkpoints,
        "leftovers": leftovers,
        "others": list(pruning.others),
    }
