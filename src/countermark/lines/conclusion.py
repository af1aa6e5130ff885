"""A conclusion as lines for a person and as a document for a program.

Rules kept here:

1. The first line is the verdict with its populations, the second what to do next; then each blocker with its remedy, why the run has not
   converged yet, and what is worth naming beside it.
2. Every arm of ``Verdict`` names its next step, and every member of every population is named; nothing is summed up away.
3. The same conclusion gives the same lines and the same document, byte for byte: nothing else is looked at, no clock and no terminal.
4. What came from outside is escaped before it stands in a line. Documents carry it as it was.
"""

import re
from collections.abc import Iterable
from typing import Final

from countermark.lines.defects import defect_documents, document_value, sentence
from countermark.lines.texts import Document, JsonValue, counted, listed, number, plain
from countermark.run.attempts import AttemptKey
from countermark.run.checkpoint import AdmittedCheckpoint
from countermark.verdict.kinds import (
    Blocked,
    Blocker,
    Cancelled,
    CompletionCandidate,
    Conclusion,
    Converged,
    CoordinatesUnread,
    ExecutionRequired,
    InProgress,
    LaunchDispatchRequired,
    LaunchPending,
    Lost,
    NotBarred,
    ObservationRequired,
    ResumeAvailable,
    RetryRequired,
    SeveralCandidates,
    StopRequired,
    Verdict,
    WhyNot,
)
from countermark.verdict.rulings import attempts_of

_ID_DIGITS: Final = 8
#: A path is shown whole, since it is to be used.
_PATH_LENGTH_MAX: Final = 4096
_RUN: Final = re.compile(r"\bRUN\b")


def conclusion_lines(conclusion: Conclusion, run: str = "RUN") -> tuple[str, ...]:
    """The conclusion for a person. ``run`` is the run's id as commands take it."""
    verdict = conclusion.verdict
    blockers = verdict.blockers if isinstance(verdict, Blocked) else ()
    unread = verdict.coordinates_unread if isinstance(verdict, ObservationRequired) else ()
    reason = "not concluded" if isinstance(verdict, Converged | SeveralCandidates) else "not yet"
    return (
        f"{type(verdict).__name__}: {_said(verdict, conclusion.why_not)}",
        f"next: {_of_run(_next(verdict), run)}",
        *(f"blocked: {type(blocker).__name__}: {_told(blocker, run)}" for blocker in blockers),
        *_unverified(unread),
        *(f"{reason}: {sentence(why).message}" for why in conclusion.why_not if why not in unread),
        *(f"note: {sentence(note).message}" for note in conclusion.notes),
    )


def conclusion_text(conclusion: Conclusion) -> bytes:
    """The conclusion as a store keeps it and a replay compares it: its lines, with RUN for the run's id."""
    return "\n".join(conclusion_lines(conclusion)).encode() + b"\n"


def _told(blocker: Blocker, run: str) -> str:
    told = sentence(blocker)
    return f"{told.message}; {_of_run(told.remedy, run)}"


def _of_run(advice: str, run: str) -> str:
    """Advice, which holds nothing from outside, with the run's id in its commands."""
    return _RUN.sub(lambda _: run, advice)


def conclusion_document(conclusion: Conclusion) -> Document:
    """The conclusion for a program: the verdict's arm, its populations, its blockers, why not yet, and what is named beside it."""
    verdict = conclusion.verdict
    return {
        "verdict": type(verdict).__name__,
        "members": _members(verdict),
        "blockers": defect_documents(verdict.blockers if isinstance(verdict, Blocked) else ()),
        "whyNot": defect_documents(conclusion.why_not),
        "notes": defect_documents(conclusion.notes),
    }


def _name(attempt: AttemptKey) -> str:
    return attempt.nonce.hex[:_ID_DIGITS]


def _names(attempts: Iterable[AttemptKey]) -> str:
    named = tuple(map(_name, attempts))
    return ("attempt " if len(named) == 1 else "attempts ") + listed(named)


def _said(verdict: Verdict, why_not: Iterable[WhyNot]) -> str:
    """The verdict's populations in one sentence."""
    match verdict:
        case Blocked(blockers):
            return f"{counted(len(blockers), 'conflict')} of {_names(_of_blockers(blockers))}"
        case StopRequired(attempts):
            unbarred = tuple(why.attempt for why in why_not if isinstance(why, NotBarred))
            living = tuple(attempt for attempt in attempts if attempt not in unbarred)
            said = (f"{_names(living)} cancelled, superseded or set aside, and still alive",) if living else ()
            return "; ".join((*said, *((f"{_names(unbarred)} cancelled, and free to begin late",) if unbarred else ())))
        case Cancelled():
            return "the run was cancelled, and nothing of it lives"
        case InProgress(attempts):
            return f"{_names(attempts)} under way"
        case ObservationRequired():
            return f"a conclusion needs what was not observed: {_missing(verdict)}"
        case LaunchDispatchRequired(attempts):
            return f"{_names(attempts)} claimed and to be dispatched"
        case LaunchPending(attempts):
            return f"{_names(attempts)} dispatched, or perhaps dispatched, and nothing to be seen yet"
        case Lost(attempts):
            return f"{_names(attempts)} lost: neither a process nor a terminal is to be found, or a person gave it up"
        case SeveralCandidates(candidates, equal):
            same = "with equal weights" if equal else "with different weights"
            return f"{counted(len(candidates), 'attempt')} completed {same}: {listed(map(_candidate, candidates))}"
        case Converged(candidate):
            return _candidate(candidate)
        case ResumeAvailable(attempt, checkpoints):
            return f"{_names((attempt,))} ended without success and can be followed from {listed(map(_checkpoint, checkpoints))}"
        case RetryRequired(attempts):
            return f"{_names(attempts)} ended without success, and there is nothing to resume from"
        case ExecutionRequired():
            return "nothing was attempted and nothing claimed, as a complete look shows"


def _next(verdict: Verdict) -> str:
    """What a person does about the verdict."""
    match verdict:
        case Blocked():
            return (
                "look at what each source says (countermark evidence RUN); nothing is started until that is mended, or a person has ruled "
                "on it (countermark adjudicate RUN)"
            )
        case StopRequired():
            return "stop it: countermark reconcile RUN --act"
        case Cancelled():
            return "nothing; to ask for the work again, give the request another name: countermark run RECIPE --request NAME -- COMMAND"
        case InProgress():
            return "wait for it: countermark reconcile RUN --watch"
        case ObservationRequired():
            return _mend(verdict)
        case LaunchDispatchRequired():
            return "dispatch it: countermark reconcile RUN --act"
        case LaunchPending():
            return "only look: countermark reconcile RUN --watch"
        case Lost():
            return "fence it and start another attempt: countermark reconcile RUN --act"
        case SeveralCandidates():
            return "choose one; see what each was made from: countermark evidence RUN"
        case Converged():
            return "nothing; the output is there to be used: countermark weights root PATH reads it back"
        case ResumeAvailable():
            return "go on from the newest checkpoint: countermark resume RUN, or countermark reconcile RUN --act"
        case RetryRequired():
            return "see why (countermark attempts RUN names its folder with the log), then countermark reconcile RUN --act --retries 1"
        case ExecutionRequired():
            return "start it: countermark reconcile RUN --act"


def _missing(needed: ObservationRequired) -> str:
    unread = sum(len(found.coordinates) for found in needed.coordinates_unread)
    parts = (
        (len(needed.not_attempted), "source not looked at", "sources not looked at"),
        (len(needed.refused), "source without a reading", "sources without a reading"),
        (unread, "coordinate unread", "coordinates unread"),
        (len(needed.orders_missing), "read order missing", "read orders missing"),
    )
    return listed(counted(count, one, many) for count, one, many in parts if count)


def _mend(needed: ObservationRequired) -> str:
    """Who mends it, told apart by population."""
    steps = (
        (needed.refused, "mend what gave no reading"),
        (needed.not_attempted, "look from where it can be seen"),
        (needed.coordinates_unread, "let COMMAND use countermark.train, whose callback writes what really ran"),
    )
    wanted = [step for population, step in steps if population]
    return "; ".join((*wanted, "then look again: countermark reconcile RUN" if wanted else "look again: countermark reconcile RUN"))


def _unverified(unread: tuple[CoordinatesUnread, ...]) -> tuple[str, ...]:
    """Successes that nobody can hold against what was asked for, with their coordinates by the reason why they were not read."""
    lines: list[str] = []
    for one in unread:
        by_reason: dict[str, list[str]] = {}
        for said in one.coordinates:
            coordinate, _, reason = said.partition(": ")
            by_reason.setdefault(reason, []).append(coordinate)
        groups = (f"{', '.join(coordinates)} ({plain(reason)})" for reason, coordinates in by_reason.items())
        lines.append(f"attempt {_name(one.attempt)} succeeded, unverified: coordinates {'; '.join(groups)}")
    return tuple(lines)


def _candidate(candidate: CompletionCandidate) -> str:
    return f"attempt {_name(candidate.attempt)} with {plain(candidate.path, _PATH_LENGTH_MAX)} ({candidate.output.spell()})"


def _checkpoint(checkpoint: AdmittedCheckpoint) -> str:
    return f"step {checkpoint.step} ({plain(checkpoint.path, _PATH_LENGTH_MAX)})"


def _of_blockers(blockers: Iterable[Blocker]) -> tuple[AttemptKey, ...]:
    """The attempts that the blockers are about, each once, in the order in which they come up."""
    found: dict[AttemptKey, None] = {}
    for blocker in blockers:
        found.update(dict.fromkeys(attempts_of(blocker)))
    return tuple(found)


def _members(verdict: Verdict) -> dict[str, JsonValue]:
    """The verdict's populations, attempts by their whole nonces."""
    match verdict:
        case Cancelled() | ExecutionRequired():
            return {}
        case Blocked(blockers):
            return {"attempts": document_value(_of_blockers(blockers))}
        case (
            StopRequired(attempts)
            | InProgress(attempts)
            | LaunchDispatchRequired(attempts)
            | LaunchPending(attempts)
            | Lost(attempts)
            | RetryRequired(attempts)
        ):
            return {"attempts": document_value(attempts)}
        case ObservationRequired(not_attempted, refused, coordinates, orders):
            return {
                "notAttempted": defect_documents(not_attempted),
                "refused": defect_documents(refused),
                "coordinatesUnread": defect_documents(coordinates),
                "ordersMissing": defect_documents(orders),
            }
        case Converged(candidate):
            return {"candidate": _candidate_document(candidate)}
        case SeveralCandidates(candidates, equal):
            return {"candidates": [_candidate_document(candidate) for candidate in candidates], "equalWeights": equal}
        case ResumeAvailable(attempt, checkpoints):
            return {"attempt": attempt.nonce.hex, "checkpoints": [_checkpoint_document(checkpoint) for checkpoint in checkpoints]}


def _candidate_document(candidate: CompletionCandidate) -> Document:
    return {"attempt": candidate.attempt.nonce.hex, "output": candidate.output.spell(), "path": candidate.path}


def _checkpoint_document(checkpoint: AdmittedCheckpoint) -> Document:
    return {
        "attempt": checkpoint.attempt,
        "step": number(checkpoint.step),
        "path": checkpoint.path,
        "digest": checkpoint.digest.spell(),
        "layout": checkpoint.layout,
    }
