"""Admission of demands establishes one relation: the resolution derives the very work that is demanded."""

from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.recipe import Requirements, WorkKey
from countermark.run import demand as room
from countermark.run.demand import (
    Demand,
    DemandId,
    Subject,
    TrainingRunDesired,
    WorkNotDerived,
    WorkRecalled,
    admit_demand,
    recall_demand,
    recall_work,
    subject_of,
)
from countermark.values import NonEmpty, Principal, Refused, Request
from tests.faults import planted, proven_by
from tests.run.examples import demand_id, desired, resolution, work

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@:/+-]{0,30}", fullmatch=True)


def believing() -> AbstractContextManager[object]:
    """Admission that believes the demand: it derives whatever is demanded."""
    return planted(room, "derive_work_key", lambda principal, contract, requirements: work("local"))()


def test_a_resolution_that_derives_the_work_admits_the_demand() -> None:
    admitted = admit_demand(Demand(demand_id(), work()), resolution(), Requirements())
    assert isinstance(admitted, TrainingRunDesired)
    assert admitted.demand == Demand(demand_id(), work())
    assert admitted.manifest == resolution().manifest


@proven_by(believing)
def test_another_manifest_is_refused_with_both_keys() -> None:
    refused = admit_demand(Demand(demand_id(), work()), resolution(seed="18"), Requirements())
    assert refused == Refused(NonEmpty(WorkNotDerived(work(), work(seed="18"))))


def test_the_account_counts_and_not_the_requester() -> None:
    service = DemandId(Principal("ci-service"), Request("nightly"))
    assert isinstance(admit_demand(Demand(service, work("team-a")), resolution(), Requirements()), TrainingRunDesired)


def by_digest_alone() -> AbstractContextManager[object]:
    """Works compared by their digests, without the account."""
    return planted(WorkKey, "__eq__", lambda self, other: self.digest == other.digest)()


@proven_by(by_digest_alone)
def test_one_digest_under_two_accounts_is_two_works() -> None:
    ours, theirs = work("team-a"), work("team-b")
    assert ours.digest == theirs.digest
    assert ours != theirs
    assert subject_of(desired(principal="team-a")) != subject_of(desired(principal="team-b"))


def test_receipts_move_nothing() -> None:
    assert admit_demand(Demand(demand_id(), work()), resolution(source="elsewhere.toml"), Requirements()) == desired()


def test_a_desired_run_is_minted_by_admission_alone() -> None:
    with pytest.raises(ValueError, match=r"^a desired run is minted by admit_demand$"):
        TrainingRunDesired(desired().demand, desired().manifest, Requirements(), object())
    with pytest.raises(ValueError, match=r"^a desired run is minted by admit_demand$"):
        replace(desired(), demand=Demand(demand_id(), work(seed="18")), seal=None)


def test_the_subject_has_two_halves_that_move_alone() -> None:
    assert subject_of(desired()) == Subject(demand_id(), work())
    assert subject_of(desired(request="weekly")) == Subject(demand_id("weekly"), work())
    assert subject_of(desired(seed="18")) == Subject(demand_id(), work(seed="18"))


def test_a_record_is_admitted_anew_and_never_believed() -> None:
    assert recall_demand(desired().demand, desired().manifest, Requirements()) == desired()
    recalled = recall_work(work(), desired().manifest, Requirements())
    assert isinstance(recalled, WorkRecalled)
    assert recalled.demanded_by(demand_id("weekly")) == desired("weekly")
    with pytest.raises(ValueError, match=r"^a recorded work is minted by recall_work$"):
        WorkRecalled(work(seed="18"), desired().manifest, Requirements(), None)
    forged = Demand(demand_id(), work(seed="18"))
    assert recall_demand(forged, desired().manifest, Requirements()) == Refused(NonEmpty(WorkNotDerived(work(seed="18"), work())))


def joined_by_slash() -> AbstractContextManager[object]:
    """Run ids over names joined with a separator that a name may contain."""
    return planted(room, "length_prefixed", lambda *parts: b"/".join(parts))()


@proven_by(joined_by_slash)
def test_run_ids_keep_the_border_between_requester_and_request() -> None:
    assert demand_id("b/c", "a").run_id() != demand_id("c", "a/b").run_id()


@given(NAMES, NAMES, NAMES, NAMES)
def test_run_ids_are_equal_only_for_equal_demands(requester: str, request: str, other_requester: str, other_request: str) -> None:
    one, other = demand_id(request, requester), demand_id(other_request, other_requester)
    assert (one.run_id() == other.run_id()) == (one == other)


def test_the_run_id_of_a_release_stays() -> None:
    assert demand_id().run_id() == RECORDED_RUN_ID


#: What the first release derived for ada's request "nightly"; a later one must find its runs under it.
RECORDED_RUN_ID = "dcd1c971d1daa7f3336035ad343d870d"
