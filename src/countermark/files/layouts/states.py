"""What states of training say, whichever library wrote them: optimizers, schedulers, random generators.

Rules kept here:

1. Each function turns the inert value of one file into witnesses and facts, or into every reason why the file is not what it must be.
   ``source`` is the file's name, which each fact and witness carries.
2. A fact is spelled as its coordinate spells it, through the coordinate's own reader; what that reader refuses stands as it was found and
   so differs from any manifest.
3. Only what the file really says becomes a fact. A schedule's kind or the accumulation are in none of these files.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log
from typing import Final, TypeGuard, cast, final

from countermark.files.documents import as_list, told
from countermark.files.layouts.reading import Whys
from countermark.files.pickles import Call, TensorStub
from countermark.recipe import Coordinate, read_coordinate
from countermark.run.checkpoint import ArtifactFact, leaf_spelling
from countermark.run.rates import RatePoint
from countermark.values import Unreadable

#: Reads the one element of a tensor of the same file.
Element = Callable[[TensorStub], "int | float | None"]

_STEP_MAX: Final = 2**53
#: A pickle names one list again and again at two bytes a time: what a state lists is bounded before it is written out.
_GROUPS_MAX: Final = 10_000
_PARAMETERS_MAX: Final = 1_000_000
#: No library begins with a larger scale of gradients.
_SCALE_MAX: Final = 2.0**32
_FACTOR_MAX: Final = 2.0**1023
#: Logarithms of powers of two are a rounding away from whole numbers of them.
_ROUNDING: Final = 1e-6
#: Where optimizers keep a moment of the shape of its tensor, in the order of preference.
_MOMENTS: Final = ("exp_avg", "exp_avg_sq", "momentum_buffer")


@final
@dataclass(frozen=True, slots=True)
class OptimizerSays:
    """Steps that its tensors were taken, how many tensors it steps, the shapes of their moments, and what its groups show."""

    steps: tuple[int, ...]
    parameters: int
    shapes: tuple[tuple[int, ...], ...]
    facts: tuple[ArtifactFact, ...]


@final
@dataclass(frozen=True, slots=True)
class SchedulerSays:
    """How often the scheduler was stepped, and the learning rates that it began with. One that goes by a metric is stepped with each
    evaluation, and not with the optimizer."""

    step: int
    facts: tuple[ArtifactFact, ...]
    by_metric: bool = False


def fact(leaf: str, raw: object, source: str) -> ArtifactFact:
    """A fact about a coordinate in its canonical spelling."""
    read = _read(leaf, raw)
    return ArtifactFact(leaf, told(raw) if isinstance(read, Unreadable) else read.spell(), source)


def _read(name: str, raw: object) -> Coordinate | Unreadable:
    """A coordinate out of a file: what it holds can be deeper or longer than anything that a recipe could."""
    try:
        return read_coordinate(name, raw)
    except (RecursionError, ValueError):
        return Unreadable("it is nested too deep, or too long")


def optimizer_says(value: object, element: Element, source: str) -> OptimizerSays | Whys:
    """What an optimizer's ``state_dict`` says."""
    table = table_of(value)
    groups = [table_of(group) for group in as_list(table.get("param_groups")) or []]
    state = table.get("state")
    if not groups or not isinstance(state, dict):
        return Whys(("it is no state of an optimizer",))
    if len(groups) > _GROUPS_MAX or sum(len(as_list(group.get("params")) or []) for group in groups) > _PARAMETERS_MAX:
        return Whys(("its groups list more than any optimizer steps",))
    listed = [index for group in groups for index in as_list(group.get("params")) or []]
    # Gathered from several workers, a state names its tensors as the model does.
    indices = {index for index in listed if isinstance(index, int | str)}
    if len(indices) < len(listed):
        return Whys(("its groups list a tensor twice, or something else than a tensor",))
    steps: set[int] = set()
    shapes: list[tuple[int, ...]] = []
    whys: list[str] = []
    for index, kept in cast(dict[object, object], state).items():
        entry = table_of(kept)
        if index not in indices:
            whys.append(f"it keeps state for tensor {told(index)}, which is in none of its groups")
        if "step" in entry:
            step = _step(entry["step"], element)
            if step is None:
                whys.append(f"the step of tensor {told(index)} is no number of steps")
            else:
                steps.add(step)
        moments = [entry[name] for name in _MOMENTS if isinstance(entry.get(name), TensorStub)]
        shapes.extend(moment.shape for moment in moments[:1] if isinstance(moment, TensorStub))
    if whys:
        return Whys(tuple(whys))
    taken = tuple(sorted(steps or _steps_of_groups(groups, element)))
    if not state and indices and any("betas" in group for group in groups):
        # An optimizer with betas keeps something of each tensor from its first step on: this one never took one.
        taken = (0,)
    return OptimizerSays(taken, len(indices), tuple(sorted(shapes)), tuple(_group_facts(groups, source)))


def _steps_of_groups(groups: list[Mapping[str, object]], element: Element) -> set[int]:
    """The steps that fused kernels keep with a group. They count only where no tensor keeps its own: DeepSpeed's leave a zero there."""
    found = (_step(group["step"], element) for group in groups if "step" in group)
    return {step for step in found if step is not None}


def _group_facts(groups: list[Mapping[str, object]], source: str) -> Iterable[ArtifactFact]:
    """What kind of Adam it is, its learning rates, betas and eps, of every group; the largest weight decay, since biases and norms get
    none."""
    found: list[ArtifactFact] = []
    decays = [decay for group in groups if isinstance(decay := group.get("weight_decay"), int | float)]
    for group in groups:
        found.extend(_kind_facts(group, source))
        if "initial_lr" in group:
            found.append(fact("learning_rate", group["initial_lr"], f"{source}: initial_lr"))
        betas = group.get("betas")
        if isinstance(betas, tuple | list) and len(cast(tuple[object, ...], betas)) == 2 and "eps" in group:
            beta1, beta2 = cast(tuple[object, object], tuple(cast(tuple[object, ...], betas)))
            found.extend(_optimizer_facts({"beta1": beta1, "beta2": beta2, "eps": group["eps"]}, source))
    if decays:
        found.append(fact("weight_decay", max(decays), f"{source}: weight_decay"))
    return dict.fromkeys(found)


def _kind_facts(group: Mapping[str, object], source: str) -> Iterable[ArtifactFact]:
    """Whether a group is PyTorch's own AdamW, and which, or what no AdamW is. An implementation that says nothing of it shows nothing."""
    if "lr" in group and not {"betas", "eps"} <= group.keys():
        yield ArtifactFact("optimizer", "one without betas and eps", f"{source}: param_groups")
    for switch in ("amsgrad", "maximize"):
        if group.get(switch) is True:
            yield ArtifactFact("optimizer", f"one with {switch}", f"{source}: {switch}")
    if group.get("decoupled_weight_decay") is False:
        yield ArtifactFact("optimizer", "one whose weight decay is not decoupled", f"{source}: decoupled_weight_decay")
    if "fused" in group:
        spelling = "adamw_torch_fused" if group["fused"] is True else "adamw_torch"
        yield ArtifactFact("optimizer.implementation", spelling, f"{source}: fused")


def _optimizer_facts(leaves: Mapping[str, object], source: str) -> Iterable[ArtifactFact]:
    """The optimizer's leaves, spelled by the optimizer's own reader; the implementation is not in the file and only lends its form."""
    read = _read("optimizer", {"implementation": "adamw_torch", **leaves})
    for name, raw in leaves.items():
        spelling = told(raw) if isinstance(read, Unreadable) else leaf_spelling(read.spell(), f"optimizer.{name}")
        yield ArtifactFact(f"optimizer.{name}", spelling, f"{source}: {name}")


def _step(value: object, element: Element) -> int | None:
    number = element(value) if isinstance(value, TensorStub) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or number != number or not 0 <= number < _STEP_MAX:
        return None
    return int(number) if int(number) == number else None


def scheduler_says(value: object, source: str) -> SchedulerSays | Whys:
    """What a scheduler's ``state_dict`` says."""
    table = table_of(value)
    # A chain counts nothing itself: it steps all of its schedulers each time.
    chained = {whole_number(table_of(one).get("last_epoch")) for one in as_list(table.get("_schedulers")) or []}
    step = whole_number(table.get("last_epoch")) if "last_epoch" in table or len(chained) != 1 else chained.pop()
    if step is None:
        return Whys(("it is no state of a scheduler: it has no last_epoch",))
    rates = as_list(table.get("base_lrs")) or []
    facts = [fact("learning_rate", rate, f"{source}: base_lrs") for rate in rates]
    return SchedulerSays(step, tuple(dict.fromkeys((*facts, *_points(table, step, rates, source)))), "num_bad_epochs" in table)


def _points(table: Mapping[str, object], step: int, peaks: Sequence[object], source: str) -> Iterable[ArtifactFact]:
    """The rates that a curve over steps has come to. Of a scheduler that is no such curve nothing is said."""
    rates = as_list(table.get("_last_lr")) or []
    if "lr_lambdas" in table and len(rates) == len(peaks):
        for rate, peak in zip(rates, peaks, strict=True):
            if isinstance(rate, float) and isinstance(peak, float):
                yield RatePoint(step, rate, peak).fact(f"{source}: _last_lr")


@final
@dataclass(frozen=True, slots=True)
class ScalerSays:
    """The scale of gradients now, what each step that was skipped multiplied it by, and what each ``interval`` of others did."""

    scale: float
    backoff: float
    growth: float
    interval: int

    def skips_max(self, steps: int) -> int:
        """How many of so many steps can have been skipped, if the scale began no higher than any library begins it."""
        raised = steps // self.interval * log(self.growth)
        return max(0, floor((log(_SCALE_MAX / self.scale) + raised) / -log(self.backoff) + _ROUNDING))


def scaler_says(value: object) -> ScalerSays | Whys:
    """What a gradient scaler's ``state_dict`` says. One that is switched off keeps none, and skips nothing."""
    if value == {}:
        return ScalerSays(_SCALE_MAX, 0.5, 1.0, 1)
    table = table_of(value)
    scale, backoff = table.get("scale"), table.get("backoff_factor", 0.5)
    growth, interval = table.get("growth_factor", 2.0), whole_number(table.get("growth_interval", 2000))
    if not _is_factor(scale) or not _is_factor(backoff) or not _is_factor(growth) or not backoff < 1 <= growth or not interval:
        return Whys(("it is no state of a gradient scaler",))
    return ScalerSays(float(scale), float(backoff), float(growth), interval)


def _is_factor(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _FACTOR_MAX


def generators_say(value: object) -> tuple[str, ...]:
    """Why the states of the random generators are not all there; empty where they are."""
    table = table_of(value)
    cpu = table.get("cpu")
    found = {
        "Python": _is_python_state(table.get("python")),
        "NumPy": _is_numpy_state(table.get("numpy")),
        "torch": isinstance(cpu, TensorStub) and cpu.storage.dtype == "U8" and len(cpu.shape) == 1,
    }
    return tuple(f"the state of {whose}'s generator is not in it" for whose, is_there in found.items() if not is_there)


def _is_python_state(state: object) -> bool:
    """``random.getstate()``: a version, 624 words and a position, and the spare number of the last Gaussian."""
    parts = cast(tuple[object, ...], state) if isinstance(state, tuple) else ()
    if len(parts) != 3 or not isinstance(parts[0], int) or not isinstance(parts[1], tuple):
        return False
    words = cast(tuple[object, ...], parts[1])
    return len(words) == 625 and all(isinstance(word, int) for word in words)


def _is_numpy_state(state: object) -> bool:
    """``numpy.random.get_state()``: the generator's name, its words as an array or a tensor, a position, and the spare number."""
    match state:
        case (str(), Call() | TensorStub(), int(), int(), float() | int()):
            return True
        case object():
            return False


def table_of(value: object) -> Mapping[str, object]:
    """A dictionary of the file, or an empty one where something else stands there."""
    return cast(Mapping[str, object], value) if isinstance(value, dict) else {}


def whole_number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _STEP_MAX else None
