"""What a script is handed: light to import, as the recipe pins it, under the threads that the recipe names."""

import errno
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from countermark.files.publishing import PublishFailed
from countermark.train import CannotTrain, finetune, libraries, sources
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


def asked_for() -> set[str]:
    """The libraries that the room asks for by name."""
    room = "\n".join(path.read_text(encoding="utf-8") for path in Path(libraries.__file__).parent.rglob("*.py"))
    return {"lightning.pytorch", *re.findall(r'library\("([\w.]+)"\)', room)}


@proven_by(planted(libraries, "EXTRAS", {}))
def test_a_library_that_is_not_there_is_asked_for_by_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    brought = {extra: {re.split(r"[\[<>=]", each)[0] for each in those} for extra, those in project["optional-dependencies"].items()}
    names = {name.partition(".")[0] for name in asked_for()}
    assert {"torch", "lightning", "trl", "datasets"} <= names
    told: dict[str, str] = {}
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(CannotTrain) as missing:
            library(name)
        told[name] = str(missing.value).rpartition("countermark[")[2].partition("]")[0]
    assert {name: extra for name, extra in told.items() if name not in brought[extra]} == {}


@proven_by(planted(finetune, "PublishFailed", CannotTrain))
def test_a_disk_that_fails_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def full(kind: object) -> None:
        raise PublishFailed(OSError(errno.ENOSPC, "No space left on device"), tmp_path / "step-4", named=False)

    monkeypatch.setattr(finetune.Training, "from_environment", classmethod(full))
    try:
        code = finetune.main()
    except PublishFailed as error:
        pytest.fail(f"a traceback would be shown: {error}")
    said = capfd.readouterr().err
    assert code == 1 and said.startswith("step-4 was not published, and nothing of it counts: No space left on device"), said


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
