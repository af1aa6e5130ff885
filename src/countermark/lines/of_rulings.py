"""Sentences for what keeps a ruling from being recorded and a replay from saying what was said."""

from collections.abc import Iterable

from countermark.lines.of_runs import name
from countermark.lines.rulings import (
    AttemptNotBlocked,
    AttemptNotOfRun,
    NothingToBelieve,
    RulingDefect,
    RunNotBlocked,
    SeveralBlocked,
    SourceContradictsItself,
    SourceSilent,
    SweepOfAnotherRun,
    VerdictDiffers,
)
from countermark.lines.sentence import Sentence, quoted, short
from countermark.lines.texts import counted, either, listed, plain
from countermark.run.attempts import AttemptKey

_ASIDE = "or let the attempt count as ended without success: countermark adjudicate RUN --set-aside --reason TEXT"


def ruling_sentence(defect: RulingDefect) -> Sentence:
    match defect:
        case RunNotBlocked(verdict):
            return Sentence(
                f"there is nothing to rule on: the run is {plain(verdict)}", "see why, and what is next: countermark status RUN"
            )
        case AttemptNotOfRun(text, attempts):
            named = listed((plain(short(attempt)) for attempt in attempts), "it has none yet")
            return Sentence(f"{quoted(text)} names no single attempt of the run: {named}", "write more digits: countermark attempts RUN")
        case AttemptNotBlocked(attempt, blocked):
            return Sentence(
                f"no conflict is about {name(attempt)}, only about {_names(blocked)}", f"name {_either(blocked)} with --attempt"
            )
        case SeveralBlocked(attempts):
            return Sentence(
                f"conflicts are about {_names(attempts)}, and a ruling is on one of them",
                f"name {_either(attempts)} with --attempt, and call again for the others",
            )
        case NothingToBelieve(attempt, source, blockers):
            return Sentence(
                f"believing {quoted(source)} would settle nothing: no terminals of {name(attempt)} contradict each other, and what blocks "
                f"is {listed(map(plain, blockers))}",
                f"mend that (countermark evidence RUN), {_ASIDE}",
            )
        case SourceSilent(attempt, source, sources):
            return Sentence(
                f"{quoted(source)} said nothing about how {name(attempt)} ended",
                f"believe {either(map(quoted, sources))}, {_ASIDE}",
            )
        case SourceContradictsItself(attempt, source, said):
            return Sentence(
                f"{quoted(source)} said {counted(len(said), 'thing')} about how {name(attempt)} ended: {listed(map(plain, said))}",
                f"believe another source, {_ASIDE}",
            )
        case SweepOfAnotherRun(sweep, of, run):
            return Sentence(
                f"sweep {plain(short(sweep))} looked at run {plain(short(of))}, not at {plain(short(run))}",
                f"replay it there: countermark reconcile {plain(short(of))} --from-sweep {plain(short(sweep))}",
            )
        case VerdictDiffers(sweep, stored, replayed):
            return Sentence(
                f"sweep {plain(short(sweep))} gives another text now ({counted(len(replayed), 'character')}) than was stored with it "
                f"({counted(len(stored), 'character')})",
                "compare the two; a version that words a sentence anew says so in its changelog, anything else is a fault to report",
            )


def _names(attempts: Iterable[AttemptKey]) -> str:
    return listed(map(name, attempts))


def _either(attempts: Iterable[AttemptKey]) -> str:
    return either(short(attempt.nonce.hex) for attempt in attempts)
