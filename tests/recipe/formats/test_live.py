"""Live configurations: the closed tables, and each field's way into a coordinate, into a refusal or into nothing."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from countermark.recipe import (
    ENTRIES,
    ROSTER,
    AxisUnresolved,
    CoordinateRefused,
    Resolution,
    UnknownField,
    UnsupportedSemanticField,
    resolve,
    spellings,
)
from countermark.recipe.formats.live import Measured, read_live
from countermark.recipe.formats.live_tables import ACCELERATOR_CONFIG, LORA_CONFIG, SFT_CONFIG, TRAINING_ARGUMENTS
from countermark.recipe.formats.rules import Inert, Maps, Refuses
from countermark.recipe.resolve import ResolveDefect
from countermark.values import Refused
from tests.recipe.examples import clean_spellings
from tests.recipe.formats.live_examples import accelerator, arguments, lora, measured, sft

TABLES = {
    "TrainingArguments": TRAINING_ARGUMENTS,
    "SFTConfig": SFT_CONFIG,
    "LoraConfig": LORA_CONFIG,
    "AcceleratorConfig": ACCELERATOR_CONFIG,
}
SEVERAL = "several workers reduce gradients in an order of their own, which this roster has no coordinate for"


def read(
    args: dict[str, object] | None = None, adapter: dict[str, object] | None = None, beside: Measured | None = None, trl: bool = False
) -> Resolution | Refused[ResolveDefect]:
    default = sft() if trl else arguments()
    return resolve(read_live(args or default, adapter or lora(), beside or measured(), trl=trl, tool="transformers 5"))


def spelled(found: Resolution | Refused[ResolveDefect]) -> dict[str, str]:
    assert isinstance(found, Resolution), found
    return spellings(found.manifest)


def defects(found: Resolution | Refused[ResolveDefect]) -> tuple[ResolveDefect, ...]:
    assert isinstance(found, Refused), spellings(found.manifest)
    return tuple(found.defects)


def unresolved(axis: str, field: str, stood: str, source: str = "TrainingArguments") -> AxisUnresolved:
    return AxisUnresolved(axis, field, stood, ENTRIES[axis].says.pin, 0, source)


def test_clean_configurations_say_the_clean_manifest() -> None:
    assert spelled(read()) == spelled(read(trl=True)) == clean_spellings()


def test_every_axis_is_mapped_or_measured_and_every_field_has_its_reason() -> None:
    mapped = {axis for table in TABLES.values() for rule in table.values() if isinstance(rule, Maps) for axis in rule.axes}
    assert mapped | {"base_artifact", "tokenization", "dataset"} == set(ROSTER)
    for name, table in TABLES.items():
        for field, rule in table.items():
            match rule:
                case Inert(reason):
                    assert reason, (name, field)
                case Refuses(neutral, why):
                    assert neutral and why, (name, field)
                case Maps(axes):
                    assert set(axes) <= set(ROSTER) and axes, (name, field)


class Strategy(Enum):
    NO = "no"
    STEPS = "steps"


REFUSALS = [
    *((name, field, rule) for name, table in TABLES.items() for field, rule in table.items() if isinstance(rule, Refuses)),
]


@pytest.mark.parametrize(("config", "field", "rule"), REFUSALS, ids=[f"{config}.{field}" for config, field, _ in REFUSALS])
def test_each_refused_field_is_refused_alone_and_each_neutral_value_accepted(config: str, field: str, rule: Refuses) -> None:
    def with_value(value: object) -> Resolution | Refused[ResolveDefect]:
        match config:
            case "TrainingArguments":
                return read(arguments(**{field: value}))
            case "SFTConfig":
                return read(sft(**{field: value}), trl=True)
            case "LoraConfig":
                return read(adapter=lora(**{field: value}))
        return read(arguments(accelerator_config=accelerator(**{field: value})))

    for neutral in rule.neutral:
        assert spelled(with_value(neutral)) == clean_spellings(), neutral
    where = "TrainingArguments" if config == "AcceleratorConfig" else config
    name = f"accelerator_config.{field}" if config == "AcceleratorConfig" else field
    for value in ("something else", 12.5):
        assert defects(with_value(value)) == (UnsupportedSemanticField(name, repr(value), 0, rule.why, where),)


def test_neutral_values_are_told_from_what_equals_them() -> None:
    """True is 1 and 0 is False in Python, and neither is the other in a configuration."""
    (found,) = defects(read(arguments(local_rank=False)))
    assert found == UnsupportedSemanticField("local_rank", "False", 0, SEVERAL, "TrainingArguments")
    assert len(defects(read(adapter=lora(inference_mode=0)))) == 1


def test_a_field_of_tomorrow_is_unknown_wherever_it_stands() -> None:
    assert defects(read(arguments(seeed=1, accelerator_config=accelerator(sync=True)), lora(use_zora=True))) == (
        UnknownField("seeed", "1", 0, ("seed",), "TrainingArguments"),
        UnknownField("use_zora", "True", 0, ("use_dora", "use_rslora", "use_qalora"), "LoraConfig"),
        UnknownField("accelerator_config.sync", "True", 0, (), "TrainingArguments"),
    )
    assert defects(read(arguments(max_length=64))) == (UnknownField("max_length", "64", 0, (), "TrainingArguments"),)


@dataclass
class Settings:
    split_batches: bool = False
    dispatch_batches: None = None
    even_batches: bool = True
    use_seedable_sampler: bool = True
    non_blocking: bool = False
    gradient_accumulation_kwargs: None = None
    use_configured_state: bool = False


def test_settings_are_read_off_objects_tables_and_nothing() -> None:
    for settings in (Settings(), None, {}, accelerator()):
        assert spelled(read(arguments(accelerator_config=settings))) == clean_spellings()
    assert len(defects(read(arguments(accelerator_config="settings.json")))) == 1
    assert spelled(read(arguments(eval_strategy=Strategy.NO))) == clean_spellings()
    assert len(defects(read(arguments(eval_strategy=Strategy.STEPS)))) == 1


MAPPED: list[tuple[dict[str, object], dict[str, str]]] = [
    ({"per_device_train_batch_size": 8}, {"micro_batch": "8"}),
    ({"gradient_accumulation_steps": 1}, {"gradient_accumulation": "1"}),
    ({"learning_rate": 1e-05}, {"learning_rate": "0.00001"}),
    ({"weight_decay": 0.1}, {"weight_decay": "0.1"}),
    ({"max_steps": 7}, {"total_steps": "7"}),
    ({"warmup_steps": 3.7}, {"warmup_steps": "3"}),
    ({"warmup_steps": 0.05}, {"warmup_steps": "1"}),
    ({"warmup_steps": 0.0501}, {"warmup_steps": "2"}),
    ({"warmup_steps": 0}, {"warmup_steps": "0"}),
    ({"seed": 5}, {"seed": "5"}),
    ({"data_seed": None}, {"data_order": "shuffle(algorithm=torch_randperm_epoch,seed=17)"}),
    ({"train_sampling_strategy": "sequential"}, {"data_order": "sequential"}),
    ({"max_grad_norm": 0.0}, {"max_grad_norm": "off"}),
    ({"max_grad_norm": -1}, {"max_grad_norm": "off"}),
    ({"max_grad_norm": 0.3}, {"max_grad_norm": "0.3"}),
    ({"optim": "adamw_torch_fused"}, {"optimizer": "adamw_torch_fused(beta1=0.9,beta2=0.999,eps=1e-8)"}),
    ({"optim": "adamw_8bit"}, {"optimizer": "adamw_bnb_8bit(beta1=0.9,beta2=0.999,eps=1e-8)"}),
    ({"adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-6}, {"optimizer": "adamw_torch(beta1=0.8,beta2=0.95,eps=0.000001)"}),
    ({"bf16": True}, {"numeric_format": "fp32_bf16amp"}),
    ({"fp16": True}, {"numeric_format": "fp32_fp16amp"}),
    ({"lr_scheduler_type": "cosine"}, {"lr_schedule": "cosine"}),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "moved"), MAPPED, ids=[str(changes) for changes, _ in MAPPED])
def test_each_mapped_field_moves_its_coordinate(changes: dict[str, object], moved: dict[str, str]) -> None:
    assert spelled(read(arguments(**changes))) == clean_spellings(**moved)
    assert spelled(read(sft(**changes), trl=True)) == clean_spellings(**moved)


ADAPTERS: list[tuple[dict[str, object], dict[str, str]]] = [
    ({"r": 8}, {"rank": "8", "scaling": "1"}),
    ({"lora_alpha": 16}, {"scaling": "4"}),
    ({"r": 3, "lora_alpha": 16}, {"rank": "3", "scaling": "5.333333333333333"}),
    ({"use_rslora": True}, {"scaling": "4"}),
    ({"r": 8, "use_rslora": True}, {"rank": "8", "scaling": "2.82842712474619"}),
    ({"lora_dropout": 0.0}, {"dropout": "0"}),
    ({"lora_dropout": 1.0}, {"dropout": "1000"}),
    ({"lora_dropout": 1}, {"dropout": "1000"}),
    ({"target_modules": ["k_proj", "k_proj", "a.b"]}, {"target_modules": "a.b,k_proj"}),
    ({"use_dora": True}, {"method": "dora(init=kaiming)"}),
    ({"init_lora_weights": "Gaussian"}, {"method": "lora(init=gaussian)"}),
    ({"init_lora_weights": "orthogonal"}, {"method": "lora(init=orthogonal)"}),
]


@pytest.mark.parametrize(("changes", "moved"), ADAPTERS, ids=[str(changes) for changes, _ in ADAPTERS])
def test_each_field_of_the_adapter_moves_its_coordinate(changes: dict[str, object], moved: dict[str, str]) -> None:
    assert spelled(read(adapter=lora(**changes))) == clean_spellings(**moved)


def test_one_scaling_has_one_identity_however_it_is_written() -> None:
    plain, stabilized = lora(r=4, lora_alpha=16), lora(r=4, lora_alpha=8, use_rslora=True)
    assert spelled(read(adapter=plain)) == spelled(read(adapter=stabilized)) == clean_spellings(scaling="4")


SFT: list[tuple[dict[str, object], dict[str, str]]] = [
    ({"max_length": 128}, {"sequence_length": "128"}),
    ({"packing": True}, {"packing": "bfd"}),
    ({"packing": True, "packing_strategy": "bfd_split", "padding_free": True}, {"packing": "bfd_split"}),
    ({"packing": True, "packing_strategy": "wrapped"}, {"packing": "concat_split"}),
    ({"padding_free": True}, {"packing": "flatten"}),
    ({"completion_only_loss": True}, {"loss_mask": "completion_only"}),
    ({"assistant_only_loss": True}, {"loss_mask": "assistant_only"}),
    (
        {"shuffle_dataset": True, "train_sampling_strategy": "sequential"},
        {"data_order": "shuffle(algorithm=numpy_permutation,seed=17)"},
    ),
]


@pytest.mark.parametrize(("changes", "moved"), SFT, ids=[str(changes) for changes, _ in SFT])
def test_each_field_of_trl_moves_its_coordinate(changes: dict[str, object], moved: dict[str, str]) -> None:
    assert spelled(read(sft(**changes), trl=True)) == clean_spellings(**moved)


OPEN: list[tuple[dict[str, object], AxisUnresolved]] = [
    ({"max_steps": -1}, unresolved("total_steps", "max_steps", "-1")),
    ({"auto_find_batch_size": True}, unresolved("micro_batch", "auto_find_batch_size", "true")),
    ({"optim": None}, unresolved("optimizer", "optim", "null")),
    ({"bf16": None}, unresolved("numeric_format", "bf16", "null")),
    ({"seed": None}, unresolved("seed", "seed", "null")),
    ({"max_grad_norm": None}, unresolved("max_grad_norm", "max_grad_norm", "null")),
]


@pytest.mark.parametrize(("changes", "found"), OPEN, ids=[str(changes) for changes, _ in OPEN])
def test_each_deferral_is_an_open_axis(changes: dict[str, object], found: AxisUnresolved) -> None:
    assert defects(read(arguments(**changes))) == (found,)


def test_deferrals_of_trl_and_peft_are_open_axes() -> None:
    assert defects(read(sft(completion_only_loss=None, max_length=None), trl=True)) == (
        unresolved("sequence_length", "max_length", "null", "SFTConfig"),
        unresolved("loss_mask", "completion_only_loss", "null", "SFTConfig"),
    )
    for raw, stood in ((None, "null"), ("all-linear", "all-linear"), (".*_proj", ".*_proj"), ("q_proj", "q_proj")):
        assert defects(read(adapter=lora(target_modules=raw))) == (unresolved("target_modules", "target_modules", stood, "LoraConfig"),)
        beside = measured(
            adapted=("a.0.v_proj", "a.0.q_proj", "a.1.q_proj", "a.1.v_proj"), modules=("a", "a.0", "a.0.k_proj", "a.0.q_proj")
        )
        assert spelled(read(adapter=lora(target_modules=raw), beside=beside)) == clean_spellings()
    blind = measured(adapted=("q_proj",), modules=("q_proj", "other.q_proj"))
    assert defects(read(adapter=lora(target_modules=None), beside=blind)) == (
        unresolved("target_modules", "target_modules", "null", "LoraConfig"),
    )


def test_what_was_not_measured_is_open() -> None:
    assert defects(read(beside=Measured())) == (
        *(AxisUnresolved(axis, axis, "", ENTRIES[axis].says.pin) for axis in ("base_artifact", "tokenization", "dataset")),
        unresolved("numeric_format", "the dtypes of base and adapter", "null", "measured"),
        *(AxisUnresolved(axis, axis, "", ENTRIES[axis].says.pin) for axis in ("sequence_length", "packing", "loss_mask")),
    )


def test_epochs_become_steps_once_the_rows_are_known() -> None:
    for rows, epochs, steps in ((37, 3.0, 30), (37, 0.25, 3), (4, 1.0, 1), (1, 2.0, 2), (8, 2.5, 5)):
        found = read(arguments(max_steps=-1, num_train_epochs=epochs, warmup_steps=0), beside=measured(rows=rows))
        assert spelled(found) == clean_spellings(total_steps=str(steps), warmup_steps="0"), (rows, epochs)
    ratio = read(arguments(max_steps=-1, warmup_steps=0.1), beside=measured(rows=37))
    assert spelled(ratio) == clean_spellings(total_steps="30", warmup_steps="3")
    assert defects(read(arguments(max_steps=-1, warmup_steps=0.1))) == (
        unresolved("warmup_steps", "warmup_steps", "0.1"),
        unresolved("total_steps", "max_steps", "-1"),
    )


@pytest.mark.parametrize(
    ("beside", "flags", "word"),
    [
        ({"storage": "bfloat16"}, {"bf16": True}, "bf16_bf16amp"),
        ({"storage": "torch.bfloat16", "adapter_storage": "torch.bfloat16"}, {}, "bf16_pure"),
        ({"quantization": "nf4"}, {"bf16": True}, "nf4_bf16"),
        ({"quantization": "nf4dq"}, {"bf16": True}, "nf4dq_bf16"),
        ({"quantization": "int8"}, {"bf16": True}, "int8_bf16"),
    ],
)
def test_numeric_formats_are_storage_times_compute(beside: dict[str, Any], flags: dict[str, object], word: str) -> None:
    assert spelled(read(arguments(**flags), beside=measured(**beside))) == clean_spellings(numeric_format=word)


WRONG: list[tuple[dict[str, object], dict[str, object], dict[str, Any], tuple[str, str, str]]] = [
    ({"optim": "lion_32bit"}, {}, {}, ("optimizer", "optim", "lion_32bit")),
    ({"lr_scheduler_type": "greedy"}, {}, {}, ("lr_schedule", "lr_scheduler_type", "greedy")),
    ({"lr_scheduler_type": "reduce_lr_on_plateau"}, {}, {}, ("lr_schedule", "lr_scheduler_type", "reduce_lr_on_plateau")),
    ({"train_sampling_strategy": "group_by_length"}, {}, {}, ("data_order", "train_sampling_strategy", "group_by_length")),
    ({"max_steps": 0}, {}, {}, ("total_steps", "max_steps", "0")),
    ({"warmup_steps": -3}, {}, {}, ("warmup_steps", "warmup_steps", "-3")),
    ({"learning_rate": float("nan")}, {}, {}, ("learning_rate", "learning_rate", "nan")),
    ({"learning_rate": 0}, {}, {}, ("learning_rate", "learning_rate", "0")),
    ({}, {"r": 0}, {}, ("rank", "r", "0")),
    ({}, {"lora_dropout": 0.0125}, {}, ("dropout", "lora_dropout", "0.0125")),
    ({}, {"init_lora_weights": "eva"}, {}, ("method", "init_lora_weights", "eva")),
    ({}, {"init_lora_weights": "pissa_niter_4"}, {}, ("method", "init_lora_weights", "pissa_niter_4")),
    ({}, {"init_lora_weights": False}, {}, ("method", "init_lora_weights", "false")),
    ({"fp16": True}, {}, {"storage": "bfloat16"}, ("numeric_format", "fp16", "bfloat16, the adapter float32, fp16 autocast")),
    ({}, {}, {"storage": "bfloat16"}, ("numeric_format", "bf16", "bfloat16, the adapter float32, no autocast")),
    ({}, {}, {"quantization": "nf4"}, ("numeric_format", "bf16", "nf4, the adapter float32, no autocast")),
    (
        {"accelerator_config": {"use_seedable_sampler": False}},
        {},
        {},
        ("data_order", "accelerator_config.use_seedable_sampler", "drawn from the seed's own stream"),
    ),
]


@pytest.mark.parametrize(("args", "adapter", "beside", "wanted"), WRONG, ids=[str(case[3]) for case in WRONG])
def test_what_no_coordinate_can_hold_is_refused_as_that_coordinate(
    args: dict[str, object], adapter: dict[str, object], beside: dict[str, Any], wanted: tuple[str, str, str]
) -> None:
    found = [each for each in defects(read(arguments(**args), lora(**adapter), measured(**beside))) if each]
    bad = [each for each in found if isinstance(each, CoordinateRefused)]
    assert [(each.axis, each.field, each.found) for each in bad if each.axis == wanted[0]] == [wanted]
    assert {getattr(each, "axis", "") for each in found} <= {wanted[0], "scaling" if wanted[0] == "rank" else ""}


def test_combinations_of_trl_that_no_coordinate_can_hold() -> None:
    for changes, axis in [
        ({"packing": True, "packing_strategy": "wrapped", "padding_free": True}, "packing"),
        ({"completion_only_loss": True, "assistant_only_loss": True}, "loss_mask"),
        ({"shuffle_dataset": True}, "data_order"),
        ({"shuffle_dataset": True, "packing": True, "train_sampling_strategy": "sequential"}, "data_order"),
    ]:
        (found,) = defects(read(sft(**changes), trl=True))
        assert isinstance(found, CoordinateRefused)
        assert found.axis == axis


def test_several_workers_are_refused_by_name() -> None:
    assert defects(read(beside=measured(workers=2))) == (
        UnsupportedSemanticField("workers", "2", 0, "several workers reduce gradients in an order that no coordinate holds", "measured"),
    )


def test_an_adapter_beside_a_float32_base_is_float32_and_one_beside_another_is_asked_for() -> None:
    assert spelled(read(beside=measured(adapter_storage=None))) == clean_spellings()
    assert defects(read(beside=measured(storage="bfloat16", adapter_storage=None))) == (
        unresolved("numeric_format", "the dtypes of base and adapter", "null", "measured"),
    )


def test_an_admitted_resume_is_no_change_of_the_computation() -> None:
    assert spelled(read(arguments(resume_from_checkpoint="c/step-4"), beside=measured(resume="c/step-4"))) == clean_spellings()
    assert len(defects(read(arguments(resume_from_checkpoint="c/step-8"), beside=measured(resume="c/step-4")))) == 1


def test_an_initial_seed_that_was_measured_counts_where_none_is_set() -> None:
    found = read(arguments(data_seed=None), beside=measured(initial_seed=99))
    assert spelled(found) == clean_spellings(data_order="shuffle(algorithm=torch_randperm_epoch,seed=99)")
    assert spelled(read(beside=measured(initial_seed=99))) == clean_spellings()
