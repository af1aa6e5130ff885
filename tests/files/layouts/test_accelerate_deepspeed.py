"""Accelerate's folder where DeepSpeed trained: a clean one, each break alone, breaks together, and names that other layouts use too."""

from collections import Counter
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from countermark.files.layouts import accelerate_deepspeed, deepspeed
from countermark.run.checkpoint import ComponentRead, ComponentStepMismatch, PublicationUnobserved, Unobserved
from tests.faults import planted, proven_by
from tests.files.folders import scheduler
from tests.files.layouts import breaking
from tests.files.layouts.breaking import (
    GENERATORS,
    OPTIMIZER,
    POSITION,
    SCHEDULER,
    WEIGHTS,
    Break,
    Files,
    defects,
    expected,
    missing,
    of_workers,
    read,
    unread,
    written,
)
from tests.files.layouts.deepspeeds import model_states, optimizer_states
from tests.files.layouts.test_accelerate import loader, process
from tests.files.torchfiles import torch_file

TAG = "pytorch_model"
MODEL = f"{TAG}/mp_rank_00_model_states.pt"
IN_PLACE = Unobserved((f"latest names '{TAG}', and DeepSpeed's ranks write in place, each for itself",))
incomplete = partial(breaking.incomplete, 8)


def optimizer_name(rank: int) -> str:
    return f"{TAG}/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"


def files(*, step: int = 8, workers: int = 1, **model: Any) -> Files:
    """The files of a clean folder, whose scheduler DeepSpeed does not know."""
    piece = torch_file(optimizer_states(step=step, workers=workers))
    return {
        "latest": TAG.encode(),
        "zero_to_fp32.py": b"print('converts')",
        MODEL: torch_file(model_states(step=step, workers=workers, **({"lr_scheduler": None} | model))),
        **{optimizer_name(rank): piece for rank in range(workers)},
        "scheduler.bin": torch_file(scheduler(step)),
        "dl_state_dict.bin": loader(),
        **{f"random_states_{rank}.pkl": process() for rank in range(workers)},
    }


@pytest.mark.parametrize("name", ["checkpoint_3", "step_8", "checkpoint-8", "kept"])
@proven_by(planted(deepspeed, "is_accelerates", lambda entries: False))
def test_a_clean_folder_is_unobserved_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    folder = written(tmp_path / name, files())
    readback = read(folder)
    assert (readback.layout, readback.step) == ("accelerate-deepspeed", 8)
    assert defects(folder) == Counter([PublicationUnobserved(IN_PLACE.whys)])
    found = {one: part for one, part in readback.components.items() if isinstance(part, ComponentRead)}
    assert {one: [file.name for file in part.files] for one, part in found.items()} == {
        WEIGHTS: [f"{MODEL}: model_weights"],
        OPTIMIZER: [optimizer_name(0)],
        SCHEDULER: ["scheduler.bin"],
        GENERATORS: ["random_states_0.pkl"],
        POSITION: ["dl_state_dict.bin", f"{MODEL}: global_samples"],
    }


def test_deepspeeds_own_scheduler_lies_in_the_models_states(tmp_path: Path) -> None:
    own = {name: content for name, content in files(lr_scheduler=scheduler(8)).items() if name != "scheduler.bin"}
    assert defects(written(tmp_path / "checkpoint_3", own)) == Counter([PublicationUnobserved(IN_PLACE.whys)])


@pytest.mark.parametrize("stepped", [5, 10], ids=["split batches", "a step for each process"])
@proven_by(planted(accelerate_deepspeed, "with_skipped", lambda source, step, skipped: deepspeed.StepWitness(source, step)))
def test_two_workers_that_skipped_steps_are_not_one(tmp_path: Path, stepped: int) -> None:
    changes = {"scheduler.bin": torch_file(scheduler(stepped))}
    changes |= {optimizer_name(rank): torch_file(optimizer_states(step=5, workers=2)) for rank in range(2)}
    folder = written(tmp_path / "checkpoint_3", {**files(workers=2, skipped_steps=3), **changes})
    both = [of_workers(component, 2) for component in (OPTIMIZER, GENERATORS)]
    assert defects(folder) == Counter([*both, PublicationUnobserved(IN_PLACE.whys)])


BREAKS = [
    Break("a scheduler of another step", {"scheduler.bin": torch_file(scheduler(9))}, (ComponentStepMismatch(SCHEDULER, 9),)),
    Break("no scheduler", {"scheduler.bin": None}, (missing(SCHEDULER),)),
    Break(
        "an optimizer of another step", {optimizer_name(0): torch_file(optimizer_states(step=4))}, (ComponentStepMismatch(OPTIMIZER, 4),)
    ),
    Break("no generators", {"random_states_0.pkl": None}, (missing(GENERATORS),)),
    Break("no place in the data", {"dl_state_dict.bin": None}, (missing(POSITION),)),
    Break(
        "a process that is missing",
        {"random_states_0.pkl": None, "random_states_1.pkl": process()},
        (unread(GENERATORS, "random_states_0.pkl is missing, the state of one of 2 workers"),),
    ),
    Break(
        "a model that is cut",
        {MODEL: b"PK"},
        (unread(WEIGHTS, f"{MODEL}: it is too short for an archive"),),
    ),
    Break(
        "a second model",
        {f"{TAG}_1/mp_rank_00_model_states.pt": torch_file(model_states())},
        tuple(unread(one, f"{TAG}_1 holds another model, and is not read") for one in (WEIGHTS, OPTIMIZER)),
    ),
]


def concerned(one: Break) -> set[object]:
    return {getattr(defect, "component", None) for defect in one.found}


@pytest.mark.parametrize("one", BREAKS, ids=str)
def test_a_break_is_named_and_nothing_else(tmp_path: Path, one: Break) -> None:
    assert defects(written(tmp_path / "step_8", files(), one)) == expected(IN_PLACE, 8, one)


@proven_by(planted(accelerate_deepspeed, "tags_of", lambda names: []))
def test_two_breaks_are_both_named_whichever_they_are(tmp_path: Path) -> None:
    """Of different components: within one, what is unreadable takes the place of what is missing."""
    pairs = [(one, other) for one, other in combinations(BREAKS, 2) if concerned(one).isdisjoint(concerned(other))]
    for number, pair in enumerate(pairs):
        folder = written(tmp_path / str(number) / "step_8", files(), *pair)
        assert defects(folder) == expected(IN_PLACE, 8, *pair), [str(one) for one in pair]


def test_a_worker_whose_generators_are_missing_is_told_by_the_states(tmp_path: Path) -> None:
    lost = {name: content for name, content in files(workers=2).items() if name != "random_states_1.pkl"}
    found = defects(written(tmp_path / "step_8", lost))
    why = "random_states_1.pkl is missing, the state of one of 2 workers"
    assert found == incomplete(unread(GENERATORS, why)) + Counter([of_workers(OPTIMIZER, 2)])
