"""Dispatch, cancellation and abandonment, decided purely on the ledger as a transaction sees it; the store runs the transaction.

Rules kept here:

1. An intent needs a committed claim, and an attempt with an outcome never gets one again, whatever a launcher lists.
2. An attempt has one intent. A launcher that creates or gets may act on it once more (a local one on the intent's own host only); any other
   launcher looks.
3. Nothing starts of a run that was cancelled, nor for an attempt that was given up, set aside or followed by another.
4. Outcomes only grow in strength: refused < unknown < dispatched. "Surely nothing started" is no answer about an attempt of which another
   call said that something did, or may have.
5. Cancelling and giving up are said once; repeating them changes nothing. So does a ruling that is repeated word for word by one person.
"""

from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar, final

from countermark.run.attempts import AttemptKey, predecessor_of
from countermark.run.claims import (
    Abandonment,
    Adjudication,
    Cancellation,
    Dispatched,
    DispatchIntent,
    DispatchOutcome,
    DispatchRefused,
    DispatchUnknown,
    LaunchResult,
    OutcomeWithoutIntent,
    RunCancelled,
    RunLedger,
    SetAside,
    SuccessorExists,
    creates_or_gets,
    deciding,
)
from countermark.run.records import Stands
from countermark.values import NonEmpty, Refused

T_co = TypeVar("T_co", covariant=True)

_STRENGTH: Final = {DispatchRefused: 0, DispatchUnknown: 1, Dispatched: 2}


@final
@dataclass(frozen=True, slots=True)
class Insertable(Generic[T_co]):
    """The fact may be inserted in the same transaction, as the run's next version."""

    fact: T_co


@final
@dataclass(frozen=True, slots=True)
class AttemptNotClaimed:
    """The run has no committed claim for the attempt."""

    attempt: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class AlreadyDispatched:
    """A launcher answered for the attempt before; it is never dispatched again."""

    attempt: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class IntentElsewhere:
    """Another launcher or host said that it would dispatch the attempt; from here one can only look."""

    attempt: AttemptKey
    launcher: str
    host: str


@final
@dataclass(frozen=True, slots=True)
class IntentUsed:
    """The launcher cannot find what an earlier call started, so an intent without an outcome is only looked at."""

    attempt: AttemptKey
    launcher: str


@final
@dataclass(frozen=True, slots=True)
class AttemptAbandoned:
    """The attempt was given up; it is not started any more."""

    attempt: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class AttemptSetAside:
    """A person ruled that the attempt counts as ended without success; it is not started any more."""

    attempt: AttemptKey


DispatchDefect = (
    RunCancelled
    | AttemptNotClaimed
    | AlreadyDispatched
    | IntentElsewhere
    | IntentUsed
    | AttemptAbandoned
    | AttemptSetAside
    | SuccessorExists
)
OutcomeDefect = AttemptNotClaimed | OutcomeWithoutIntent


def admit_dispatch_intent(
    ledger: RunLedger, intent: DispatchIntent
) -> Insertable[DispatchIntent] | Stands[DispatchIntent] | Refused[DispatchDefect]:
    """Whether the launcher may be called: a new intent, the standing one of a launcher that creates or gets, or every reason against."""
    attempt = intent.attempt
    standing = tuple(earlier for earlier in ledger.intents if earlier.attempt == attempt)
    defects: list[DispatchDefect] = []
    if ledger.cancellations:
        defects.append(RunCancelled())
    if all(claim.attempt != attempt for claim in ledger.claims):
        defects.append(AttemptNotClaimed(attempt))
    if any(outcome.attempt == attempt for outcome in ledger.outcomes):
        defects.append(AlreadyDispatched(attempt))
    for earlier in standing:
        if earlier.launcher != intent.launcher or (intent.launcher == "local" and earlier.host != intent.host):
            defects.append(IntentElsewhere(attempt, earlier.launcher, earlier.host))
        elif not creates_or_gets(intent.launcher):
            defects.append(IntentUsed(attempt, earlier.launcher))
    if any(given.attempt == attempt for given in ledger.abandonments):
        defects.append(AttemptAbandoned(attempt))
    rulings = deciding(ruled for ruled in ledger.adjudications if ruled.attempt == attempt)
    if any(isinstance(ruled.ruling, SetAside) for ruled in rulings.values()):
        defects.append(AttemptSetAside(attempt))
    defects.extend(SuccessorExists(attempt, claim.attempt) for claim in ledger.claims if predecessor_of(claim.transition.cause) == attempt)
    if (found := NonEmpty.of(defects)) is not None:
        return Refused(found)
    return Stands(standing[0]) if standing else Insertable(intent)


def strength(result: LaunchResult) -> int:
    """How much an answer of a launcher says; "surely nothing started" says nothing once another call started something, or may have."""
    return _STRENGTH[type(result)]


def admit_dispatch_outcome(
    ledger: RunLedger, outcome: DispatchOutcome
) -> Insertable[DispatchOutcome] | Stands[DispatchOutcome] | Refused[OutcomeDefect]:
    """Whether the launcher's answer is news; an answer no stronger than a recorded one leaves that one standing."""
    attempt = outcome.attempt
    defects: list[OutcomeDefect] = []
    if all(claim.attempt != attempt for claim in ledger.claims):
        defects.append(AttemptNotClaimed(attempt))
    if all(intent.attempt != attempt for intent in ledger.intents):
        defects.append(OutcomeWithoutIntent(attempt))
    if (found := NonEmpty.of(defects)) is not None:
        return Refused(found)
    standing = [earlier for earlier in ledger.outcomes if earlier.attempt == attempt]
    strongest = max(standing, key=lambda earlier: strength(earlier.result), default=None)
    if strongest is not None and strength(outcome.result) <= strength(strongest.result):
        return Stands(strongest)
    return Insertable(outcome)


def admit_cancellation(ledger: RunLedger, cancellation: Cancellation) -> Insertable[Cancellation] | Stands[Cancellation]:
    """The first cancellation of a run stands for good."""
    return Stands(ledger.cancellations[0]) if ledger.cancellations else Insertable(cancellation)


def admit_abandonment(
    ledger: RunLedger, abandonment: Abandonment
) -> Insertable[Abandonment] | Stands[Abandonment] | Refused[AttemptNotClaimed]:
    """An attempt of the run can be given up once."""
    for earlier in ledger.abandonments:
        if earlier.attempt == abandonment.attempt:
            return Stands(earlier)
    if all(claim.attempt != abandonment.attempt for claim in ledger.claims):
        return Refused(NonEmpty(AttemptNotClaimed(abandonment.attempt)))
    return Insertable(abandonment)


def admit_adjudication(
    ledger: RunLedger, adjudication: Adjudication
) -> Insertable[Adjudication] | Stands[Adjudication] | Refused[AttemptNotClaimed]:
    """A ruling concerns an attempt of the run. A later one does not take an earlier one back: both stay, in the order of the ledger."""
    for earlier in ledger.adjudications:
        if replace(earlier, recorded_ms=adjudication.recorded_ms) == adjudication:
            return Stands(earlier)
    if all(claim.attempt != adjudication.attempt for claim in ledger.claims):
        return Refused(NonEmpty(AttemptNotClaimed(adjudication.attempt)))
    return Insertable(adjudication)
