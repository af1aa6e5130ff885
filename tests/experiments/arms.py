"""Arms to compare: one clean pair, of which nothing is to be warned, and what breaks it in one place each."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from countermark.experiments.samples import ArmMetrics, Asked, Attempt, Errored, Sample, Scored, joined
from countermark.experiments.sides import Side
from countermark.experiments.specs import Decoding
from countermark.experiments.stamps import Stamp
from countermark.values import Sha256, WeightsRoot

ROOT_A: Final = WeightsRoot("a" * 64)
ROOT_B: Final = WeightsRoot("b" * 64)
DATASET: Final = Sha256("d" * 64)
GRADER: Final = Sha256("e" * 64)


def content(text: str) -> Sha256:
    """The content hash of a sample that says ``text``."""
    return Sha256(hashlib.sha256(text.encode()).hexdigest())


def asked(n: int, cluster: Callable[[int], str | None] = lambda _: None) -> tuple[Asked, ...]:
    """``n`` samples of unlike contents."""
    return tuple(Asked(f"q{at}", content(f"question {at}"), cluster(at)) for at in range(n))


def scored(values: Sequence[float | None], metric: str = "acc", repeat: int = 0, said: str = "") -> tuple[Sample, ...]:
    """A sample for each value, with an output that names the arm; an errored one for None."""
    return tuple(
        Sample(f"q{at}", repeat, Errored("missing") if value is None else Scored({metric: value}, f"{said} {at}"))
        for at, value in enumerate(values)
    )


def side(
    arm: str,
    samples: tuple[Sample, ...],
    n: int,
    *,
    repeats: int = 1,
    stamp: Stamp | None = None,
    metrics: Sequence[Mapping[str, float]] = (),
    **more: Any,
) -> Side:
    """An arm of which everything is recorded."""
    stamped = Stamp(ROOT_A if arm == "base" else ROOT_B, "measured_around") if stamp is None else stamp
    told = tuple(ArmMetrics(repeat, values) for repeat, values in enumerate(metrics))
    came = joined([Attempt(stamped, samples, told)])
    whole: dict[str, Any] = {
        "dataset": DATASET, "grader": GRADER, "decoding": Decoding.of({"temperature": 0}), "seed": 7, "seed_used": 7, **more,
    }  # fmt: skip
    return Side(f"exp{arm}", arm, asked(n), repeats, came, stamped, **whole)


def forty() -> tuple[Side, Side]:
    """The forty pairs of the shared cases: 18 right on both sides, 3 only in A, 12 only in B, 7 on neither."""
    a = [1.0] * 18 + [1.0] * 3 + [0.0] * 12 + [0.0] * 7
    b = [1.0] * 18 + [0.0] * 3 + [1.0] * 12 + [0.0] * 7
    return side("base", scored(a, said="base"), 40), side("edited", scored(b, said="edited"), 40)


def without_stamp(of: Side) -> Side:
    """The side, with nothing said of its weights."""
    return replace(of, stamp=None, came=replace(of.came, stamps=(None,)))


def with_stamp(of: Side, stamp: Stamp) -> Side:
    """The side under another stamp."""
    return replace(of, stamp=stamp, came=replace(of.came, stamps=(stamp,)))
