"""Attempts of one demand, their causes, and the graph that they form.

Rules kept here:

1. Every attempt names its cause. A root cause hangs on the demand; any other names a predecessor, which it never mutates.
2. The graph is admitted or refused with *every* defect; members are unordered, so a duplicated identity is a defect of each occurrence.
3. Rootedness is a fixpoint from the roots outwards: a ring of attempts that name each other, and a chain rooted in another demand, are
   unrooted. Each pass costs O(attempts + edges), without recursion.
4. Membership is decided against the admitted graph only.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Final, Self, final

from countermark.recipe import WorkKey
from countermark.run.demand import DemandId, Subject
from countermark.values import NonEmpty, Refused, Sha256, Unreadable

_SEAL: Final = object()
#: What stands for the place of a predecessor: where it is not among the attempts, and where the cause names none.
_ABSENT: Final = -1
_NONE: Final = -2
_NONCE = re.compile(r"[0-9a-f]{32}", re.ASCII)


@final
@dataclass(frozen=True, slots=True, order=True)
class Nonce:
    """128 random bits in hexadecimal, handed in by the caller: what tells the attempts at one work apart."""

    hex: str

    def __post_init__(self) -> None:
        if not _NONCE.fullmatch(self.hex):
            raise ValueError("a nonce is 32 lower-case hexadecimal digits")

    @classmethod
    def read(cls, raw: object) -> Self | Unreadable:
        if not isinstance(raw, str) or not _NONCE.fullmatch(raw):
            return Unreadable("an attempt is named by 32 lower-case hexadecimal digits")
        return cls(raw)

    def spell(self) -> str:
        return self.hex


@final
@dataclass(frozen=True, slots=True)
class AttemptKey:
    """One attempt at one work; an equal nonce under another principal is another attempt."""

    work: WorkKey
    nonce: Nonce

    def __hash__(self) -> int:
        # Graphs and sweeps look a million of these up. Nonces are random and a text keeps its hash, so the work adds cost and nothing else.
        return hash(self.nonce.hex)


@final
@dataclass(frozen=True, slots=True)
class CheckpointIdentity:
    """Which checkpoint a resume goes on from: its optimizer step and the digest over its components."""

    step: int
    digest: Sha256


@final
@dataclass(frozen=True, slots=True)
class InitialAttempt:
    """The first attempt that a demand causes."""


@final
@dataclass(frozen=True, slots=True)
class RequestedReexecution:
    """A person asked for the same work once more, under a request name of its own."""

    request: str


@final
@dataclass(frozen=True, slots=True)
class InfrastructureRetry:
    """The predecessor ended without success and nothing can be resumed."""

    predecessor: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class CapabilityEscalation:
    """The predecessor lacked a capability (memory, time limit) that this attempt is given."""

    predecessor: AttemptKey
    capability: str


@final
@dataclass(frozen=True, slots=True)
class Relaunch:
    """The predecessor was lost: dispatched, and neither a process nor a terminal is to be found. It begins at ``checkpoint`` where one of
    the run's was admitted, else at the base artifact."""

    predecessor: AttemptKey
    lost: str
    checkpoint: CheckpointIdentity | None = None


@final
@dataclass(frozen=True, slots=True)
class Resume:
    """The predecessor ended without success, and an admitted checkpoint of this run is gone on from."""

    predecessor: AttemptKey
    checkpoint: CheckpointIdentity


Cause = InitialAttempt | RequestedReexecution | InfrastructureRetry | CapabilityEscalation | Relaunch | Resume


def checkpoint_of(cause: Cause) -> CheckpointIdentity | None:
    """The checkpoint that an attempt with this cause begins at, or None where it begins at the base artifact."""
    match cause:
        case InitialAttempt() | RequestedReexecution() | InfrastructureRetry() | CapabilityEscalation():
            return None
        case Relaunch() | Resume():
            return cause.checkpoint


def predecessor_of(cause: Cause) -> AttemptKey | None:
    """The attempt that a cause follows, or None for the causes that root in the demand."""
    match cause:
        case InitialAttempt() | RequestedReexecution():
            return None
        case InfrastructureRetry() | CapabilityEscalation() | Relaunch() | Resume():
            return cause.predecessor


@final
@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a demand's work, and why it was made."""

    key: AttemptKey
    demand: DemandId
    cause: Cause


@final
@dataclass(frozen=True, slots=True)
class ForeignWork:
    """The attempt is at another work (or the same digest under another principal)."""

    attempt: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class AbsentPredecessor:
    """The attempt names a predecessor that is not among the attempts."""

    attempt: AttemptKey
    predecessor: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class DuplicateIdentity:
    """The attempt's identity occurs more than once; every occurrence carries this defect."""

    attempt: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class Unrooted:
    """No chain of predecessors leads from the attempt to a root of this demand."""

    attempt: AttemptKey


AttemptGraphDefect = ForeignWork | AbsentPredecessor | DuplicateIdentity | Unrooted


@final
@dataclass(frozen=True, slots=True)
class AttemptGraph:
    """The admitted attempts of one subject by key; minted by ``admit_attempt_graph`` alone."""

    subject: Subject
    attempts: Mapping[AttemptKey, Attempt]
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise ValueError("an attempt graph is minted by admit_attempt_graph")

    def frontier(self) -> tuple[AttemptKey, ...]:
        """The attempts without a successor, in the order in which they were handed in."""
        followed = {predecessor_of(attempt.cause) for attempt in self.attempts.values()}
        return tuple(key for key in self.attempts if key not in followed)


def admit_attempt_graph(subject: Subject, attempts: Iterable[Attempt]) -> AttemptGraph | Refused[AttemptGraphDefect]:
    """The graph of these attempts, or every defect that any of them has.

    ``attempts`` may come in any order and number; the cost is O(attempts + edges).
    """
    members = tuple(attempts)
    work = subject.work
    # Members may lie anywhere in memory, and fetching them costs more than the rest: each is visited once, and places stand for keys from
    # there on. At the subject's own work nonces alone tell keys apart, and a text is looked up faster than a key.
    ours: dict[str, int] = {}
    foreign: dict[AttemptKey, int] = {}
    graph: dict[AttemptKey, Attempt] = {}
    own: list[int] = []
    followed: list[AttemptKey | None] = []
    here: list[bool] = []
    for place, attempt in enumerate(members):
        key = attempt.key
        graph[key] = attempt
        own.append(ours.setdefault(key.nonce.hex, place) if key.work == work else foreign.setdefault(key, place))
        followed.append(predecessor_of(attempt.cause))
        here.append(attempt.demand == subject.demand)
    before = [
        _NONE if key is None else ours.get(key.nonce.hex, _ABSENT) if key.work == work else foreign.get(key, _ABSENT) for key in followed
    ]
    rooted = _rooted(own, before, here)
    occurrences = Counter(own)
    outside = set(foreign.values())
    defects: list[AttemptGraphDefect] = []
    for member, (place, predecessor) in enumerate(zip(own, before, strict=True)):
        if place in outside:
            defects.append(ForeignWork(members[member].key))
        if predecessor == _ABSENT:
            defects.extend(AbsentPredecessor(members[member].key, key) for key in (followed[member],) if key is not None)
        if occurrences[place] > 1:
            defects.append(DuplicateIdentity(members[member].key))
        if not here[member] or predecessor == _ABSENT or (predecessor != _NONE and not rooted[predecessor]):
            defects.append(Unrooted(members[member].key))
    if (found := NonEmpty.of(defects)) is not None:
        return Refused(found)
    return AttemptGraph(subject, graph, _SEAL)


def _rooted(own: Sequence[int], before: Sequence[int], here: Sequence[bool]) -> bytearray:
    """For each place, whether some chain of predecessors connects its key with a root of the subject's demand. Of each member: its own
    place, that of its predecessor, and whether it is of that demand; an attempt of another's is no step of a chain here, whatever it names.

    A member that comes after its predecessor was found rooted is so at once; any other waits at its predecessor's place.
    """
    # Whoever waits at a place is linked through ``next_waiting``, begun at ``first_waiting``; _ABSENT ends a list. Members may follow each
    # other in any order, so what is looked up lies close together: arrays of numbers, and not lists that point to them.
    places, nobody = array("l", own), array("l", [_ABSENT])
    first_waiting, next_waiting = nobody * len(own), nobody * len(own)
    rooted = bytearray(len(own))
    found: list[int] = []
    for member, (place, predecessor, demanded) in enumerate(zip(own, before, here, strict=True)):
        if not demanded or predecessor == _ABSENT or rooted[place]:
            continue
        if predecessor != _NONE and not rooted[predecessor]:
            next_waiting[member], first_waiting[predecessor] = first_waiting[predecessor], member
            continue
        rooted[place] = True
        found.append(place)
        while found:
            waiting = first_waiting[found.pop()]
            while waiting != _ABSENT:
                if not rooted[places[waiting]]:
                    rooted[places[waiting]] = True
                    found.append(places[waiting])
                waiting = next_waiting[waiting]
    return rooted
