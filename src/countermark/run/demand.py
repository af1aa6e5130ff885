"""Demands: who asked for which work, and the subject that all evidence about a run is about.

Rules kept here:

1. A demand is admitted only when this resolution derives the very work that the demand names, under the *accounting* principal
   (``demand.work.principal``). The requester (``demand.id.requester``) may be somebody else: a service account, a delegate.
   Admission establishes that one relation; authorization is not its business.
2. A run *is* a demand: its identity is ``(requester, request)`` and nothing else.
3. The subject is computed from the desired run and never taken as an argument.
4. A record is admitted again each time that it is read, from its manifest; the Work key that stands beside it is compared, not believed.
"""

import hashlib
from dataclasses import InitVar, dataclass
from typing import Final, final

from countermark.recipe import (
    Manifest,
    Requirements,
    Resolution,
    WorkKey,
    contract_of,
    derive_work_key,
    observed,
    resolve,
    spellings,
)
from countermark.recipe.canonical import length_prefixed
from countermark.values import NonEmpty, Principal, Refused, Request

_SEAL: Final = object()


@final
@dataclass(frozen=True, slots=True)
class DemandId:
    """Who asked, and under which name of theirs; repeating the name attaches to the same run."""

    requester: Principal
    request: Request

    def run_id(self) -> str:
        """The 32 hexadecimal digits by which surfaces name the run."""
        parts = length_prefixed(b"countermark/run/1", self.requester.text.encode(), self.request.text.encode())
        return hashlib.sha256(parts).hexdigest()[:32]


@final
@dataclass(frozen=True, slots=True)
class Demand:
    """One request for one work."""

    id: DemandId
    work: WorkKey


@final
@dataclass(frozen=True, slots=True)
class WorkNotDerived:
    """The demand names a work that the resolution at hand does not derive (spellings of both keys)."""

    demanded: WorkKey
    derived: WorkKey


@final
@dataclass(frozen=True, slots=True)
class TrainingRunDesired:
    """An admitted demand with the manifest that it is for; minted by ``admit_demand`` alone."""

    demand: Demand
    manifest: Manifest
    requirements: Requirements
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise ValueError("a desired run is minted by admit_demand")


def admit_demand(demand: Demand, resolution: Resolution, requirements: Requirements) -> TrainingRunDesired | Refused[WorkNotDerived]:
    """The desired run, or the one defect that admission can have: the work does not follow from the resolution."""
    derived = derive_work_key(demand.work.principal, contract_of(resolution), requirements)
    if derived != demand.work:
        return Refused(NonEmpty(WorkNotDerived(demand.work, derived)))
    return TrainingRunDesired(demand, resolution.manifest, requirements, _SEAL)


@final
@dataclass(frozen=True, slots=True)
class WorkRecalled:
    """A recorded work that follows from its manifest, whoever demands it; minted by ``recall_work`` alone."""

    work: WorkKey
    manifest: Manifest
    requirements: Requirements
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise ValueError("a recorded work is minted by recall_work")

    def demanded_by(self, demand: DemandId) -> TrainingRunDesired:
        """The desired run of a demand for exactly this work: what admission establishes says nothing about who asks."""
        return TrainingRunDesired(Demand(demand, self.work), self.manifest, self.requirements, _SEAL)


def recall_work(work: WorkKey, manifest: Manifest, requirements: Requirements) -> WorkRecalled | Refused[WorkNotDerived]:
    """A recorded work, derived anew: its manifest is observed and resolved like any recipe that leaves nothing open, so a record is no
    authority about the work that it names."""
    resolution = resolve(observed(spellings(manifest), source="ledger", tool="countermark"))
    assert isinstance(resolution, Resolution)  # A manifest's own spellings always resolve.
    derived = derive_work_key(work.principal, contract_of(resolution), requirements)
    return (
        WorkRecalled(work, resolution.manifest, requirements, _SEAL)
        if derived == work
        else Refused(NonEmpty(WorkNotDerived(work, derived)))
    )


def recall_demand(demand: Demand, manifest: Manifest, requirements: Requirements) -> TrainingRunDesired | Refused[WorkNotDerived]:
    """A recorded demand, admitted anew."""
    recalled = recall_work(demand.work, manifest, requirements)
    return recalled if isinstance(recalled, Refused) else recalled.demanded_by(demand.id)


@final
@dataclass(frozen=True, slots=True)
class Subject:
    """What evidence is about: the demand half and the work half, each compared on its own."""

    demand: DemandId
    work: WorkKey


def subject_of(desired: TrainingRunDesired) -> Subject:
    """The subject of a desired run."""
    return Subject(desired.demand.id, desired.demand.work)
