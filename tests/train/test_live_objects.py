"""Live objects of a script to a manifest: the one that the same recipe names."""

from pathlib import Path
from typing import Any

import pytest

from countermark.files.tokenizer_folder import MeasuredTokenizer, measure_tokenizer
from countermark.recipe import AxisUnresolved, Resolution, UnsupportedSemanticField, resolve, spellings
from countermark.train import objects, observe_live
from countermark.values import Refused
from tests.faults import planted, proven_by
from tests.train.tiny import Tiny, prompt_rows, text_rows

pytestmark = pytest.mark.torch


def resolved(observations: Any) -> dict[str, str]:
    found = resolve(observations)
    assert isinstance(found, Resolution), found
    return spellings(found.manifest)


@proven_by(planted(objects, "_ADAPTER_PARTS", ()))
def test_the_objects_of_an_attempt_name_its_manifest(tiny: Tiny) -> None:
    attempt = tiny.attempt()
    training = attempt.training()
    tokenizer = training.tokenizer()
    observed = observe_live(
        training.training_arguments(),
        training.lora_config(),
        model=training.adapted_model(),
        tokenizer=tokenizer,
        rows=training.rows(),
        dataset=training.dataset(tokenizer),
    )
    assert resolved(observed) == attempt.desired


def test_trls_objects_name_the_same_manifest(tiny: Tiny) -> None:
    from datasets import Dataset

    attempt = tiny.attempt(rows=prompt_rows(), packing="concat_split", loss_mask="completion_only")
    training = attempt.training()
    rows = Dataset.from_list(prompt_rows())
    model, tokenizer = training.model(), training.tokenizer()
    observed = observe_live(training.sft_config(), training.lora_config(), model=model, tokenizer=tokenizer, rows=rows)
    assert resolved(observed) == attempt.desired


def test_epochs_become_steps_by_what_the_trainer_is_fed(tiny: Tiny) -> None:
    from transformers import TrainingArguments

    from countermark.train import build

    attempt = tiny.attempt()
    training = attempt.training()
    tokenizer = training.tokenizer()
    arguments = {**build.training_arguments(training.assignment, cpu=True), "max_steps": -1, "num_train_epochs": 2}
    dataset = training.dataset(tokenizer)
    observed = observe_live(
        TrainingArguments(**arguments),
        training.lora_config(),
        model=training.model(),
        tokenizer=tokenizer,
        rows=text_rows(),
        dataset=dataset,
    )
    # Nine rows are five micro batches, which are three steps.
    assert resolved(observed) == {**attempt.desired, "total_steps": "6"}


def test_what_nobody_handed_over_stays_open(tiny: Tiny) -> None:
    training = tiny.attempt().training()
    found = resolve(observe_live(training.training_arguments(), training.lora_config()))
    assert isinstance(found, Refused)
    assert {defect.axis for defect in found.defects if isinstance(defect, AxisUnresolved)} == {
        "base_artifact",
        "tokenization",
        "dataset",
        "numeric_format",
        "sequence_length",
        "packing",
        "loss_mask",
    }
    assert all(isinstance(defect, AxisUnresolved) for defect in found.defects)


def test_what_has_no_coordinate_is_refused(tiny: Tiny) -> None:
    training = tiny.attempt().training()
    arguments, lora = training.training_arguments(), training.lora_config()
    arguments.label_smoothing_factor, lora.rank_pattern = 0.1, {"q_proj": 2}
    found = resolve(observe_live(arguments, lora, model=training.model(), tokenizer=training.tokenizer(), rows=text_rows()))
    assert isinstance(found, Refused)
    fields = {defect.field for defect in found.defects if isinstance(defect, UnsupportedSemanticField)}
    assert fields == {"label_smoothing_factor", "rank_pattern"}


def test_a_pattern_of_targets_is_resolved_by_the_adapted_model(tiny: Tiny) -> None:
    attempt = tiny.attempt()
    training = attempt.training()
    lora = training.lora_config()
    lora.target_modules = r".*\.(q|v)_proj"
    import peft

    model = peft.get_peft_model(training.model(), lora)
    tokenizer = training.tokenizer()
    observed = observe_live(
        training.training_arguments(), lora, model=model, tokenizer=tokenizer, rows=text_rows(), dataset=training.dataset(tokenizer)
    )
    assert resolved(observed) == attempt.desired


def test_a_folder_that_is_gone_leaves_the_tokenizer_measurable(tiny: Tiny, tmp_path: Path) -> None:
    import shutil

    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(tiny.model).save_pretrained(tmp_path / "copy")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "copy")
    measured = measure_tokenizer(tmp_path / "copy")
    assert isinstance(measured, MeasuredTokenizer)
    shutil.rmtree(tmp_path / "copy")
    training = tiny.attempt().training()
    observed = observe_live(
        training.training_arguments(),
        training.lora_config(),
        model=training.model(),
        tokenizer=tokenizer,
        rows=text_rows(),
        dataset=training.dataset(training.tokenizer()),
    )
    assert resolved(observed)["tokenization"] == measured.tokenization.spell()
