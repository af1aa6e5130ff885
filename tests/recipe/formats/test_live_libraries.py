"""The reader of live configurations against the installed libraries: their fields, their defaults, and what they compute."""

import dataclasses
import math
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from countermark.recipe import ENTRIES, AxisUnresolved, Resolution, project, resolve, spellings
from countermark.recipe.coordinates import AdapterInit
from countermark.recipe.formats.live import read_live
from countermark.recipe.formats.live_schedules import ScheduleInput, read_schedule
from countermark.recipe.formats.live_tables import ACCELERATOR_CONFIG, LORA_CONFIG, SFT_CONFIG, TRAINING_ARGUMENTS
from countermark.values import Refused
from tests.recipe.formats.live_examples import measured

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
trl = pytest.importorskip("trl")


def fields_of(configuration: Any) -> dict[str, object]:
    return {field.name: getattr(configuration, field.name) for field in dataclasses.fields(configuration)}


def names(configuration: type) -> set[str]:
    return {field.name for field in dataclasses.fields(configuration)}


def made(folder: Path, kind: Any = None, **given: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (kind or transformers.TrainingArguments)(output_dir=str(folder), use_cpu=True, report_to="none", **given)


def test_the_tables_have_exactly_the_fields_of_the_installed_libraries() -> None:
    from transformers.trainer_pt_utils import AcceleratorConfig

    assert set(TRAINING_ARGUMENTS) == names(transformers.TrainingArguments)
    assert set(TRAINING_ARGUMENTS) | set(SFT_CONFIG) == names(trl.SFTConfig)
    assert set(TRAINING_ARGUMENTS) & set(SFT_CONFIG) == set()
    assert set(LORA_CONFIG) == names(peft.LoraConfig)
    assert set(ACCELERATOR_CONFIG) == names(AcceleratorConfig)


def test_untouched_configurations_leave_open_what_they_defer_and_nothing_else(tmp_path: Path) -> None:
    adapter = fields_of(peft.LoraConfig(task_type="CAUSAL_LM"))
    plain = project(read_live(fields_of(made(tmp_path)), adapter, measured(), trl=False, tool="t"))
    sft = project(read_live(fields_of(made(tmp_path, trl.SFTConfig)), adapter, measured(), trl=True, tool="t"))
    assert plain.defects == (
        AxisUnresolved("target_modules", "target_modules", "null", ENTRIES["target_modules"].says.pin, 0, "LoraConfig"),
        AxisUnresolved("total_steps", "max_steps", "-1", ENTRIES["total_steps"].says.pin, 0, "TrainingArguments"),
    )
    assert sft.defects == (
        AxisUnresolved("target_modules", "target_modules", "null", ENTRIES["target_modules"].says.pin, 0, "LoraConfig"),
        AxisUnresolved("total_steps", "max_steps", "-1", ENTRIES["total_steps"].says.pin, 0, "SFTConfig"),
        AxisUnresolved("loss_mask", "completion_only_loss", "null", ENTRIES["loss_mask"].says.pin, 0, "SFTConfig"),
    )
    assert plain.spellings()["learning_rate"] == "0.00005"
    assert sft.spellings() | {"learning_rate": "", "numeric_format": ""} == {
        name: text
        for name, text in (plain.spellings() | {"sequence_length": "1024", "learning_rate": "", "numeric_format": ""}).items()
        if name != "loss_mask"
    }


def test_a_pinned_configuration_resolves(tmp_path: Path) -> None:
    arguments = made(tmp_path, max_steps=20, warmup_steps=2, learning_rate=2e-4, optim="adamw_torch", data_seed=3, seed=17)
    adapter = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"], r=4, lora_alpha=8, lora_dropout=0.05)
    resolution = resolve(read_live(fields_of(arguments), fields_of(adapter), measured(), trl=False, tool="t"))
    assert isinstance(resolution, Resolution)
    found = spellings(resolution.manifest)
    assert (found["scaling"], found["dropout"], found["target_modules"]) == ("2", "50", "q_proj,v_proj")


@pytest.mark.parametrize("warmup", [0, 1, 7, 7.9, 0.01, 0.05, 0.0501, 0.999])
@pytest.mark.parametrize("total", [1, 19, 20, 1000])
def test_warmup_is_rounded_as_the_trainer_rounds_it(tmp_path: Path, warmup: float, total: int) -> None:
    arguments = made(tmp_path, max_steps=total, warmup_steps=warmup)
    found = project(read_live(fields_of(arguments), fields_of(peft.LoraConfig()), measured(), trl=False, tool="t")).spellings()
    assert found["warmup_steps"] == str(arguments.get_warmup_steps(total))


@pytest.mark.parametrize(("rows", "micro", "accumulation", "epochs"), [(37, 2, 2, 3.0), (37, 8, 4, 0.3), (1, 8, 1, 1.0), (64, 4, 3, 2.5)])
def test_epochs_become_the_steps_that_the_trainer_takes(tmp_path: Path, rows: int, micro: int, accumulation: int, epochs: float) -> None:
    given = {"per_device_train_batch_size": micro, "gradient_accumulation_steps": accumulation, "num_train_epochs": epochs}
    arguments = made(tmp_path, **given)
    dataset = [{"x": torch.zeros(1), "labels": torch.zeros(1)}] * rows
    trainer = transformers.Trainer(model=torch.nn.Linear(1, 1), args=arguments, train_dataset=dataset)
    total = trainer.set_initial_training_values(arguments, trainer.get_train_dataloader())[-1]
    found = project(read_live(fields_of(arguments), fields_of(peft.LoraConfig()), measured(rows=rows), trl=False, tool="t")).spellings()
    assert found["total_steps"] == str(total)


def order(tmp_path: Path, rows: int, epochs: int, **given: Any) -> list[list[int]]:
    """The rows in the order in which the Trainer's own loader yields them."""
    arguments = made(tmp_path, per_device_train_batch_size=1, **given)
    dataset = [{"x": torch.tensor([float(at)]), "labels": torch.tensor([0.0])} for at in range(rows)]
    trainer = transformers.Trainer(model=Takes(), args=arguments, train_dataset=dataset)
    loader = trainer.get_train_dataloader()
    found = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        found.append([int(batch["x"][0, 0]) for batch in loader])
    return found


class Takes(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A model whose signature names the columns."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(1, 1)

    def forward(self, x: Any, labels: Any) -> Any:
        return {"loss": (self.line(x) - labels).pow(2).mean()}


@pytest.mark.parametrize("seeds", [{"data_seed": 7}, {"seed": 7}, {"seed": 7, "data_seed": None}, {"seed": 1, "data_seed": 7}])
def test_torch_randperm_epoch_is_what_the_trainer_does(tmp_path: Path, seeds: dict[str, Any]) -> None:
    wanted = [torch.randperm(13, generator=torch.Generator().manual_seed(7 + epoch)).tolist() for epoch in range(3)]
    assert order(tmp_path, 13, 3, **seeds) == wanted
    assert order(tmp_path, 13, 2, train_sampling_strategy="sequential", **seeds) == [list(range(13))] * 2


def test_numpy_permutation_is_what_datasets_does() -> None:
    numpy, datasets = pytest.importorskip("numpy"), pytest.importorskip("datasets")
    shuffled = datasets.Dataset.from_dict({"at": list(range(13))}).shuffle(seed=7)["at"]
    assert list(shuffled) == numpy.random.default_rng(7).permutation(13).tolist()


def factors(kind: str, warmup: int, total: int, **settings: Any) -> list[float]:
    """The learning rates of a schedule, step by step, as they come out."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3e-4)
    schedule = transformers.get_scheduler(kind, optimizer, warmup, total, settings)
    found = []
    for _ in range(total):
        found.append(float(schedule.get_last_lr()[0]))
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize("warmup", [0, 3])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("cosine_with_restarts", {"num_cycles": 1}), ("cosine", {})),
        (("cosine_with_min_lr", {"min_lr_rate": 0.0}), ("cosine", {})),
        (("cosine_with_min_lr", {"min_lr": 3e-5}), ("cosine_with_min_lr", {"min_lr_rate": 3e-5 / 3e-4})),
        (("warmup_stable_decay", {"num_decay_steps": 5}), ("warmup_stable_decay", {"num_decay_steps": 5, "decay_type": "cosine"})),
        (("inverse_sqrt", {}), ("inverse_sqrt", {"timescale": 0})),
        (("polynomial", {}), ("polynomial", {"lr_end": 1e-7, "power": 1.0})),
    ],
)
def test_schedules_that_are_one_value_give_the_same_rates_to_the_bit(warmup: int, one: tuple[str, Any], other: tuple[str, Any]) -> None:
    if one[0] == "inverse_sqrt":
        other = ("inverse_sqrt", {"timescale": warmup or 10_000})
    if one[0] == "warmup_stable_decay":
        other[1]["num_stable_steps"] = 20 - warmup - 5
    assert factors(one[0], warmup, 20, **one[1]) == factors(other[0], warmup, 20, **other[1])
    left, right = (read_schedule(ScheduleInput(kind, settings, 3e-4, warmup, 20)) for kind, settings in (one, other))
    assert left == right is not None


def test_a_constant_without_warmup_is_one_schedule_by_two_names() -> None:
    assert (
        factors("constant", 0, 9)
        == factors("constant_with_warmup", 0, 9)
        == factors("constant", 5, 9)
        != factors("constant_with_warmup", 5, 9)
    )


@pytest.mark.parametrize("arm", [arm.arm for arm in ENTRIES["lr_schedule"].kind.arms])
def test_every_schedule_has_rates_of_its_own(arm: str) -> None:
    settings = {
        "cosine_with_restarts": {"num_cycles": 2},
        "cosine_with_min_lr": {"min_lr_rate": 0.1},
        "warmup_stable_decay": {"num_decay_steps": 5},
    }
    rates = {
        each.arm: factors(each.arm, 3, 20, **settings.get(each.arm, {}))
        for each in ENTRIES["lr_schedule"].kind.arms
        if each.arm != "constant"
    }
    rates["constant"] = factors("constant_with_warmup", 3, 20)
    assert [other for other, found in rates.items() if found == rates[arm]] == [arm]


@pytest.mark.parametrize("name", ["adamw_torch", "adamw_torch_fused"])
def test_an_optimizer_is_its_implementation_and_three_numbers(tmp_path: Path, name: str) -> None:
    arguments = made(tmp_path, optim=name, adam_beta1=0.8, adam_beta2=0.95, adam_epsilon=1e-6)
    trainer = transformers.Trainer(model=torch.nn.Linear(1, 1), args=arguments)
    kind, numbers = trainer.get_optimizer_cls_and_kwargs(arguments)
    assert kind is torch.optim.AdamW
    assert {key: value for key, value in numbers.items() if key != "fused"} == {"lr": 5e-5, "betas": (0.8, 0.95), "eps": 1e-6}
    assert numbers.get("fused", False) is (name == "adamw_torch_fused")


def test_every_implementation_is_one_that_transformers_knows() -> None:
    from transformers.training_args import OptimizerNames

    assert {arm.arm for arm in ENTRIES["optimizer"].kind.arms} < {str(name.value) for name in OptimizerNames}


class Tiny(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Two layers to adapt."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.v_proj = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.v_proj(self.q_proj(x))


@pytest.mark.parametrize(("rank", "alpha", "root"), [(4, 8, False), (3, 16, False), (4, 8, True), (8, 16, True), (7, 5, True)])
def test_the_scaling_is_the_float_that_peft_multiplies_by(rank: int, alpha: int, root: bool) -> None:
    config = peft.LoraConfig(target_modules=["q_proj"], r=rank, lora_alpha=alpha, use_rslora=root)
    layer = peft.get_peft_model(Tiny(), config).base_model.model.q_proj
    found = project(read_live({}, fields_of(config), measured(), trl=False, tool="t")).values["scaling"]
    assert float(found) == layer.scaling["default"]  # type: ignore[arg-type]


@pytest.mark.parametrize("word", list(AdapterInit.words))
def test_every_start_of_an_adapter_leaves_the_base_alone(word: str) -> None:
    torch.manual_seed(0)
    model = Tiny()
    before = model.q_proj.weight.detach().clone()
    config = peft.LoraConfig(target_modules=["q_proj"], r=4, init_lora_weights=True if word == "kaiming" else word)
    layer = peft.get_peft_model(model, config).base_model.model.q_proj
    assert torch.equal(layer.base_layer.weight, before)
    assert layer.lora_A["default"].weight.any()


def test_each_evaluation_draws_what_dropout_would_have_drawn() -> None:
    """Why evaluating while training is refused: a data loader draws a seed from the generator that dropout draws from."""
    loader = torch.utils.data.DataLoader([0, 1], batch_size=1)
    torch.manual_seed(0)
    plain = torch.nn.functional.dropout(torch.ones(64), 0.5)
    torch.manual_seed(0)
    list(loader)
    assert not torch.equal(plain, torch.nn.functional.dropout(torch.ones(64), 0.5))


def test_a_loader_that_lives_on_draws_once_and_a_fresh_one_in_every_epoch() -> None:
    """Why persistent workers are refused."""

    def state_after(persistent: bool) -> Any:
        loader = torch.utils.data.DataLoader([0, 1], num_workers=1, persistent_workers=persistent)
        torch.manual_seed(0)
        for _ in range(2):
            list(islice(loader, 2))
        return torch.get_rng_state()

    assert not torch.equal(state_after(True), state_after(False))


def test_a_scaling_of_any_alpha_and_rank_is_spelled_and_read_to_the_bit() -> None:
    for rank in (1, 2, 3, 7, 8, 12, 64, 100):
        for alpha in (1, 2, 5, 16, 32, 33):
            for number in (alpha / rank, alpha / math.sqrt(rank)):
                config = {"r": rank, "lora_alpha": alpha, "use_rslora": number != alpha / rank}
                value = project(read_live({}, config, measured(), trl=False, tool="t")).values["scaling"]
                assert float(value) == number  # type: ignore[arg-type]


def test_nothing_is_refused_of_what_the_libraries_set_by_themselves(tmp_path: Path) -> None:
    """Objects change their own fields after they are made: what is neutral must stay neutral."""
    model = peft.get_peft_model(Tiny(), peft.LoraConfig(target_modules=["q_proj", "v_proj"]))
    arguments = made(tmp_path, max_steps=1)
    transformers.Trainer(model=model, args=arguments)
    adapter = fields_of(model.peft_config["default"])
    assert not isinstance(resolve(read_live(fields_of(arguments), adapter, measured(), trl=False, tool="t")), Refused)
