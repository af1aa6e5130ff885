"""A person's ruling on a blocked run, taken on a look made now.

Rules kept here:

1. What is ruled on is to be seen: the run is blocked now, by conflicts that are about the attempt, and the ruling fits one of them. Where
   it is not so, every reason is named and nothing is recorded.
2. A ruling names just the conflicts that were seen and that it can settle, so that whatever comes to light later blocks again.
3. Nothing is taken back. A ruling is one more fact of the ledger; ruling twice in the same words on the same conflicts records it once.
"""

from collections.abc import Iterable

from countermark.app.acting import Acted
from countermark.app.ports import Ports
from countermark.app.running import Looked, look_at
from countermark.lines.rulings import (
    AttemptNotBlocked,
    AttemptNotOfRun,
    NothingToBelieve,
    RulingDefect,
    RunNotBlocked,
    SeveralBlocked,
    SourceContradictsItself,
    SourceSilent,
)
from countermark.lines.texts import counted
from countermark.run.attempts import AttemptKey
from countermark.run.claims import Adjudication, BelieveSource, Ruling, SetAside
from countermark.run.records import Recorded
from countermark.values import NonEmpty, Refused
from countermark.verdict.kinds import Blocked, Blocker, ContradictoryTerminals
from countermark.verdict.rulings import attempts_of, blocker_text, said_one_thing
from countermark.verdict.standing import outcome_text


def adjudicate(ports: Ports, run_id: str, attempt: str | None, ruling: Ruling, reason: str, by: str) -> Acted | Refused[object]:
    """Record the ruling on every conflict of the attempt that it can settle. ``attempt``: the first digits of its id, needed where
    conflicts are about several."""
    looked = look_at(ports, run_id)
    if isinstance(looked, Refused):
        return looked
    blockers = _blockers(looked)
    chosen = _chosen(looked, blockers, attempt)
    if not isinstance(chosen, AttemptKey):
        return Refused(NonEmpty(chosen, _unfit_for_all(looked, blockers, ruling)))
    about = tuple(blocker for blocker in blockers if chosen in attempts_of(blocker))
    if (found := NonEmpty.of(_unfit(looked, chosen, about, ruling))) is not None:
        return Refused(found)
    settled = tuple(blocker_text(blocker) for blocker in about if _fits(blocker, ruling))
    given = Adjudication(chosen, ruling, settled, by, reason, ports.now_ms())
    answer = ports.store.adjudicate(run_id, given)
    if isinstance(answer, Refused):
        return Refused(answer.defects)
    kinds = ", ".join(text.partition(" ")[0] for text in settled)
    said = f"ruled on {counted(len(settled), 'conflict')} of attempt {chosen.nonce.hex[:8]}: {kinds}"
    return Acted((said if isinstance(answer, Recorded) else f"{said} (as before)",))


def _blockers(looked: Looked) -> tuple[Blocker, ...]:
    verdict = looked.conclusion.verdict
    return tuple(verdict.blockers) if isinstance(verdict, Blocked) else ()


def _chosen(looked: Looked, blockers: tuple[Blocker, ...], text: str | None) -> AttemptKey | RulingDefect:
    """The attempt to rule on, or why there is none."""
    blocked = tuple(dict.fromkeys(attempt for blocker in blockers for attempt in attempts_of(blocker)))
    mine = tuple(claim.attempt for claim in looked.record.ledger.claims)
    named = tuple(attempt for attempt in mine if text is not None and attempt.nonce.hex.startswith(text))
    if text is not None and len(named) != 1:
        return AttemptNotOfRun(text, tuple(attempt.nonce.hex for attempt in mine))
    if not blocked:
        return RunNotBlocked(type(looked.conclusion.verdict).__name__)
    if text is None:
        return blocked[0] if len(blocked) == 1 else SeveralBlocked(blocked)
    return named[0] if named[0] in blocked else AttemptNotBlocked(named[0], blocked)


def _unfit_for_all(looked: Looked, blockers: tuple[Blocker, ...], ruling: Ruling) -> tuple[RulingDefect, ...]:
    """What else speaks against the ruling where no attempt could be told: that it would fit none of those that are blocked."""
    blocked = tuple(dict.fromkeys(attempt for blocker in blockers for attempt in attempts_of(blocker)))
    each = [_unfit(looked, attempt, tuple(one for one in blockers if attempt in attempts_of(one)), ruling) for attempt in blocked]
    return tuple(defect for found in each for defect in found) if all(each) else ()


def _unfit(looked: Looked, attempt: AttemptKey, blockers: tuple[Blocker, ...], ruling: Ruling) -> tuple[RulingDefect, ...]:
    """What keeps the ruling from settling any of the attempt's conflicts."""
    match ruling:
        case SetAside():
            return ()
        case BelieveSource(source):
            return _unbelievable(looked, attempt, blockers, source)


def _unbelievable(looked: Looked, attempt: AttemptKey, blockers: tuple[Blocker, ...], source: str) -> tuple[RulingDefect, ...]:
    reads = looked.sweep.reads
    both = (reads.terminals, reads.terminals_again)
    terminals = tuple(one for read in both for one in read.population.members() if one.attempt == attempt)
    defects: list[RulingDefect] = []
    if not any(isinstance(blocker, ContradictoryTerminals) for blocker in blockers):
        defects.append(NothingToBelieve(attempt, source, tuple(type(blocker).__name__ for blocker in blockers)))
    said = _sorted(outcome_text(one.outcome) for one in terminals if one.source == source)
    if not said:
        defects.append(SourceSilent(attempt, source, _sorted(one.source for one in terminals)))
    elif not said_one_thing(terminals, source):
        defects.append(SourceContradictsItself(attempt, source, said))
    return tuple(defects)


def _sorted(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(texts)))


def _fits(blocker: Blocker, ruling: Ruling) -> bool:
    """Whether a ruling of this kind can settle a conflict of this kind."""
    return isinstance(ruling, SetAside) or isinstance(blocker, ContradictoryTerminals)
