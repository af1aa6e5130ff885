"""What a script is handed: light to import, as the recipe pins it, under the threads that the recipe names."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from countermark.train import CannotTrain, sources
from countermark.train.libraries import library
from tests.faults import planted, proven_by
from tests.train.tiny import Tiny, honest, make_model, text_rows, train

pytestmark = pytest.mark.torch


def test_importing_the_room_loads_nothing_of_the_training_stack() -> None:
    modules = (
        "torch",
        "transformers",
        "peft",
        "accelerate",
        "lightning",
        "pytorch_lightning",
        "trl",
        "datasets",
        "numpy",
        "safetensors",
        "tokenizers",
    )
    asked = f"import sys, countermark.train, countermark.train.smollm2; print([name for name in {modules} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_library_that_is_not_there_is_asked_for() -> None:
    with pytest.raises(CannotTrain, match=r"pip install 'countermark\[train\]'"):
        library("a_library_that_nobody_has")


def test_the_script_says_how_to_be_run() -> None:
    found = subprocess.run([sys.executable, "-m", "countermark.train.finetune"], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "Run it through countermark: countermark run RECIPE -- python SCRIPT" in found.stderr
    assert "Traceback" not in found.stderr


@proven_by(planted(sources, "_hold", lambda coordinate, place, found, assignment: None))
def test_a_source_that_changed_stops_the_attempt(tiny: Tiny, tmp_path: Path) -> None:
    make_model(tmp_path / "other", seed=1)
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps(row) + "\n" for row in text_rows(5)))
    training = tiny.attempt(sources={"model": str(tmp_path / "other"), "dataset": str(other)}).training()
    with pytest.raises(CannotTrain, match="base_artifact: the recipe pins"):
        training.model()
    with pytest.raises(CannotTrain, match="dataset: the recipe pins"):
        training.rows()
    (tmp_path / "other" / "chat_template.jinja").write_text("{{ messages }}")
    changed = tiny.attempt(sources={"tokenizer": str(tmp_path / "other")}).training()
    with pytest.raises(CannotTrain, match="tokenization: the recipe pins"):
        changed.tokenizer()


def test_a_limit_takes_the_first_rows(tiny: Tiny) -> None:
    short, long = tiny.attempt(rows=text_rows(4)), tiny.attempt(rows=text_rows(9))
    limited = tiny.attempt(rows=text_rows(4), sources={"dataset": str(long.training().assignment.source("dataset")), "dataset_limit": "4"})
    assert limited.training().rows() == short.training().rows()
    with pytest.raises(CannotTrain, match=r"sources\.'dataset_limit' cannot be 'four'"):
        tiny.attempt(sources={"dataset_limit": "four"}).training().rows()


def test_the_recipes_threads_are_torchs(tiny: Tiny) -> None:
    import torch

    attempt = tiny.attempt(settings={"threads": 2})
    try:
        training = attempt.training()
        assert torch.get_num_threads() == 2
        training.run(honest(training).trainer())
    finally:
        torch.set_num_threads(1)
    environment = json.loads((attempt.folder / "environment.json").read_text())
    assert environment["threads"]["intraOp"] == 2


def test_the_execution_environment_is_recorded(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import transformers

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_TOKEN", "secret")
    attempt = tiny.attempt()
    train(attempt)
    found = json.loads((attempt.folder / "environment.json").read_text())
    assert (found["countermark"], found["kind"], found["attempt"]) == (1, "execution-environment", attempt.folder.name)
    assert (found["packages"]["torch"], found["packages"]["transformers"]) == (torch.__version__, transformers.__version__)
    assert (found["device"], found["threads"]["intraOp"], found["kernels"]) == ({"type": "cpu"}, 1, {"attention": "sdpa"})
    assert found["variables"]["OMP_NUM_THREADS"] == "1"
    assert "secret" not in json.dumps(found)
    assert {"deterministicAlgorithms", "tf32", "cudnnDeterministic"} <= found["flags"].keys()


def test_the_same_attempt_twice_gives_the_same_bits_and_another_seed_others(tiny: Tiny) -> None:
    from tests.train.tiny import adapter_bits

    one, two, other, order = (tiny.attempt(**spellings) for spellings in ({}, {}, {"seed": "18"}, {"data_order": "sequential"}))
    for attempt in (one, two, other, order):
        train(attempt)
    assert adapter_bits(one.output) == adapter_bits(two.output)
    assert len({json.dumps({name: bits.hex() for name, bits in adapter_bits(each.output).items()}) for each in (one, other, order)}) == 3


def test_rows_are_permuted_as_datasets_permutes_them(tiny: Tiny) -> None:
    from datasets import Dataset

    training = tiny.attempt(data_order="shuffle(algorithm=numpy_permutation,seed=5)").training()
    tokenizer = training.tokenizer()
    plain = tiny.attempt().training().dataset(tokenizer)
    shuffled = Dataset.from_list([plain[at] for at in range(len(plain))]).shuffle(seed=5)
    assert [row["input_ids"] for row in shuffled] == [training.dataset(tokenizer)[at]["input_ids"] for at in range(len(plain))]


def test_bad_rows_are_named(tiny: Tiny) -> None:
    training = tiny.attempt().training()
    with pytest.raises(CannotTrain, match="Row 2 has no canonical form"):
        training.dataset(training.tokenizer(), [{"text": "a"}, {"text": "b", "weight": float("nan")}])
