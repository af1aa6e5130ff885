"""What was asked, what came of it, and the union of what several attempts came to.

Rules kept here:

1. What came of a sample is one of a closed sum: scored, unscored or errored. None of them is ever a zero of another's.
2. A sample is (id, repeat). Whether it is there is a matter of what was asked, never of a status.
3. Attempts are joined by (id, repeat): a finished sample is never run again and never dropped, and which attempt is the newest does not
   matter. Under which stamps they ran is told, and resuming under another one is refused.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from countermark.experiments.stamps import Stamp
from countermark.values import NonEmpty, Refused, Sha256

#: The longest id, and the longest name of a metric, in characters.
ID_LENGTH_MAX: Final = 1_000
NAME_LENGTH_MAX: Final = 200
#: The largest score and the largest number of an arm: squares of sums of them stay within a double.
NUMBER_SIZE_MAX: Final = 1e100
#: Repeats of one sample.
REPEATS_MAX: Final = 100_000

ErrorCause: TypeAlias = Literal["crash", "timeout", "malformed", "missing", "reported"]
Key: TypeAlias = tuple[str, int]


@final
@dataclass(frozen=True, slots=True)
class Asked:
    """One sample of a dataset: its id, the hash of all else that it says, and the cluster that it was drawn in."""

    id: str
    content: Sha256 | None = None
    cluster: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Scored:
    """An output with a finite score for one metric at least; a metric without one is None."""

    scores: Mapping[str, float | None]
    output: str | None = None

    def __post_init__(self) -> None:
        found = [score for score in self.scores.values() if score is not None]
        if not found or not all(map(is_number, found)):
            raise ValueError("what is scored has scores, each of them finite")


@final
@dataclass(frozen=True, slots=True)
class Unscored:
    """An output that no metric has a score of; ``why`` is a clause, where it is known."""

    why: str = ""
    output: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Errored:
    """No output, or none that can be used."""

    cause: ErrorCause
    why: str = ""


Outcome: TypeAlias = Scored | Unscored | Errored


@final
@dataclass(frozen=True, slots=True)
class Sample:
    """What came of one sample in one repeat. ``cached`` says that it was answered from a cache and not by the weights."""

    id: str
    repeat: int
    outcome: Outcome
    cached: bool = False

    @property
    def key(self) -> Key:
        return (self.id, self.repeat)


@final
@dataclass(frozen=True, slots=True)
class ArmMetrics:
    """Numbers that an arm gives of itself in one repeat, and not of a sample."""

    repeat: int
    values: Mapping[str, float]

    def __post_init__(self) -> None:
        if not all(map(is_number, self.values.values())):
            raise ValueError("what an arm says of itself is finite")


@final
@dataclass(frozen=True, slots=True)
class Attempt:
    """What one process, or one log, came to under a stamp."""

    stamp: Stamp | None
    samples: tuple[Sample, ...]
    metrics: tuple[ArmMetrics, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class ResumeUnderOtherStamp:
    """Attempts were to be joined that ran under two stamps; ``stored`` is the one that stays."""

    stored: str
    given: str


@final
@dataclass(frozen=True, slots=True)
class Union:
    """What all attempts came to together, each (id, repeat) once; what one attempt told more than once; and under which stamps they ran."""

    samples: tuple[Sample, ...]
    metrics: tuple[ArmMetrics, ...]
    duplicates: tuple[Key, ...]
    stamps: tuple[Stamp | None, ...]


def is_number(value: float) -> bool:
    """Whether a number can be compared: finite, and of a size whose square is."""
    return math.isfinite(value) and abs(value) <= NUMBER_SIZE_MAX


def keys_asked(asked: Iterable[Asked], repeats: int) -> Iterator[Key]:
    """Every (id, repeat) that was asked, repeats outermost, as jobs run."""
    found = tuple(asked)
    return ((each.id, repeat) for repeat in range(repeats) for each in found)


def is_finished(sample: Sample) -> bool:
    """Whether a sample need not run again: an output is there. What errored may be tried once more."""
    return not isinstance(sample.outcome, Errored)


def missing(asked: Iterable[Asked], repeats: int, samples: Iterable[Sample]) -> tuple[Key, ...]:
    """What is still to be run, in the order in which it was asked."""
    finished = {sample.key for sample in samples if is_finished(sample)}
    return tuple(key for key in keys_asked(asked, repeats) if key not in finished)


def spelled_stamp(stamp: Stamp | None) -> str:
    """A stamp's digest, or that there is none."""
    return "none" if stamp is None else stamp.digest.spell()


def resumed(stored: Stamp | None, given: Stamp | None) -> Stamp | None | Refused[ResumeUnderOtherStamp]:
    """The stamp under which an experiment goes on: the stored one. Another one is refused, and so is a stamp where there was none: what
    ran before it did not run under it. None given is none said."""
    if given is None or (stored is not None and (given.digest, given.composition) == (stored.digest, stored.composition)):
        return stored
    return Refused(NonEmpty(ResumeUnderOtherStamp(spelled_stamp(stored), spelled_stamp(given))))


def joined(attempts: Sequence[Attempt]) -> Union:
    """The union of attempts by (id, repeat). Of several results for one key the first finished one counts, else the first."""
    kept: dict[Key, Sample] = {}
    repeated: dict[Key, None] = {}
    metrics: dict[int, ArmMetrics] = {}
    for attempt in attempts:
        seen: set[Key] = set()
        for sample in attempt.samples:
            key = sample.key
            if key in seen:
                repeated[key] = None
            seen.add(key)
            before = kept.get(key)
            if before is None or (is_finished(sample) and not is_finished(before)):
                kept[key] = sample
        for found in attempt.metrics:
            metrics.setdefault(found.repeat, found)
    stamps = tuple(dict.fromkeys(attempt.stamp for attempt in attempts))
    return Union(tuple(kept.values()), tuple(metrics[repeat] for repeat in sorted(metrics)), tuple(repeated), stamps)


def regraded(samples: Iterable[Sample], grades: Mapping[Key, Mapping[str, float | None]]) -> tuple[Sample, ...]:
    """The samples of a child experiment: the stored outputs with another grader's scores. What errored stays what it is, and nothing of the
    parent's scores is taken over."""
    found: list[Sample] = []
    for sample in samples:
        outcome = sample.outcome
        if not isinstance(outcome, Errored):
            scores = grades.get(sample.key, {})
            known = any(score is not None for score in scores.values())
            outcome = Scored(scores, outcome.output) if known else Unscored("the grader gave it no score", outcome.output)
        found.append(Sample(sample.id, sample.repeat, outcome, sample.cached))
    return tuple(found)
