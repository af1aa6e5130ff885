"""Learning-rate schedules as ``transformers.get_scheduler`` builds them, brought to their effective form.

Rules kept here:

1. Defaults are those of the functions that build the schedule; a schedule that computes what another one does is that other one.
2. A setting that has no leaf is neutral (then it is left out) or named as unsupported; none is dropped in silence.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, final


@final
@dataclass(frozen=True, slots=True)
class ScheduleInput:
    """The schedule's type, its settings, and the numbers that some schedules are derived from (None: not known)."""

    kind: object
    settings: Mapping[str, object]
    learning_rate: float | None
    warmup_steps: int | None
    total_steps: int | None


@final
@dataclass(frozen=True, slots=True)
class Schedule:
    """The arm, its leaves (None: left open) and the settings that no leaf holds."""

    arm: str
    leaves: Mapping[str, object]
    unsupported: tuple[str, ...]


_HALF_WAVE: Final = 0.5


def read_schedule(given: ScheduleInput) -> Schedule | None:
    """The effective schedule; None for a type that has no arm."""
    reader = _READERS.get(given.kind) if isinstance(given.kind, str) else None
    return reader(given) if reader is not None else None


def _made(given: ScheduleInput, arm: str, leaves: Mapping[str, object], neutral: Mapping[str, object], used: tuple[str, ...]) -> Schedule:
    odd = tuple(name for name, value in given.settings.items() if name not in used and not _is(value, neutral.get(name, _NOTHING)))
    return Schedule(arm, leaves, odd)


_NOTHING: Final = object()


def _is(value: object, neutral: object) -> bool:
    return not isinstance(value, bool) and type(value) in (int, float, str, type(None)) and value == neutral


def _constant(given: ScheduleInput) -> Schedule:
    return Schedule("constant", {}, ())  # get_scheduler hands the settings to none of the constant schedules


def _linear(given: ScheduleInput) -> Schedule:
    return _made(given, "linear", {}, {}, ())


def _cosine(given: ScheduleInput) -> Schedule:
    return _made(given, "cosine", {}, {"num_cycles": _HALF_WAVE}, ())


def _restarts(given: ScheduleInput) -> Schedule:
    cycles = given.settings.get("num_cycles", 1)
    if _is(cycles, 1):
        return _made(given, "cosine", {}, {}, ("num_cycles",))
    whole = int(cycles) if isinstance(cycles, float) and cycles.is_integer() else cycles
    return _made(given, "cosine_with_restarts", {"cycles": whole}, {}, ("num_cycles",))


def _min_lr(given: ScheduleInput) -> Schedule:
    lowest, rate = given.settings.get("min_lr"), given.settings.get("min_lr_rate")
    if rate is None and isinstance(lowest, int | float) and given.learning_rate:
        rate = lowest / given.learning_rate
    if _is(rate, 0):
        return _made(given, "cosine", {}, {"num_cycles": _HALF_WAVE}, ("min_lr", "min_lr_rate"))
    return _made(given, "cosine_with_min_lr", {"min_lr_rate": rate}, {"num_cycles": _HALF_WAVE}, ("min_lr", "min_lr_rate"))


def _polynomial(given: ScheduleInput) -> Schedule:
    leaves = {"lr_end": given.settings.get("lr_end", 1e-7), "power": given.settings.get("power", 1.0)}
    return _made(given, "polynomial", leaves, {}, ("lr_end", "power"))


def _inverse_sqrt(given: ScheduleInput) -> Schedule:
    timescale = given.settings.get("timescale")
    if timescale is None and given.warmup_steps is not None:
        timescale = given.warmup_steps or 10_000
    return _made(given, "inverse_sqrt", {"timescale": timescale}, {}, ("timescale",))


def _stable(given: ScheduleInput) -> Schedule:
    decay = given.settings.get("num_decay_steps")
    neutral: dict[str, object] = {"warmup_type": "linear", "num_cycles": _HALF_WAVE, "num_stable_steps": None}
    stable = given.settings.get("num_stable_steps")
    if stable is not None and isinstance(decay, int) and given.total_steps is not None and given.warmup_steps is not None:
        neutral["num_stable_steps"] = given.total_steps - given.warmup_steps - decay
    leaves = {
        "decay_steps": decay,
        "decay_shape": given.settings.get("decay_type", "cosine"),
        "min_lr_rate": given.settings.get("min_lr_ratio", 0),
    }
    return _made(given, "warmup_stable_decay", leaves, neutral, ("num_decay_steps", "decay_type", "min_lr_ratio"))


_READERS: Final[Mapping[str, Callable[[ScheduleInput], Schedule]]] = MappingProxyType(
    {
        "constant": _constant,
        "constant_with_warmup": _constant,
        "linear": _linear,
        "cosine": _cosine,
        "cosine_with_restarts": _restarts,
        "cosine_with_min_lr": _min_lr,
        "polynomial": _polynomial,
        "inverse_sqrt": _inverse_sqrt,
        "warmup_stable_decay": _stable,
    }
)
