"""Retention: which checkpoints of a folder stay, and which may go. It decides and deletes nothing.

Rules kept here:

1. Only an admitted checkpoint counts: the last ``keep`` of each computation stay. One that is not admitted counts for nothing, and stays
   unless the torn ones were asked for.
2. A checkpoint goes only where an admitted one of the same computation is newer. The newest admitted one always stays: to keep none of them
   is refused by name.
3. Where an attempt begins that has not ended, the checkpoint stays.
4. A torn one goes only where it is older than an admitted one that stays, by its step and by when it was last written: whoever writes now
   may have begun at a lower step.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from countermark.run.attempts import CheckpointIdentity
from countermark.run.checkpoint import (
    AdmittedCheckpoint,
    CheckpointDefect,
    CheckpointNotThere,
    CheckpointReadback,
    Incomplete,
    SoundCheckpoint,
)
from countermark.values import NonEmpty, Refused


@final
@dataclass(frozen=True, slots=True)
class OnlyAdmittedCheckpoint:
    """To delete the checkpoint would leave nothing that its computation could go on from."""

    path: str


@final
@dataclass(frozen=True, slots=True)
class PruneUnderWay:
    """Another process is deciding at this moment which checkpoints of the folder may go."""

    path: str


@final
@dataclass(frozen=True, slots=True)
class SuccessorChanged:
    """A checkpoint that others were to go for is not as it was when they were judged: it changed, or it is no longer there."""

    path: str


RetentionDefect = OnlyAdmittedCheckpoint | PruneUnderWay | SuccessorChanged


@final
@dataclass(frozen=True, slots=True)
class Held:
    """One checkpoint of a folder: its name there, what it is, what its admission answered, when something in it was last written, and how
    many bytes it takes."""

    name: str
    step: int
    readback: CheckpointReadback | CheckpointNotThere
    answer: AdmittedCheckpoint | SoundCheckpoint | Refused[CheckpointDefect]
    written_ns: int
    bytes: int

    @property
    def computation(self) -> str | None:
        """The Work key that it says it belongs to."""
        return self.readback.work_key if isinstance(self.readback, CheckpointReadback) else None


@final
@dataclass(frozen=True, slots=True)
class AmongTheLast:
    """It is one of the last admitted ones; ``place`` counts from the newest, which is 1."""

    place: int


@final
@dataclass(frozen=True, slots=True)
class OnlyAdmitted:
    """It is the only admitted checkpoint of its computation here."""


@final
@dataclass(frozen=True, slots=True)
class BegunAt:
    """An attempt (its nonce) begins at it and has not ended."""

    attempt: str


@final
@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """It is not admitted, so it counts for nothing, and it was not asked for. Without defects: it was held against no work."""

    defects: tuple[CheckpointDefect, ...]


Stays = AmongTheLast | OnlyAdmitted | BegunAt | NotAdmitted


@final
@dataclass(frozen=True, slots=True)
class Surplus:
    """It is admitted, and so are enough newer ones; ``successor`` is the name of the next of them."""

    successor: str


@final
@dataclass(frozen=True, slots=True)
class Torn:
    """It was never finished or is damaged, it is older than the admitted ``successor``, and the torn ones were asked for."""

    successor: str
    defects: tuple[CheckpointDefect, ...]


Goes = Surplus | Torn
Fate = Stays | Goes


@final
@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What becomes of each checkpoint of a folder, lowest step first."""

    fates: tuple[tuple[Held, Fate], ...]

    @property
    def going(self) -> tuple[Held, ...]:
        """What may go, oldest first."""
        return tuple(held for held, fate in self.fates if isinstance(fate, Goes))

    @property
    def counted(self) -> tuple[Held, ...]:
        """The admitted ones that stay, on which all the others rest."""
        return tuple(held for held, fate in self.fates if isinstance(fate, AmongTheLast | OnlyAdmitted | BegunAt))

    @property
    def bytes(self) -> int:
        """How many bytes what may go takes."""
        return sum(held.bytes for held in self.going)


def plan_retention(
    found: Sequence[Held], keep: int, begun: Mapping[CheckpointIdentity, str], *, torn: bool = False
) -> RetentionPlan | Refused[RetentionDefect]:
    """What becomes of each checkpoint where the last ``keep`` admitted ones of each computation are to stay.

    ``begun``: the checkpoints at which attempts begin that have not ended, each with such an attempt's nonce. ``torn``: those go as well
    that were never finished.
    """
    in_order = sorted(found, key=lambda held: (held.step, held.name))
    chains: dict[str | None, list[Held]] = {}
    for held in in_order:
        if isinstance(held.answer, AdmittedCheckpoint):
            chains.setdefault(held.computation, []).append(held)
    if keep < 1 and (blocked := NonEmpty.of(tuple(OnlyAdmittedCheckpoint(chain[-1].readback.path) for chain in chains.values()))):
        return Refused(blocked)
    admitted = {held.name: fate for chain in chains.values() for held, fate in _of_chain(chain, keep, begun)}
    staying = [held for chain in chains.values() for held in chain[-keep:]] if torn else []
    return RetentionPlan(tuple((held, admitted.get(held.name) or _unadmitted(held, staying)) for held in in_order))


def _of_chain(chain: Sequence[Held], keep: int, begun: Mapping[CheckpointIdentity, str]) -> Iterator[tuple[Held, Fate]]:
    """The admitted checkpoints of one computation, each with what becomes of it."""
    for at, held in enumerate(chain):
        place = len(chain) - at
        assert isinstance(held.answer, AdmittedCheckpoint)  # Of no other are chains made.
        attempt = begun.get(held.answer.identity)
        if len(chain) == 1:
            yield held, OnlyAdmitted()
        elif place <= keep:
            yield held, AmongTheLast(place)
        elif attempt is not None:
            yield held, BegunAt(attempt)
        else:
            yield held, Surplus(chain[at + 1].name)


def _unadmitted(held: Held, staying: Sequence[Held]) -> NotAdmitted | Torn:
    defects = tuple(held.answer.defects) if isinstance(held.answer, Refused) else ()
    unfinished = isinstance(held.readback, CheckpointReadback) and isinstance(held.readback.publication, Incomplete)
    newer = [one.name for one in staying if held.step < one.step and held.written_ns < one.written_ns]
    return Torn(newer[0], defects) if unfinished and newer else NotAdmitted(defects)
