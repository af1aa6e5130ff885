"""Attempts of one demand, their causes, and the graph that they form.

Rules kept here:

1. Every attempt names its cause. A root cause hangs on the demand; any other names a predecessor, which it never mutates.
2. The graph is admitted or refused with *every* defect; members are unordered, so a duplicated identity is a defect of each occurrence.
3. Rootedness is a fixpoint from the roots outwards: a ring of attempts that name each other, and a chain rooted in another demand, are
   unrooted. Each pass costs O(attempts + edges), without recursion.
4. Membership is decided against the admitted graph only.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass
from typing import Final, Self, final

from countermark.recipe import WorkKey
from countermark.run.demand import DemandId, Subject
from countermark.values import NonEmpty, Refused, Sha256, Unreadable

_SEAL: Final = object()
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
    rooted = _rooted(subject, members)
    occurrences = Counter(attempt.key for attempt in members)
    defects: list[AttemptGraphDefect] = []
    for attempt in members:
        key = attempt.key
        predecessor = predecessor_of(attempt.cause)
        if key.work != subject.work:
            defects.append(ForeignWork(key))
        if predecessor is not None and predecessor not in occurrences:
            defects.append(AbsentPredecessor(key, predecessor))
        if occurrences[key] > 1:
            defects.append(DuplicateIdentity(key))
        if attempt.demand != subject.demand or not (predecessor is None or predecessor in rooted):
            defects.append(Unrooted(key))
    if (found := NonEmpty.of(defects)) is not None:
        return Refused(found)
    return AttemptGraph(subject, {attempt.key: attempt for attempt in members}, _SEAL)


def _rooted(subject: Subject, members: tuple[Attempt, ...]) -> set[AttemptKey]:
    """The keys that some chain of predecessors connects with a root of the subject's demand."""
    followers: defaultdict[AttemptKey, list[AttemptKey]] = defaultdict(list)
    rooted: set[AttemptKey] = set()
    for attempt in members:
        # An attempt of another demand is no step of a chain here, whatever predecessor it names.
        if attempt.demand != subject.demand:
            continue
        predecessor = predecessor_of(attempt.cause)
        if predecessor is not None:
            followers[predecessor].append(attempt.key)
        else:
            rooted.add(attempt.key)
    waiting = list(rooted)
    while waiting:
        for follower in followers[waiting.pop()]:
            if follower not in rooted:
                rooted.add(follower)
                waiting.append(follower)
    return rooted
