"""The learning rate at one step, held against the curve that a manifest asks for.

Rules kept here:

1. A scheduler's state holds neither its schedule nor its warm-up, only the rate that the curve has come to. The rate decides: what gives
   another one at this step was another curve.
2. What one change explains is not blamed on two. Where a change of the warm-up and a change of the schedule each explain the rate alone,
   both are named, and each says that it may be the other.
3. The curve is judged over the length that the run shows, so that another length is not told a second time as another curve.
4. The formulas are those of Transformers' schedules, in float64; a test holds each against the library.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self, final

from countermark.recipe import Manifest
from countermark.recipe.coordinates import (
    Constant,
    Cosine,
    CosineWithMinLr,
    CosineWithRestarts,
    InverseSqrt,
    Linear,
    LrSchedule,
    Polynomial,
    WarmupStableDecay,
)
from countermark.run.readback import ArtifactFact

#: What a rate is told under: no leaf of the schedule, but what all of it comes to.
RATE: Final = "lr_schedule.rate"
#: Schedules without numbers of their own: these can be told from a rate.
_PLAIN: Final[tuple[LrSchedule, ...]] = (Constant(), Linear(), Cosine())
#: Float64 on another processor may round another way; no two curves of a recipe come as near as this.
_TOLERANCE: Final = 1e-9
#: The longest warm-up that is looked for.
_WARMUP_MAX: Final = 20_000
_OTHER: Final = "another curve"


@final
@dataclass(frozen=True, slots=True)
class RatePoint:
    """The learning rate after ``step`` optimizer steps, beside the peak that it is a part of."""

    step: int
    rate: float
    peak: float

    def spell(self) -> str:
        return f"{self.step}:{self.rate!r}/{self.peak!r}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The point of ``spell``'s text, None where the text is of none."""
        step, _, rates = text.partition(":")
        rate, _, peak = rates.partition("/")
        try:
            point = cls(int(step), float(rate), float(peak))
        except ValueError:
            return None
        return point if point.step >= 0 and 0 < point.peak < math.inf and 0 <= point.rate < math.inf else None

    def fact(self, source: str) -> ArtifactFact:
        return ArtifactFact(RATE, self.spell(), source)


def rate_after(schedule: LrSchedule, warmup: int, total: int, step: int, peak: float) -> float:
    """The learning rate after ``step`` steps of a run of ``total``, of which ``warmup`` lead linearly up to ``peak``."""
    if step < warmup:
        return peak * _warming(schedule, step / warmup)
    past = (step - warmup) / max(1, total - warmup)
    match schedule:
        case Constant():
            return peak
        case Linear():
            return peak * max(0.0, (total - step) / max(1, total - warmup))
        case Cosine():
            return peak * max(0.0, _wave(past))
        case CosineWithRestarts(cycles):
            return 0.0 if past >= 1 else peak * max(0.0, _wave((cycles.number * past) % 1.0))
        case CosineWithMinLr(least):
            return peak * max(0.0, _wave(past) * (1 - float(least)) + float(least))
        case Polynomial(end, power):
            return float(end) if step > total else (peak - float(end)) * (1 - past) ** float(power) + float(end)
        case InverseSqrt(timescale):
            return peak / math.sqrt((step + timescale.number - warmup) / timescale.number)
        case WarmupStableDecay():
            return peak * _decayed(schedule, total, step)


def _warming(schedule: LrSchedule, part: float) -> float:
    """The part of the peak that a warm-up has come to: one kind begins at its least rate, the others at nothing."""
    least = float(schedule.min_lr_rate) if isinstance(schedule, WarmupStableDecay) else 0.0
    return part * (1 - least) + least


def _wave(part: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * part))


def _decayed(schedule: WarmupStableDecay, total: int, step: int) -> float:
    begins, least = total - schedule.decay_steps.number, float(schedule.min_lr_rate)
    part = min(1.0, max(0.0, (step - begins) / schedule.decay_steps.number))
    shapes = {"linear": 1 - part, "cosine": _wave(part), "1-sqrt": 1 - math.sqrt(part)}
    return shapes[schedule.decay_shape.word] * (1 - least) + least


def explained(facts: Iterable[ArtifactFact], desired: Manifest) -> tuple[ArtifactFact, ...]:
    """The facts, with each rate replaced by what it shows of schedule and warm-up: nothing, where the curve asked for has it."""
    listed = tuple(facts)
    total = next((int(fact.spelling) for fact in listed if fact.leaf == "total_steps" and fact.spelling.isdecimal()), None)
    return tuple(shown for fact in listed for shown in (_shown(fact, desired, total) if fact.leaf == RATE else (fact,)))


def _shown(fact: ArtifactFact, desired: Manifest, total: int | None) -> Iterator[ArtifactFact]:
    point = RatePoint.read(fact.spelling)
    if point is None:
        yield ArtifactFact("lr_schedule", _OTHER, fact.source)
        return
    length = desired.total_steps.number if total is None else total
    asked, warmup = desired.lr_schedule, desired.warmup_steps.number
    if _gives(point, asked, warmup, length):
        return
    kinds = [kind for kind in _PLAIN if kind != asked and _gives(point, kind, warmup, length)]
    warmups = _warmups(point, asked, length)
    if kinds or warmups:
        other = " or lr_schedule" if kinds else ""
        yield from (ArtifactFact("lr_schedule", _either(kinds, " or warmup_steps" if warmups else ""), fact.source) for _ in kinds[:1])
        yield from (ArtifactFact("warmup_steps", f"{at}{other}", fact.source) for at in warmups[:1])
        return
    both = [(kind, at) for kind in _PLAIN if kind != asked for at in _warmups(point, kind, length) if at != warmup]
    if not both:
        yield ArtifactFact("lr_schedule", _OTHER, fact.source)
        return
    yield ArtifactFact("lr_schedule", _either([both[0][0]], ""), fact.source)
    yield ArtifactFact("warmup_steps", str(both[0][1]), fact.source)


def _either(kinds: Sequence[LrSchedule], other: str) -> str:
    return " or ".join(kind.spell() for kind in kinds) + other


def _gives(point: RatePoint, schedule: LrSchedule, warmup: int, total: int) -> bool:
    return abs(rate_after(schedule, warmup, total, point.step, point.peak) - point.rate) <= _TOLERANCE * point.peak


def _warmups(point: RatePoint, schedule: LrSchedule, total: int) -> list[int]:
    """The warm-ups with which a schedule has this rate."""
    longest = min(total, _WARMUP_MAX)
    return [warmup for warmup in range(longest + 1) if _gives(point, schedule, warmup, total)]
