"""One side of a comparison: an arm of an experiment with what was asked of it and what came of that.

Rules kept here:

1. Only what was asked counts; completeness is a matter of the asked ids and repeats, never of a status.
2. Repeats are reduced per id first: an id is one value of a metric, the mean of its scored repeats, however often it ran.
3. Ids pair the two sides. Where they were renumbered, the hash of what a sample says does; what stands twice on a side pairs
   nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import Literal, TypeAlias, final

from countermark.experiments.samples import Asked, Errored, Scored, Union, Unscored
from countermark.experiments.specs import Decoding, Range
from countermark.experiments.stamps import Stamp
from countermark.experiments.statistics import Interval, mean
from countermark.values import Sha256

JoinedBy: TypeAlias = Literal["id", "content"]


@final
@dataclass(frozen=True, slots=True)
class Side:
    """An arm as it is compared. What is None was not recorded. ``seed`` is what the arm was given, ``seed_used`` what it said that it used;
    ``cache_uncounted`` says that a cache was on and nothing tells for how many samples; ``regrades`` is the experiment whose outputs these
    are."""

    experiment: str
    arm: str
    asked: tuple[Asked, ...]
    repeats: int
    came: Union
    stamp: Stamp | None = None
    dataset: Sha256 | None = None
    grader: Sha256 | None = None
    decoding: Decoding | None = None
    seed: int | None = None
    seed_used: int | None = None
    ranges: Mapping[str, Range] = field(default_factory=dict[str, Range])
    higher: frozenset[str] = frozenset()
    regrades: str | None = None
    cache_uncounted: bool = False

    @property
    def name(self) -> str:
        """``EXP:ARM``, as a side is named on the command line."""
        return f"{self.experiment}:{self.arm}"

    def expected(self) -> tuple[Asked, ...]:
        """The samples that were to be answered: none of an arm that tells its numbers alone."""
        return self.asked if self.came.samples or not self.came.metrics else ()


@final
@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the samples that were asked, each repeat counted. ``missing`` ones are told of by nobody."""

    asked: int
    scored: int
    unscored: int
    errored: int
    missing: int
    cached: int


@final
@dataclass(frozen=True, slots=True)
class Join:
    """How the ids of two sides were paired. ``changed`` counts the pairs of one id whose samples say something else on either side."""

    by: JoinedBy
    pairs: tuple[tuple[str, str], ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    changed: int = 0


@final
@dataclass(frozen=True, slots=True)
class Reduced:
    """The value of every id that has one, by metric, the metrics in the order in which they came; and of each metric how many samples were
    scored, and the sum of their scores."""

    samples: int
    found: Mapping[str, Mapping[str, float]]
    scored: Mapping[str, int]
    sums: Mapping[str, float]

    def values(self, metric: str) -> Mapping[str, float]:
        """One value an id, of the ids that have one."""
        return self.found.get(metric, {})

    def unscored(self, metric: str) -> int:
        """Samples, each repeat counted, without a score of the metric."""
        return self.samples - self.scored.get(metric, 0)

    def bounds(self, metric: str, declared: Range) -> Interval | None:
        """Between what the mean over everything that was asked lies, whatever the unscored would have got."""
        if not self.samples:
            return None
        known, missing = self.sums.get(metric, 0.0), self.unscored(metric)
        return Interval((known + missing * declared.low) / self.samples, (known + missing * declared.high) / self.samples)


def counts(side: Side) -> Counts:
    """What became of each sample that was asked."""
    asked = {each.id for each in side.expected()}
    scored = unscored = errored = cached = 0
    for sample in side.came.samples:
        if sample.id not in asked or not 0 <= sample.repeat < side.repeats:
            continue
        match sample.outcome:
            case Scored():
                scored += 1
            case Unscored():
                unscored += 1
            case Errored():
                errored += 1
        cached += sample.cached
    whole = len(asked) * side.repeats
    return Counts(whole, scored, unscored, errored, whole - scored - unscored - errored, cached)


def reduced(side: Side) -> Reduced:
    """The scores of a side by metric and id."""
    asked = {each.id for each in side.expected()}
    first: dict[str, dict[str, float]] = {}
    more: dict[str, dict[str, list[float]]] = {}
    for sample in side.came.samples:
        outcome, name = sample.outcome, sample.id
        if not isinstance(outcome, Scored) or name not in asked or not 0 <= sample.repeat < side.repeats:
            continue
        for metric, score in outcome.scores.items():
            by_id = first.get(metric)
            if by_id is None:
                by_id = first[metric] = {}
            if score is None:
                continue
            if name in by_id:
                more.setdefault(metric, {}).setdefault(name, []).append(score)
            else:
                by_id[name] = score
    scored = {metric: len(by_id) + sum(map(len, more.get(metric, {}).values())) for metric, by_id in first.items()}
    sums = {metric: fsum(by_id.values()) + sum(map(fsum, more.get(metric, {}).values())) for metric, by_id in first.items()}
    for metric, repeated in more.items():
        for name, scores in repeated.items():
            first[metric][name] = mean([first[metric][name], *scores])
    return Reduced(len(asked) * side.repeats, first, scored, sums)


def outputs(side: Side) -> Mapping[tuple[str, int], str]:
    """The outputs that were recorded, by id and repeat."""
    return {sample.key: sample.outcome.output for sample in side.came.samples
            if not isinstance(sample.outcome, Errored) and sample.outcome.output is not None}  # fmt: skip


def join(a: Side, b: Side) -> Join:
    """The pairs of two sides: by id, or by content where more samples of equal content have other ids than have the same."""
    in_a, in_b = ({each.id: _hex(each.content) for each in side.expected()} for side in (a, b))
    shared = [each for each in in_a if each in in_b]
    equal = sum([1 for each in shared if in_a[each] is not None and in_a[each] == in_b[each]])
    if equal == len(in_a) == len(in_b):
        return Join("id", tuple([(each, each) for each in shared]), (), ())
    texts_a, texts_b = _once(a.expected()), _once(b.expected())
    by_content = [(texts_a[text], texts_b[text]) for text in texts_a if text in texts_b]
    if len(by_content) > equal and any(one != other for one, other in by_content):
        paired_a, paired_b = ({pair[at] for pair in by_content} for at in (0, 1))
        return Join("content", tuple(by_content), _left(in_a, paired_a.__contains__), _left(in_b, paired_b.__contains__))
    unlike = sum(1 for each in shared if in_a[each] is not None and in_b[each] is not None and in_a[each] != in_b[each])
    return Join("id", tuple((each, each) for each in shared), _left(in_a, in_b.__contains__), _left(in_b, in_a.__contains__), unlike)


def _left(ids: Iterable[str], paired: Callable[[str], bool]) -> tuple[str, ...]:
    return tuple(each for each in ids if not paired(each))


def _hex(content: Sha256 | None) -> str | None:
    return None if content is None else content.hex


def _once(asked: Iterable[Asked]) -> dict[str, str]:
    """The id of every content that stands once."""
    found: dict[str, str] = {}
    twice: set[str] = set()
    for each in asked:
        if each.content is not None:
            if each.content.hex in found:
                twice.add(each.content.hex)
            found[each.content.hex] = each.id
    return {content: each for content, each in found.items() if content not in twice}
