"""Where an attempt stands of which nothing lives, and what must have been observed before that is concluded upon.

Rules kept here:

1. A place says what is known; whether the populations that it rests on were read completely is asked apart, and everything that is missing
   is named together.
2. Grace lies between stored receipts: from the last recorded fact of a dispatch to the beginning of the reading of processes. No clock is
   asked, and a clock that was stepped back only lengthens the wait.
3. A launch of which nobody knows the outcome is only looked at. Traces of it (a dead process, an output) show that it happened.
4. What a person gave up rests on that person's word and on no observation, and what nobody can see of it keeps nothing else waiting.
5. What a person set aside and no terminal ended is like something lost, and has no grace to pass: it was seen. That nothing of it lives is
   looked at, not believed.
"""

from collections.abc import Collection, Mapping
from typing import Literal

from countermark.evidence.cut import STAGES, Ordered, Stage
from countermark.evidence.members import NotAttempted, Observed, ReadRefused
from countermark.run.attempts import AttemptKey
from countermark.run.claims import Dispatched, DispatchRefused, DispatchUnknown, creates_or_gets
from countermark.verdict.fold import Fold, perhaps_alive
from countermark.verdict.kinds import AxisNotAttempted, AxisRefused, CoordinatesUnread, GraceRunning, ObservationRequired, OrderMissing
from countermark.verdict.standing import Standing, unread_note

#: ``claimed``: never dispatched. ``redispatch``: an intent without outcome, here, by a launcher that creates or gets. ``elsewhere``: an
#: intent of another host, whose processes nobody here can see. ``pending``: started, within its grace. ``unknown``: perhaps started.
Place = Literal[
    "success",
    "ended",
    "abandoned",
    "set aside",
    "claimed",
    "redispatch",
    "elsewhere",
    "unknown",
    "pending",
    "lost",
    "refused",
]

#: What shows that a launch came to nothing: no process, and then no terminal. The first reading of terminals adds nothing to the second.
_LAUNCH: tuple[Stage, ...] = ("processes", "terminals_again")

#: The stages that must have been read completely before an attempt in this place is concluded upon.
_RESTS_ON: Mapping[Place, tuple[Stage, ...]] = {
    "success": (),
    "ended": (),
    "abandoned": (),
    "set aside": _LAUNCH,
    "claimed": (),
    "redispatch": _LAUNCH,
    "elsewhere": (),
    "unknown": _LAUNCH,
    "pending": _LAUNCH,
    "lost": _LAUNCH,
    "refused": (),
}


def place_of(fold: Fold, standing: Standing) -> Place:
    """Where a frontier attempt of which nothing lives stands."""
    if standing.terminals():
        return "success" if standing.succeeded() else "ended"
    if standing.control.superseded:
        return "abandoned"
    if standing.set_aside is not None:
        return "set aside"
    match standing.launch_result():
        case DispatchRefused():
            return "refused"
        case Dispatched():
            return _after_launch(fold, standing)
        case DispatchUnknown():
            return _after_launch(fold, standing) if standing.shown() else "unknown"
        case None:
            return _after_launch(fold, standing) if standing.shown() else _before_outcome(fold, standing)


def _before_outcome(fold: Fold, standing: Standing) -> Place:
    """An attempt of which nothing was seen, before any launcher's answer."""
    if not standing.control.intents:
        return "claimed"
    intent = standing.control.intents[-1]
    if intent.launcher == "local" and intent.host not in fold.hosts:
        seen = all(fold.complete(stage, standing.attempt) for stage in _LAUNCH)
        return _after_launch(fold, standing) if seen else "elsewhere"
    return "redispatch" if creates_or_gets(intent.launcher) else _after_launch(fold, standing)


def _after_launch(fold: Fold, standing: Standing) -> Place:
    ordered = isinstance(fold.evidence.order("processes", "terminals_again"), Ordered)
    return "lost" if ordered and _grace_passed(fold, standing) else "pending"


def _grace_passed(fold: Fold, standing: Standing) -> bool:
    """Whether the dispatch had its time to show something; traces without any recorded dispatch have nothing to wait for."""
    if not standing.control.intents:
        return standing.shown()
    waited = _waited_ms(fold, standing)
    return waited is not None and waited >= fold.grace_ms


def _waited_ms(fold: Fold, standing: Standing) -> int | None:
    """Milliseconds between the last recorded dispatch fact and the beginning of the reading of processes; None without either."""
    control = standing.control
    facts = [*(intent.recorded_ms for intent in control.intents), *(outcome.recorded_ms for outcome in control.outcomes)]
    started = fold.processes_started_ms
    return started - max(facts) if facts and started is not None else None


def grace_running(fold: Fold, places: Mapping[AttemptKey, Place]) -> tuple[GraceRunning, ...]:
    """How long each started attempt has been waited for; one that may never have been started has no grace to pass."""
    waits = ((attempt, _waited_ms(fold, fold.found[attempt])) for attempt, place in places.items() if place == "pending")
    return tuple(GraceRunning(attempt, max(waited, 0), fold.grace_ms) for attempt, waited in waits if waited is not None)


def launch_unobserved(fold: Fold, places: Mapping[AttemptKey, Place]) -> tuple[AxisNotAttempted | AxisRefused, ...]:
    """What nobody here could look at of a launch on another host."""
    elsewhere = {attempt for attempt, place in places.items() if place == "elsewhere"}
    return unobserved(fold, dict.fromkeys(_LAUNCH, elsewhere))


def needs(fold: Fold, places: Mapping[AttemptKey, Place], only_ended: bool, resumable: bool) -> ObservationRequired | None:
    """What the arms below ``ObservationRequired`` need and this sweep did not bring, or None.

    ``only_ended``: every frontier attempt ended without success and there is no candidate, so the arms that start another attempt are next;
    they rest on nothing living any more and, unless there is something to resume from, on every checkpoint having been looked at.
    """
    wanted: dict[Stage, set[AttemptKey]] = {stage: set() for stage in STAGES}
    coordinates: list[CoordinatesUnread] = []
    orders: list[OrderMissing] = []
    for attempt, place in places.items():
        for stage in _RESTS_ON[place]:
            wanted[stage].add(attempt)
        if place == "set aside" or (place == "pending" and _grace_passed(fold, fold.found[attempt])):
            orders.extend(_lost_order(fold, fold.found[attempt]))
    for standing in _uncompleted_successes(fold):
        if unread := unread_note(standing, fold.agreement(standing)):
            coordinates.extend(unread)
            wanted["manifests"].add(standing.attempt)
        if not standing.outputs:
            wanted["outputs"].add(standing.attempt)
        orders.extend(missing for missing in fold.orders.get(standing.attempt, ()) if missing.rule == "SuccessWithoutOutput")
    if only_ended:
        not_given_up = {attempt for attempt, standing in fold.found.items() if not standing.control.superseded}
        wanted["processes"] = not_given_up
        wanted["checkpoints"] = set() if resumable else not_given_up
        wanted["terminals_again"].update(attempt for attempt, place in places.items() if place == "refused")
        orders.extend(missing for standing in fold.found.values() for missing in perhaps_alive(fold, standing))
    return observation(unobserved(fold, wanted), tuple(coordinates), tuple(orders))


def _uncompleted_successes(fold: Fold) -> tuple[Standing, ...]:
    """Attempts that say success and are no candidates; whether they are decides between one candidate and several."""
    completed = {candidate.attempt for candidate in fold.candidates}
    return tuple(standing for standing in fold.found.values() if standing.attempt not in completed and standing.succeeded())


def _lost_order(fold: Fold, standing: Standing) -> tuple[OrderMissing, ...]:
    """The read order without which an attempt that shows nothing any more is not concluded to be lost."""
    answer = fold.evidence.order("processes", "terminals_again")
    blind = not all(fold.complete(stage, standing.attempt) for stage in _LAUNCH)
    if isinstance(answer, Ordered) or blind:
        return ()
    return (OrderMissing(standing.attempt, "Lost", "processes", "terminals_again", answer),)


def unobserved(fold: Fold, wanted: Mapping[Stage, Collection[AttemptKey] | None]) -> tuple[AxisNotAttempted | AxisRefused, ...]:
    """Every source of these stages that was not read completely and speaks of one of the attempts (None: of whatever attempt)."""
    missing: list[AxisNotAttempted | AxisRefused] = []
    for stage, attempts in wanted.items():
        if not fold.blind[stage] or (attempts is not None and not attempts):
            continue
        for reading in fold.evidence.readback.population(stage).readings:
            if attempts is not None and reading.about is not None and reading.about not in attempts:
                continue
            match reading.arm:
                case Observed():
                    pass
                case NotAttempted(why):
                    missing.append(AxisNotAttempted(stage, reading.source, why))
                case ReadRefused(reason, _):
                    missing.append(AxisRefused(stage, reading.source, reason))
    return tuple(missing)


def observation(
    needed: tuple[AxisNotAttempted | AxisRefused, ...], coordinates: tuple[CoordinatesUnread, ...], orders: tuple[OrderMissing, ...]
) -> ObservationRequired | None:
    """What is needed, told apart by who mends it; None when that is nothing."""
    if not needed and not coordinates and not orders:
        return None
    not_attempted = tuple(need for need in needed if isinstance(need, AxisNotAttempted))
    refused = tuple(need for need in needed if isinstance(need, AxisRefused))
    return ObservationRequired(not_attempted, refused, coordinates, orders)
