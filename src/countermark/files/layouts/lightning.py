"""Checkpoints of PyTorch Lightning: ``epoch=E-step=N.ckpt``, one file of ``torch.save`` with everything in it.

Rules kept here:

1. The file is read once, without executing it. Each component is a portion of it with a digest of its own, and every value in the file is
   in exactly one of them: no change goes unseen.
2. A file that is cut or damaged has no component at all, and each of the five says why.
3. Lightning keeps no state of the random generators by itself. Where a callback put one in (under ``rng_state``), that one is read; else it
   is missing, and a note says so.
4. A step is an optimizer's: the steps of several optimizers add up to ``global_step``. A scheduler may be stepped each epoch, so its count
   is held against the trainer's own count of scheduler steps, and tells a step only where it was stepped with each. Where gradients are
   scaled, an optimizer took fewer steps than are counted, and its scheduler was stepped all the same: they tell a step only where they
   are not fewer. It is one file, so that they are of one step.
5. ``Atomic`` is said of a whole file. Lightning writes it elsewhere and moves it into place; where that is a copy, the archive's directory
   is what is written last, so that no proper beginning of the file has one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, final

from countermark.files.documents import as_list
from countermark.files.layouts.portions import OpenValues, take_values
from countermark.files.layouts.reading import Layout, LayoutReading, Naming, Parts, Whys
from countermark.files.layouts.states import generators_say, optimizer_says, scheduler_says, table_of, whole_number
from countermark.files.pickles import TensorStub
from countermark.files.reading import Entry
from countermark.lines.defects import sentence
from countermark.run.checkpoint import COMPONENTS, Atomic, Component, Incomplete, StepWitness, Unobserved
from countermark.weights import name_defects
from countermark.weights.refusals import FileChanged, FileDefect

VERSION: Final = "pytorch-lightning_version"
WEIGHTS: Final = "state_dict"
OPTIMIZERS: Final = "optimizer_states"
SCHEDULERS: Final = "lr_schedulers"
GENERATORS: Final = "rng_state"
LOOPS: Final = "loops"
#: The classes of the plugins that scale gradients, under which their states lie.
SCALERS: Final = ("MixedPrecision", "FSDPPrecision")
SUFFIX: Final = ".ckpt"

#: Which component each value at the top belongs to. The states of data modules and callbacks lie under names of their own, and say where
#: the data stood: they and all else belong to that.
_BELONGS: Final[Mapping[str, Component]] = MappingProxyType(
    {
        WEIGHTS: Component.MODEL_WEIGHTS,
        VERSION: Component.MODEL_WEIGHTS,
        "hyper_parameters": Component.MODEL_WEIGHTS,
        "hparams_name": Component.MODEL_WEIGHTS,
        "hparams_type": Component.MODEL_WEIGHTS,
        OPTIMIZERS: Component.OPTIMIZER_STATE,
        **dict.fromkeys(SCALERS, Component.OPTIMIZER_STATE),
        SCHEDULERS: Component.SCHEDULER_STATE,
        GENERATORS: Component.RNG_STATE,
    }
)
#: What a component is not there without.
_NEEDED: Final[Mapping[Component, str]] = MappingProxyType(
    {
        Component.MODEL_WEIGHTS: WEIGHTS,
        Component.OPTIMIZER_STATE: OPTIMIZERS,
        Component.SCHEDULER_STATE: SCHEDULERS,
        Component.RNG_STATE: GENERATORS,
        Component.DATA_POSITION: LOOPS,
    }
)
_PROOF: Final = "the archive's directory, which is written last, is there, and every checksum in it holds"
_NO_GENERATORS: Final = (
    f"Lightning keeps no state of the random generators: a callback can put one into the checkpoint under {GENERATORS!r}; "
    "without it, a run that goes on from here takes other random numbers"
)


def _read(path: Path, _: tuple[Entry, ...]) -> LayoutReading:
    found = take_values(path.parent, path.name, _judge)
    return found if isinstance(found, LayoutReading) else _refused(found)


def _judge(held: OpenValues) -> LayoutReading | Whys:
    if not isinstance(held.values.get(VERSION), str):
        return Whys((f"it is no checkpoint of Lightning: it has no {VERSION}",))
    return _Checkpoint(held, held.values).reading()


def _refused(why: FileDefect | Whys) -> LayoutReading:
    """A file that nothing is read of: that speaks against each component."""
    parts: dict[Component, Parts] = {component: Parts() for component in COMPONENTS}
    for one in parts.values():
        if isinstance(why, Whys):
            one.whys.extend(why.texts)
        else:
            one.defect(why)
    changing = isinstance(why, FileChanged)
    said = Unobserved(("the file changed while it was read",)) if changing else Incomplete(("the file cannot be read",))
    return LayoutReading(publication=said).settle(parts)


@final
@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """The values of a checkpoint while its file is open."""

    held: OpenValues
    values: Mapping[str, object]

    def reading(self) -> LayoutReading:
        scaled = any(scaler in self.values for scaler in SCALERS)
        reading = LayoutReading(publication=Atomic(_PROOF), scaled=scaled)
        parts = {component: self._parts(component) for component in COMPONENTS}
        self._judge_weights(parts[Component.MODEL_WEIGHTS])
        self._judge_position(parts[Component.DATA_POSITION], reading)
        self._judge_optimizers(parts[Component.OPTIMIZER_STATE], reading)
        self._judge_schedulers(parts[Component.SCHEDULER_STATE], reading)
        self._judge_generators(parts[Component.RNG_STATE], reading)
        return reading.settle(parts)

    def _parts(self, component: Component) -> Parts:
        """The portions of a component, each as a file of its own."""
        parts = Parts()
        if _NEEDED[component] not in self.values:
            parts.absent.append(_NEEDED[component])
            return parts
        for name in self.values:
            if _BELONGS.get(str(name), Component.DATA_POSITION) is component:
                self.held.put(parts, name, str(name))
        return parts

    def _judge_weights(self, parts: Parts) -> None:
        held = table_of(self.values.get(WEIGHTS))
        if not parts.absent and not any(isinstance(value, TensorStub) for value in held.values()):
            parts.whys.append(f"{WEIGHTS}: it holds no tensor")
        parts.whys.extend(sentence(defect).message for defect in name_defects(str(name) for name in held))

    def _judge_optimizers(self, parts: Parts, reading: LayoutReading) -> None:
        states = self._listed(OPTIMIZERS, parts)
        if states is None:
            return
        if not states:
            parts.absent.append(OPTIMIZERS)
        steps: list[tuple[int, ...]] = []
        for at, state in enumerate(states):
            source = f"{OPTIMIZERS}[{at}]"
            says = optimizer_says(state, self.held.element, source)
            if isinstance(says, Whys):
                parts.refuse(source, says)
                continue
            steps.append(says.steps)
            reading.facts.extend(says.facts)
        if len(steps) == 1:
            told = [StepWitness(f"{OPTIMIZERS}[0]: step", step) for step in steps[0]]
        else:
            told = [StepWitness(f"{OPTIMIZERS}: the steps of all {len(steps)}", sum(map(max, steps)))] if steps and all(steps) else []
            parts.whys.extend(
                f"{OPTIMIZERS}[{at}]: its tensors took different numbers of steps: {', '.join(map(str, one))}"
                for at, one in enumerate(steps)
                if len(one) > 1
            )
        skipped = range(reading.step or 0) if reading.scaled else range(0)
        parts.steps.extend(one for one in told if one.step not in skipped)

    def _judge_schedulers(self, parts: Parts, reading: LayoutReading) -> None:
        states = self._listed(SCHEDULERS, parts)
        if states is None:
            return
        steps: list[int] = []
        for at, state in enumerate(states):
            says = scheduler_says(state, f"{SCHEDULERS}[{at}]")
            if isinstance(says, Whys):
                parts.refuse(f"{SCHEDULERS}[{at}]", says)
                continue
            steps.append(says.step)
            reading.facts.extend(says.facts)
        counted = _count(self._fit_loop(), "epoch_loop.scheduler_progress", "total", "completed")
        if not parts.whys and counted is not None and sum(steps) != counted:
            parts.whys.append(f"{SCHEDULERS}: they were stepped {sum(steps)} times, and the trainer counted {counted}")
        elif reading.step is not None and counted == len(steps) * reading.step:
            parts.steps.extend(StepWitness(f"{SCHEDULERS}[{at}]: last_epoch", step) for at, step in enumerate(steps))

    def _judge_generators(self, parts: Parts, reading: LayoutReading) -> None:
        if parts.absent:
            reading.notes = (*reading.notes, _NO_GENERATORS)
            return
        states = dict(table_of(self.values[GENERATORS]))
        # Lightning's own collection calls what belongs to torch by that name.
        parts.whys.extend(f"{GENERATORS}: {why}" for why in generators_say({"cpu": states.get("torch"), **states}))

    def _judge_position(self, parts: Parts, reading: LayoutReading) -> None:
        step = whole_number(self.values.get("global_step"))
        if step is None:
            parts.whys.append("global_step: it is no number of steps")
            return
        reading.step = step
        if parts.absent:
            return
        parts.steps.append(StepWitness("global_step", step))
        counts = tuple(_optimizer_steps(self._fit_loop()))
        if len(counts) < 2:
            parts.whys.append(f"{LOOPS}: they do not tell how many steps the optimizers took")
        else:
            parts.steps.append(StepWitness(f"{LOOPS}: optimizer steps", sum(counts)))
        taken = _count(self._fit_loop(), "epoch_loop.batch_progress", "total", "processed")
        if taken is None:
            parts.whys.append(f"{LOOPS}: they do not tell how many batches were taken")
        else:
            reading.micro_batches, reading.epoch = taken, _epoch(self._fit_loop(), taken)

    def _listed(self, name: str, parts: Parts) -> list[object] | None:
        """The states under a name, None where there are none; what is no list of them is refused."""
        states = as_list(self.values.get(name))
        if states is None and not parts.absent:
            parts.whys.append(f"{name}: it is no list of states")
        return states

    def _fit_loop(self) -> Mapping[str, object]:
        return table_of(table_of(self.values.get(LOOPS)).get("fit_loop"))


def _count(loop: Mapping[str, object], *path: str) -> int | None:
    """A count of the trainer's, by the names that lead to it."""
    value: object = loop
    for name in path:
        value = table_of(value).get(name)
    return whole_number(value)


def _optimizer_steps(loop: Mapping[str, object]) -> Iterator[int]:
    """How often optimizers were stepped by the trainer, and by the module itself."""
    for path in (
        ("epoch_loop.automatic_optimization.optim_progress", "optimizer", "step", "total", "completed"),
        ("epoch_loop.manual_optimization.optim_step_progress", "total", "completed"),
    ):
        count = _count(loop, *path)
        if count is not None:
            yield count


def _epoch(loop: Mapping[str, object], taken: int) -> float | None:
    """How many epochs these micro batches are, None where the length of one cannot be told yet."""
    ended = _count(loop, "epoch_progress", "total", "completed")
    here = _count(loop, "epoch_loop.batch_progress", "current", "processed")
    if ended is None or here is None:
        return None
    if not ended:
        return taken / here if table_of(loop.get("epoch_loop.batch_progress")).get("is_last_batch") is True and here else None
    length, rest = divmod(taken - here, ended)
    return taken / length if length > 0 and not rest else None


FILE: Final = Layout(
    "lightning",
    (Naming("epoch={epoch}-step={step}.ckpt"), Naming("step={step}.ckpt")),
    lambda path, _: path.name.endswith(SUFFIX),
    _read,
    kind="a regular file",
)
