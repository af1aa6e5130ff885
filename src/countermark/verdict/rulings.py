"""What persons ruled on blockers: how a blocker is named, which ruling decides on it, and what is settled by that.

Rules kept here:

1. A blocker is named by a text that is made of everything it says. Another fact makes another text, so a ruling settles nothing that its
   maker did not see.
2. Of several rulings on one blocker the last one in the order of the ledger decides. The earlier ones are named and decide nothing.
3. A ruling stands whether or not its blocker is to be seen today. A source that does not answer any more, or a process that was stopped
   since, takes no word back: what was set aside never becomes the result, and what was not believed is not believed for want of the other.
4. Believing a source settles contradictory terminals and nothing else, and only where that source said one thing among them.
5. A place that several attempts wrote to is settled when all of them but at most one are set aside for it: then what lies there has one
   possible writer, and a person's word for it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, final

from countermark.evidence.members import Outcome, Terminal
from countermark.run.attempts import AttemptKey
from countermark.run.claims import Adjudication, BelieveSource, SetAside, deciding
from countermark.verdict.kinds import (
    AttemptWithoutExecutionClaim,
    Blocker,
    BlockerAdjudicated,
    ContradictoryTerminals,
    EffectiveManifestDiverges,
    EvidenceOnRefusedDispatch,
    LiveProcessAfterTerminal,
    RulingEffect,
    SeveralExecutions,
    SeveralLiveProcesses,
    SeveralOutputs,
    SharedLocation,
    SuccessWithoutOutput,
)


def attempts_of(blocker: Blocker) -> tuple[AttemptKey, ...]:
    """The attempts that a blocker is about."""
    return blocker.attempts if isinstance(blocker, SharedLocation) else (blocker.attempt,)


def blocker_text(blocker: Blocker) -> str:
    """The blocker's name: its kind, the nonces of its attempts and what it found, as JSON in ASCII. No two blockers of a run share one."""
    nonces = ",".join(attempt.nonce.hex for attempt in attempts_of(blocker))
    return " ".join((type(blocker).__name__, nonces, *_found(blocker)))


def _found(blocker: Blocker) -> tuple[str, ...]:
    match blocker:
        case LiveProcessAfterTerminal() | SuccessWithoutOutput() | AttemptWithoutExecutionClaim():
            return ()
        case ContradictoryTerminals(_, sources):
            return (json.dumps(sources),)
        case SeveralLiveProcesses(_, executions) | SeveralExecutions(_, executions):
            return (json.dumps(executions),)
        case SeveralOutputs(_, digests):
            return (json.dumps(digests),)
        case EffectiveManifestDiverges(_, coordinates):
            return (json.dumps(coordinates),)
        case EvidenceOnRefusedDispatch(_, stages):
            return (json.dumps(stages),)
        case SharedLocation(path, _):
            return (json.dumps(path),)


@final
@dataclass(frozen=True, slots=True)
class Rulings:
    """What persons ruled on one attempt, in the order of the ledger, and of each blocker's text the ruling that decides."""

    given: tuple[Adjudication, ...]
    deciding: Mapping[str, Adjudication]

    @classmethod
    def of(cls, given: tuple[Adjudication, ...]) -> "Rulings":
        return cls(given, deciding(given))

    def set_aside(self) -> Adjudication | None:
        """The last ruling that sets the attempt aside and still decides on some blocker; None where there is none."""
        return next((ruled for ruled in reversed(self.given) if isinstance(ruled.ruling, SetAside) and self._decides(ruled)), None)

    def believed(self, terminals: Iterable[Terminal], contradictions: tuple[ContradictoryTerminals, ...]) -> str | None:
        """The source whose terminals stand alone; None where all stand.

        Where terminals contradict each other it is the one that the ruling on just this contradiction believes; where they do not, the one
        that was believed last.
        """
        for blocker in contradictions:
            ruled = self.deciding.get(blocker_text(blocker))
            source = None if ruled is None else _source(ruled)
            return source if source is not None and said_one_thing(terminals, source) else None
        return next((_source(ruled) for ruled in reversed(self.given) if _source(ruled) is not None and self._decides(ruled)), None)

    def settles(self, blocker: Blocker) -> bool:
        """Whether the ruling that decides on a blocker of this attempt alone settles it. A believed source's contradiction is asked of
        ``believed``, which knows what that source said."""
        ruled = self.deciding.get(blocker_text(blocker)) if self.given else None
        return ruled is not None and isinstance(ruled.ruling, SetAside)

    def _decides(self, ruled: Adjudication) -> bool:
        return any(self.deciding[blocker] is ruled for blocker in ruled.blockers)

    def notes(self, seen: Mapping[str, bool]) -> tuple[BlockerAdjudicated, ...]:
        """Every ruling on every blocker, in the order of the ledger. ``seen``: the texts of the blockers that are to be seen now, and
        whether each is settled."""
        return tuple(
            BlockerAdjudicated(ruled.attempt, blocker, ruled.ruling, ruled.by, ruled.reason, self._effect(ruled, blocker, seen))
            for ruled in self.given
            for blocker in ruled.blockers
        )

    def _effect(self, ruled: Adjudication, blocker: str, seen: Mapping[str, bool]) -> RulingEffect:
        if self.deciding[blocker] is not ruled:
            return "overruled"
        settled = seen.get(blocker)
        return "not seen" if settled is None else "settled" if settled else "not enough"


NOTHING_RULED: Final = Rulings((), {})


def _source(ruled: Adjudication) -> str | None:
    return ruled.ruling.source if isinstance(ruled.ruling, BelieveSource) else None


def said_one_thing(terminals: Iterable[Terminal], source: str) -> bool:
    """Whether a source said something among these terminals, and nothing beside it: only then can it be believed."""
    said: set[Outcome] = {terminal.outcome for terminal in terminals if terminal.source == source}
    return len(said) == 1


def location_settled(blocker: SharedLocation, rulings: Mapping[AttemptKey, Rulings]) -> bool:
    """Whether all attempts that wrote to the place, but at most one, were set aside for it."""
    return sum(not rulings.get(attempt, NOTHING_RULED).settles(blocker) for attempt in blocker.attempts) <= 1
