"""The attempt graph is admitted whole or refused with every defect of every member."""

import random
import time
from collections import Counter
from contextlib import AbstractContextManager
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.run import attempts as room
from countermark.run.attempts import (
    AbsentPredecessor,
    Attempt,
    AttemptGraph,
    AttemptGraphDefect,
    AttemptKey,
    CapabilityEscalation,
    Cause,
    CheckpointIdentity,
    DuplicateIdentity,
    ForeignWork,
    InfrastructureRetry,
    InitialAttempt,
    Nonce,
    Relaunch,
    RequestedReexecution,
    Resume,
    Unrooted,
    admit_attempt_graph,
    checkpoint_of,
    predecessor_of,
)
from countermark.run.demand import DemandId, Subject
from countermark.values import Refused, Unreadable
from tests.faults import planted, proven_by
from tests.run.examples import CHECKPOINT, attempt, demand_id, key, nonce, work

SUBJECT = Subject(demand_id(), work())
CLEAN = (
    attempt(1),
    attempt(2, Resume(key(1), CHECKPOINT)),
    attempt(3, Relaunch(key(2), "host n1 went away")),
    attempt(4, RequestedReexecution("again")),
    attempt(5, InfrastructureRetry(key(4))),
    attempt(6, CapabilityEscalation(key(5), "memory=80GiB")),
)


def defects(*members: Attempt) -> Counter[AttemptGraphDefect]:
    """Every defect with the number of times that it was said."""
    answer = admit_attempt_graph(SUBJECT, members)
    return Counter(answer.defects) if isinstance(answer, Refused) else Counter()


def everything_rooted() -> AbstractContextManager[object]:
    """Rootedness that trusts every member."""
    return planted(room, "_rooted", lambda own, before, here: b"\1" * len(own))()


def local_checks_alone() -> AbstractContextManager[object]:
    """Rootedness by a look at the predecessor alone, as a walk that stops after one step: a ring passes."""

    def rooted(own: list[int], before: list[int], here: list[bool]) -> bytes:
        return bytes(predecessor in own or demanded for predecessor, demanded in zip(before, here, strict=True))

    return planted(room, "_rooted", rooted)()


def test_the_clean_graph_is_admitted_with_its_frontier() -> None:
    graph = admit_attempt_graph(SUBJECT, CLEAN)
    assert isinstance(graph, AttemptGraph)
    assert graph.frontier() == (key(3), key(6))
    assert graph.subject == SUBJECT
    assert dict(graph.attempts) == {member.key: member for member in CLEAN}
    assert tuple(graph.attempts.values()) == CLEAN


def test_no_attempt_is_a_graph() -> None:
    graph = admit_attempt_graph(SUBJECT, ())
    assert isinstance(graph, AttemptGraph)
    assert graph.frontier() == ()


def test_another_work_is_foreign() -> None:
    foreign = Attempt(AttemptKey(work(seed="18"), nonce(7)), demand_id(), InitialAttempt())
    assert defects(*CLEAN, foreign) == Counter([ForeignWork(foreign.key)])


def test_an_equal_nonce_under_another_account_is_foreign_and_no_duplicate() -> None:
    foreign = attempt(1, principal="other")
    assert defects(*CLEAN, foreign) == Counter([ForeignWork(foreign.key)])


def test_attempts_at_other_works_are_told_apart_as_our_own_are() -> None:
    one, two = attempt(1, principal="other"), attempt(2, principal="other")
    third = attempt(3, InfrastructureRetry(one.key), principal="third")
    assert defects(*CLEAN, one, two, third) == Counter([ForeignWork(one.key), ForeignWork(two.key), ForeignWork(third.key)])
    twice: Counter[AttemptGraphDefect] = Counter({ForeignWork(one.key): 2, DuplicateIdentity(one.key): 2})
    assert defects(*CLEAN, one, one) == twice
    astray = attempt(7, InfrastructureRetry(two.key))
    assert defects(*CLEAN, one, astray) == Counter([ForeignWork(one.key), AbsentPredecessor(astray.key, two.key), Unrooted(astray.key)])
    assert defects(*CLEAN, one, two, astray) == Counter([ForeignWork(one.key), ForeignWork(two.key)])
    ours = attempt(8, InfrastructureRetry(attempt(2, principal="third").key))
    assert defects(*CLEAN, two, ours) == Counter(
        [ForeignWork(two.key), AbsentPredecessor(ours.key, attempt(2, principal="third").key), Unrooted(ours.key)]
    )


def test_an_absent_predecessor_is_named_and_leaves_its_follower_unrooted() -> None:
    orphan = attempt(7, InfrastructureRetry(key(99)))
    assert defects(*CLEAN, orphan) == Counter([AbsentPredecessor(key(7), key(99)), Unrooted(key(7))])


def test_a_duplicate_is_a_defect_of_every_occurrence() -> None:
    assert defects(attempt(1), attempt(1)) == Counter({DuplicateIdentity(key(1)): 2})
    assert defects(attempt(1), attempt(1), attempt(1, RequestedReexecution("again"))) == Counter({DuplicateIdentity(key(1)): 3})


def test_of_two_attempts_under_one_identity_each_is_held_against_its_own_cause() -> None:
    """Whoever follows the identity hangs on a root, since one occurrence does; the other one hangs on nothing. Any order will do."""
    rooted, astray, behind = attempt(7), attempt(7, InfrastructureRetry(key(99))), attempt(8, InfrastructureRetry(key(7)))
    wanted: Counter[AttemptGraphDefect] = Counter([DuplicateIdentity(key(7))] * 2)
    wanted.update([AbsentPredecessor(key(7), key(99)), Unrooted(key(7))])
    for members in permutations((rooted, astray, behind)):
        assert defects(*members) == wanted


@proven_by(everything_rooted, local_checks_alone)
def test_a_ring_passes_every_local_check_and_is_unrooted() -> None:
    ring = (attempt(7, InfrastructureRetry(key(8))), attempt(8, InfrastructureRetry(key(7))))
    assert defects(*CLEAN, *ring) == Counter([Unrooted(key(7)), Unrooted(key(8))])


@proven_by(everything_rooted)
def test_a_chain_rooted_in_another_demand_is_unrooted_here() -> None:
    other = demand_id("weekly")
    chain = (attempt(7, demand=other), attempt(8, InfrastructureRetry(key(7)), demand=other), attempt(9, InfrastructureRetry(key(8))))
    assert defects(*CLEAN, *chain) == Counter([Unrooted(key(7)), Unrooted(key(8)), Unrooted(key(9))])


@pytest.mark.parametrize("other", [demand_id("weekly"), demand_id(requester="eve")])
def test_a_root_of_another_demand_is_none_whoever_asked_or_under_which_name(other: DemandId) -> None:
    assert defects(*CLEAN, attempt(7, demand=other)) == Counter([Unrooted(key(7))])


@proven_by(everything_rooted)
def test_an_attempt_of_another_demand_is_unrooted_although_it_follows_one_of_ours() -> None:
    stranger = attempt(7, InfrastructureRetry(key(3)), demand=demand_id("weekly"))
    behind = attempt(8, InfrastructureRetry(key(7)))
    assert defects(*CLEAN, stranger) == Counter([Unrooted(key(7))])
    assert defects(*CLEAN, stranger, behind) == Counter([Unrooted(key(7)), Unrooted(key(8))])


def test_an_attempt_that_names_itself_is_unrooted() -> None:
    assert defects(attempt(7, InfrastructureRetry(key(7)))) == Counter([Unrooted(key(7))])


def first_wins() -> AbstractContextManager[object]:
    """Admission that stops at the first defect."""
    honest = room.NonEmpty

    class First:
        @staticmethod
        def of(found: list[AttemptGraphDefect]) -> object:
            return honest.of(found[:1])

    return planted(room, "NonEmpty", First)()


@proven_by(first_wins)
def test_several_defects_of_several_members_are_all_named() -> None:
    foreign = Attempt(AttemptKey(work(seed="18"), nonce(7)), demand_id(), InfrastructureRetry(key(99)))
    ring = (attempt(8, InfrastructureRetry(key(9))), attempt(9, InfrastructureRetry(key(8))))
    wanted: list[AttemptGraphDefect] = [ForeignWork(foreign.key), AbsentPredecessor(foreign.key, key(99)), Unrooted(foreign.key)]
    wanted += [Unrooted(key(8)), Unrooted(key(9)), DuplicateIdentity(key(2)), DuplicateIdentity(key(2))]
    assert defects(*CLEAN, foreign, *ring, CLEAN[1]) == Counter(wanted)


def test_a_graph_is_minted_by_admission_alone() -> None:
    with pytest.raises(ValueError, match=r"^an attempt graph is minted by admit_attempt_graph$"):
        AttemptGraph(SUBJECT, {}, object())


def naive(members: tuple[Attempt, ...]) -> Counter[AttemptGraphDefect]:
    """The same decision, written as plainly as possible: follow each attempt back until it ends or repeats."""
    by_key = {member.key: member for member in members}
    times = Counter(member.key for member in members)
    found: Counter[AttemptGraphDefect] = Counter()
    for member in members:
        before, seen, here = predecessor_of(member.cause), set[AttemptKey](), member
        ours = member.demand == SUBJECT.demand
        if before is not None and before not in by_key:
            found[AbsentPredecessor(member.key, before)] += 1
        if times[member.key] > 1:
            found[DuplicateIdentity(member.key)] += 1
        while (back := predecessor_of(here.cause)) is not None and back in by_key and back not in seen:
            seen.add(back)
            here = by_key[back]
            ours = ours and here.demand == SUBJECT.demand
        if predecessor_of(here.cause) is not None or not ours:
            found[Unrooted(member.key)] += 1
    return found


@st.composite
def forests(draw: st.DrawFn) -> tuple[Attempt, ...]:
    """A few attempts whose predecessors are any of a few numbers: chains, rings, forks, orphans. Identities are unique."""
    size = draw(st.integers(0, 8))
    members: list[Attempt] = []
    for number in range(size):
        before = draw(st.none() | st.integers(0, 9))
        demand = demand_id(draw(st.sampled_from(["nightly", "nightly", "weekly"])))
        cause: Cause = InitialAttempt() if before is None else InfrastructureRetry(key(before))
        members.append(attempt(number, cause, demand))
    return tuple(draw(st.permutations(members)))


@given(forests())
def test_admission_agrees_with_following_each_attempt_back(members: tuple[Attempt, ...]) -> None:
    assert defects(*members) == naive(members)


@proven_by(everything_rooted, local_checks_alone)
def test_every_graph_of_up_to_five_attempts_in_every_order_is_decided_as_by_following_each_attempt_back() -> None:
    """Each follows none, one that is not there, itself, or any of those before and behind it: 7^5 graphs, which hold every smaller one."""
    causes: list[Cause] = [InitialAttempt(), *(InfrastructureRetry(key(before)) for before in range(6))]
    for chosen in product(causes, repeat=5):
        members = tuple(attempt(number, cause) for number, cause in enumerate(chosen))
        assert defects(*members) == naive(members)


@given(st.text() | st.integers() | st.none() | st.from_regex(r"[0-9a-fA-F]{31,33}", fullmatch=True))
def test_a_nonce_reads_its_own_spelling_and_nothing_else(raw: object) -> None:
    read = Nonce.read(raw)
    well_formed = isinstance(raw, str) and len(raw) == 32 and set(raw) <= set("0123456789abcdef")
    assert isinstance(read, Nonce) == well_formed
    if isinstance(read, Unreadable):
        with pytest.raises((ValueError, TypeError)):
            Nonce(raw)  # type: ignore[arg-type]
    else:
        assert read.spell() == raw


def test_a_nonce_is_32_small_hexadecimal_digits() -> None:
    digits = "0123456789abcdef" * 2
    assert Nonce.read(digits) == Nonce(digits)
    assert Nonce(digits).spell() == digits
    for raw in (digits.upper(), digits[1:], digits + "0", digits[1:] + "g", "", digits + "\n", " " + digits[1:]):
        assert Nonce.read(raw) == Unreadable("an attempt is named by 32 lower-case hexadecimal digits")
        with pytest.raises(ValueError, match=r"^a nonce is 32 lower-case hexadecimal digits$"):
            Nonce(raw)
    assert Nonce.read(7) == Nonce.read("")


def test_what_each_cause_follows_and_where_it_begins() -> None:
    causes: list[tuple[Cause, AttemptKey | None, CheckpointIdentity | None]] = [
        (InitialAttempt(), None, None),
        (RequestedReexecution("again"), None, None),
        (InfrastructureRetry(key(1)), key(1), None),
        (CapabilityEscalation(key(1), "memory=80GiB"), key(1), None),
        (Relaunch(key(1), "lost"), key(1), None),
        (Relaunch(key(1), "lost", CHECKPOINT), key(1), CHECKPOINT),
        (Resume(key(1), CHECKPOINT), key(1), CHECKPOINT),
    ]
    assert [(predecessor_of(cause), checkpoint_of(cause)) for cause, _, _ in causes] == [(before, start) for _, before, start in causes]


def test_keys_of_one_nonce_share_a_hash_and_are_told_apart() -> None:
    ours, theirs = key(1), key(1, "other")
    assert hash(ours) == hash(theirs) == hash(ours.nonce.hex)
    assert ours != theirs
    assert {ours: 1, theirs: 2} == {theirs: 2, key(1): 1}


def chain(size: int) -> list[Attempt]:
    return [attempt(0), *(attempt(number, InfrastructureRetry(key(number - 1))) for number in range(1, size))]


def test_a_long_chain_is_admitted_without_recursion_and_in_linear_time() -> None:
    members = chain(100_000)
    random.Random(7).shuffle(members)
    began = time.process_time()
    graph = admit_attempt_graph(SUBJECT, members)
    assert time.process_time() - began < 3
    assert isinstance(graph, AttemptGraph)
    assert graph.frontier() == (key(99_999),)
