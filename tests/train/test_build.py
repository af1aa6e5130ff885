"""From a manifest to the arguments of the libraries: every coordinate handed over, and what cannot be is refused with every reason."""

import math
from pathlib import Path
from typing import Any

import pytest

from countermark.recipe import Manifest, manifest_from_spellings
from countermark.recipe.coordinates import AdapterInit
from countermark.recipe.numbers import PositiveReal
from countermark.train import CannotTrain, build
from countermark.train.assignment import Assignment, Settings
from countermark.values import Refused, Unreadable
from tests.faults import planted, proven_by
from tests.recipe.examples import CLEAN


def manifest(**spellings: str) -> Manifest:
    found = manifest_from_spellings({**CLEAN, **spellings})
    assert not isinstance(found, Refused), found
    return found


def assignment(**spellings: str) -> Assignment:
    place = Path("/attempts/1")
    return Assignment("1" * 32, "wk1:" + "0" * 64, manifest(**spellings), {}, Settings(5, 10, 1, 2, 0), place, place / "output", None)


def arguments(**spellings: str) -> dict[str, Any]:
    return build.training_arguments(assignment(**spellings), cpu=True)


def reasons(make: Any) -> tuple[str, ...]:
    with pytest.raises(CannotTrain) as caught:
        make()
    return caught.value.reasons


#: Coordinate → another value of it, and what changes in the arguments of TrainingArguments.
TRAINING: dict[str, tuple[str, dict[str, object]]] = {
    "micro_batch": ("3", {"per_device_train_batch_size": 3}),
    "gradient_accumulation": ("5", {"gradient_accumulation_steps": 5}),
    "total_steps": ("21", {"max_steps": 21}),
    "learning_rate": ("0.0003", {"learning_rate": 0.0003}),
    "warmup_steps": ("3", {"warmup_steps": 3}),
    "lr_schedule": (
        "cosine_with_restarts(cycles=3)",
        {"lr_scheduler_type": "cosine_with_restarts", "lr_scheduler_kwargs": {"num_cycles": 3}},
    ),
    "optimizer": (
        "adamw_torch_fused(beta1=0.8,beta2=0.9,eps=1e-7)",
        {"optim": "adamw_torch_fused", "adam_beta1": 0.8, "adam_beta2": 0.9, "adam_epsilon": 1e-7},
    ),
    "weight_decay": ("0.1", {"weight_decay": 0.1}),
    "max_grad_norm": ("off", {"max_grad_norm": 0.0}),
    "seed": ("18", {"seed": 18}),
    "data_order": ("shuffle(algorithm=torch_randperm_epoch,seed=4)", {"data_seed": 4}),
    "numeric_format": ("bf16_bf16amp", {"bf16": True}),
}
LORA: dict[str, tuple[str, dict[str, object]]] = {
    "rank": ("8", {"r": 8, "lora_alpha": 16}),
    "scaling": ("0.5", {"lora_alpha": 2}),
    "dropout": ("125", {"lora_dropout": 0.125}),
    "target_modules": ("k_proj", {"target_modules": ["k_proj"]}),
    "method": ("dora(init=gaussian)", {"use_dora": True, "init_lora_weights": "gaussian"}),
}
SFT: dict[str, tuple[str, dict[str, object]]] = {
    "sequence_length": ("65", {"max_length": 65}),
    "packing": ("concat_split", {"packing": True, "packing_strategy": "wrapped"}),
    "loss_mask": ("completion_only", {"completion_only_loss": True}),
}


def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, object]:
    return {name: value for name, value in after.items() if name not in before or before[name] != value}


@pytest.mark.parametrize("name", TRAINING)
def test_a_coordinate_moves_its_arguments_and_no_others(name: str) -> None:
    spelling, expected = TRAINING[name]
    assert changed(arguments(), arguments(**{name: spelling})) == expected


@pytest.mark.parametrize("name", LORA)
def test_a_coordinate_of_the_adapter_moves_its_arguments(name: str) -> None:
    spelling, expected = LORA[name]
    assert changed(build.lora_config(manifest()), build.lora_config(manifest(**{name: spelling}))) == expected


@pytest.mark.parametrize("name", SFT)
def test_a_coordinate_of_sequences_moves_its_arguments(name: str) -> None:
    spelling, expected = SFT[name]
    before, after = (build.sft_config(assignment(**spellings), cpu=True) for spellings in ({}, {name: spelling}))
    assert changed(before, after) == expected


def test_every_coordinate_that_is_no_content_is_handed_over() -> None:
    assert {*TRAINING, *LORA, *SFT} == CLEAN.keys() - {"base_artifact", "tokenization", "dataset"}


def test_no_warm_up_of_a_constant_rate_is_the_plain_constant() -> None:
    assert arguments(lr_schedule="constant", warmup_steps="0")["lr_scheduler_type"] == "constant"
    assert arguments(lr_schedule="constant", warmup_steps="3")["lr_scheduler_type"] == "constant_with_warmup"


def test_rows_in_their_order_and_rows_laid_out_before_are_fed_as_they_lie() -> None:
    for order in ("sequential", "shuffle(algorithm=numpy_permutation,seed=3)"):
        found = arguments(data_order=order)
        assert found["train_sampling_strategy"] == "sequential"
        assert "data_seed" not in found


def spelled(number: float) -> str:
    read = PositiveReal.read(number)
    assert not isinstance(read, Unreadable)
    return read.spell()


@proven_by(planted(build, "_alpha", lambda manifest: (float(manifest.method.scaling) * manifest.method.rank.number, False)))
def test_the_scaling_comes_out_to_the_bit() -> None:
    """What PEFT computes from the alpha is the scaling itself, whichever of its two ways the recipe's scaling came from."""
    wrong: list[tuple[int, float]] = []
    for rank in (1, 2, 3, 4, 6, 7, 8, 16, 24, 64):
        for alpha in (0.7, *range(1, 65)):
            for scaling in (alpha / rank, alpha / math.sqrt(rank)):
                found: dict[str, Any] = build.lora_config(manifest(rank=str(rank), scaling=spelled(scaling)))
                if found["lora_alpha"] / (math.sqrt(rank) if found["use_rslora"] else rank) != scaling:
                    wrong.append((rank, scaling))
    assert not wrong


def reached(scaling: float, rank: int) -> bool:
    """Whether some float64 divided by the rank, or by its root, is the scaling."""
    for divisor in (rank, math.sqrt(rank)):
        alpha = scaling * divisor
        below, above = math.nextafter(alpha, 0), math.nextafter(alpha, math.inf)
        if any(each / divisor == scaling for each in (math.nextafter(below, 0), below, alpha, above, math.nextafter(above, math.inf))):
            return True
    return False


#: A scaling that PEFT cannot make with rank 7.
NO_ALPHA = spelled(next(number for number in (1.9 + step * 2**-52 for step in range(10_000)) if not reached(number, 7)))

REFUSED: dict[str, tuple[Any, dict[str, str], int]] = {
    "quantized": (build.training_arguments, {"numeric_format": "nf4_bf16"}, 1),
    "seed too large": (build.training_arguments, {"seed": str(2**32)}, 1),
    "both": (build.training_arguments, {"numeric_format": "int8_bf16", "seed": str(2**40)}, 2),
    "packing of TRL": (build.sft_config, {"packing": "flatten"}, 1),
    "mask of TRL": (build.sft_config, {"loss_mask": "last_turn"}, 1),
    "order of TRL": (build.sft_config, {"data_order": "shuffle(algorithm=numpy_permutation,seed=3)"}, 1),
    "all of TRL": (
        build.sft_config,
        {
            "packing": "first_fit",
            "loss_mask": "last_turn",
            "data_order": "shuffle(algorithm=numpy_permutation,seed=3)",
            "numeric_format": "nf4_bf16",
            "seed": str(2**32),
        },
        5,
    ),
}


@pytest.mark.parametrize(("make", "spellings", "count"), REFUSED.values(), ids=REFUSED.keys())
def test_what_a_library_cannot_do_is_refused_with_every_reason(make: Any, spellings: dict[str, str], count: int) -> None:
    found = reasons(lambda: make(assignment(**spellings), cpu=True))
    assert len(found) == count
    assert {reason.partition(" ")[0].rstrip(":") for reason in found} == set(spellings)


def test_every_way_to_begin_has_its_word_in_peft() -> None:
    assert build.INITIALIZATIONS.keys() == AdapterInit.words.keys()


def test_a_scaling_that_no_alpha_gives_is_refused() -> None:
    (reason,) = reasons(lambda: build.lora_config(manifest(rank="7", scaling=NO_ALPHA)))
    assert reason.startswith(f"scaling {NO_ALPHA}: no alpha")
