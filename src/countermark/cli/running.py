"""What the commands about one run share: opening the store, finding the run, and answering with a conclusion."""

from typing import TYPE_CHECKING, Final

from countermark.cli.answers import DONE, REFUSED, Answer, Lines
from countermark.cli.failures import CallRefused
from countermark.cli.progress import say
from countermark.lines.conclusion import conclusion_document, conclusion_lines
from countermark.lines.defects import AnyDefect, known
from countermark.lines.runs import freshness_line, sweep_document
from countermark.lines.sentence import short
from countermark.lines.texts import Document, plain
from countermark.values import Refused
from countermark.verdict.kinds import Blocked, Cancelled, Conclusion, Verdict

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from countermark.app.ports import Ports
    from countermark.app.running import Looked
    from countermark.cli.settings import Settings
    from countermark.run.records import RunRecord

_NEXT: Final = "see each axis: countermark evidence {run} · the attempts: countermark attempts {run}"


def opened(chosen: "Settings", create: bool = False, acts: bool = False, patience_s: float = 0.0) -> "AbstractContextManager[Ports]":
    """The store with its launcher and observer; only a command that records creates one. ``acts``: it may dispatch. ``patience_s``: how
    long it waits for a store that is out of reach for a moment, and says so."""
    from countermark.app import ports

    return ports.opened(
        chosen.store,
        create=create,
        grace_s=chosen.grace_s,
        stop_grace_s=chosen.stop_grace_s,
        poll_s=chosen.watch_interval_s,
        url=chosen.database,
        acts=acts,
        patience_s=patience_s,
        told=say,
    )


def found(ports: "Ports", run: str) -> "RunRecord":
    """The run that an id or a prefix of one names."""
    from countermark.app.running import find_run

    record = find_run(ports, run)
    if isinstance(record, Refused):
        raise CallRefused(known(record.defects))
    return record


def concluded(looked: "Looked", said: tuple[str, ...], warnings: tuple[AnyDefect, ...], must: "tuple[type[Verdict], ...]" = ()) -> Answer:
    """The answer with a run's verdict. It is a refusal when the run is blocked, or, where it must be one of those of ``must``, is none.

    Of a run that was to end for good, a conflict of what its attempts left says nothing: it is shown, and it is no refusal.
    """
    from countermark.app.running import nothing_lives

    record, conclusion = looked.record, looked.conclusion
    run = record.run_id
    over = Cancelled in must and isinstance(conclusion.verdict, Blocked) and nothing_lives(looked)
    defects = () if over else against(conclusion, must)
    refused = not over and (isinstance(conclusion.verdict, Blocked) or (bool(must) and not isinstance(conclusion.verdict, must)))
    document: Document = {
        "run": run,
        "name": record.context.name,
        "workKey": record.ledger.desired.demand.work.spell(),
        **conclusion_document(conclusion),
        "acted": list(said),
        "sweep": sweep_document(looked.sweep_id, looked.sweep.reads, looked.sweep.cut),
    }
    lines = (
        f"run {short(run)}  {plain(record.context.name)}  {record.ledger.desired.demand.work.spell()}",
        *conclusion_lines(conclusion, short(run)),
        freshness_line(looked.sweep.reads),
        _NEXT.format(run=short(run)),
    )
    name = type(conclusion.verdict).__name__
    lacks = "something of it may still live" if Cancelled in must else "it has not converged"
    said_why = f"run {short(run)} is {name}: {'it needs a person' if isinstance(conclusion.verdict, Blocked) else lacks}"
    return Answer(document, (Lines(lines),), defects, warnings, REFUSED if refused else DONE, short(run), said_why if refused else None)


def against(conclusion: Conclusion, must: "tuple[type[Verdict], ...]") -> tuple[AnyDefect, ...]:
    """What speaks against a conclusion: its blockers, or all that keeps the run from what it must be."""
    verdict = conclusion.verdict
    if isinstance(verdict, Blocked):
        return tuple(verdict.blockers)
    if not must or isinstance(verdict, must):
        return ()
    return conclusion.why_not
