"""The readers against what the real libraries write: a tiny LoRA trained for four steps by Transformers and PEFT."""

import dataclasses
import hashlib
import io
import random
import shutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy
import pytest
import safetensors
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments
from transformers.optimization import get_scheduler

from countermark.files.adapter import ADAPTER_KEYS, AdapterConfig, read_adapter
from countermark.files.checkpoints import read_checkpoint
from countermark.files.model_folder import MeasuredBase, measure_base, measure_weights
from countermark.files.outputs import OutputReading, measure_output
from countermark.files.pickles import TensorStub, TorchFile, read_torch_file, scalar
from countermark.files.publishing import PublishedCheckpoint, publish_checkpoint
from countermark.files.reading import OpenFile, open_file
from countermark.run import rates
from countermark.run.checkpoint import (
    AdmittedCheckpoint,
    CheckpointReadback,
    Component,
    ComponentForeign,
    ComponentRead,
    PublicationUnobserved,
    admit_checkpoint,
)
from countermark.values import Refused, Sha256
from countermark.weights import TensorLine, weights_root
from countermark.weights.refusals import PickleUnreadable
from tests.faults import planted, proven_by
from tests.files import folders
from tests.files.torchfiles import Tensor, torch_file
from tests.recipe.examples import clean_manifest, clean_spellings

#: What the trainer's defaults are beside the clean manifest: its AdamW is the fused one.
DESIRED = {
    "learning_rate": "0.01",
    "weight_decay": "0.01",
    "total_steps": "4",
    "warmup_steps": "0",
    "optimizer": "adamw_torch_fused(beta1=0.9,beta2=0.999,eps=1e-8)",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``base`` and the trainer's ``out/checkpoint-2`` and ``out/checkpoint-4``."""
    folder = tmp_path_factory.mktemp("trained")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2
    )
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder / "base")
    lora = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.05, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 64, (22, 8))]
    arguments = TrainingArguments(
        str(folder / "out"), max_steps=4, save_steps=2, per_device_train_batch_size=2, gradient_accumulation_steps=2, learning_rate=0.01,
        weight_decay=0.01, report_to=[], use_cpu=True, seed=17, disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Trainer(model, arguments, train_dataset=rows).train()
    return folder


def readback(folder: Path) -> CheckpointReadback:
    found = read_checkpoint(folder)
    assert isinstance(found, CheckpointReadback)
    return found


def test_a_real_checkpoint_reads_clean_and_only_its_publication_is_unobserved(trained: Path) -> None:
    answer = admit_checkpoint(readback(trained / "out/checkpoint-4"), clean_manifest(**DESIRED), frozenset())
    assert isinstance(answer, Refused)
    assert Counter(answer.defects) == Counter([PublicationUnobserved(("its trainer writes in place, file after file",))])


def test_every_artifact_of_a_real_checkpoint_is_read(trained: Path) -> None:
    found = readback(trained / "out/checkpoint-2")
    assert {fact.leaf for fact in found.facts} == {
        "rank", "scaling", "dropout", "target_modules", "method", "learning_rate", "optimizer.beta1", "optimizer.beta2", "optimizer.eps",
        "optimizer.implementation", "weight_decay", "lr_schedule.rate", "micro_batch", "total_steps",
    }  # fmt: skip
    assert found.optimizer_parameters == 8 and found.optimizer_shapes == found.model_shapes and found.epoch == 4 / 11


def test_a_real_checkpoint_is_published_and_admitted_and_its_steps_told_apart(trained: Path, tmp_path: Path) -> None:
    given: Any = {"attempt": folders.NONCE, "work_key": folders.WORK_KEY, "manifest": clean_spellings(**DESIRED)}
    for step in (2, 4):
        answer = publish_checkpoint(trained / f"out/checkpoint-{step}", tmp_path, step=step, micro_batches=2 * step, **given)
        assert isinstance(answer, PublishedCheckpoint)
        admitted = admit_checkpoint(read_checkpoint(Path(answer.path)), clean_manifest(**DESIRED), frozenset({folders.NONCE}))
        assert isinstance(admitted, AdmittedCheckpoint) and admitted.identity == answer.identity
    wrong = publish_checkpoint(trained / "out/checkpoint-4", tmp_path, step=6, **given)
    assert isinstance(wrong, Refused) and len(wrong.defects) == 3


def test_a_real_optimizer_of_other_targets_is_foreign(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained / "out/checkpoint-4", tmp_path / "checkpoint-4")
    parameters = [torch.nn.Parameter(torch.zeros(4, 16)) for _ in range(12)]
    optimizer = torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.01, fused=True)
    for parameter in parameters:
        parameter.grad = torch.ones(4, 16)
    for _ in range(4):
        optimizer.step()
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    answer = admit_checkpoint(readback(folder), clean_manifest(**DESIRED), frozenset(), vouched=True)
    assert isinstance(answer, Refused)
    assert set(answer.defects) == {ComponentForeign(Component.OPTIMIZER_STATE, "it steps 12 tensors and the weights hold 8")}


def test_the_pickle_of_live_arguments_is_never_read_and_belongs_to_no_component(trained: Path) -> None:
    opened = open_file(trained / "out/checkpoint-4", "training_args.bin")
    assert isinstance(opened, OpenFile)
    with opened:
        found = read_torch_file(opened)
    assert isinstance(found, PickleUnreadable) and "TrainingArguments" in found.whys[0]
    parts = readback(trained / "out/checkpoint-4").components.values()
    assert "training_args.bin" not in {file.name for part in parts if isinstance(part, ComponentRead) for file in part.files}


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt"])
def test_our_reader_says_what_torch_loads(trained: Path, name: str) -> None:
    folder = trained / "out/checkpoint-4"
    opened = open_file(folder, name)
    assert isinstance(opened, OpenFile)
    with opened:
        found = read_torch_file(opened)
        assert isinstance(found, TorchFile)
        assert alike(found.value, torch.load(folder / name, weights_only=True), opened, found)


def alike(ours: object, theirs: object, opened: OpenFile, file: TorchFile) -> bool:
    """Whether an inert value stands for what torch loaded, numbers of single elements included."""
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and list(ours) == list(theirs) and all(alike(ours[key], theirs[key], opened, file) for key in theirs)
    if isinstance(theirs, list | tuple):
        pairs = zip(ours, theirs, strict=True) if isinstance(ours, list | tuple) else ()
        return type(ours) is type(theirs) and all(alike(a, b, opened, file) for a, b in pairs)
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, TensorStub)
        same = ours.shape == tuple(theirs.shape) and ours.stride == theirs.stride()
        return same and (theirs.numel() != 1 or scalar(opened, file, ours) == theirs.item())
    return ours == theirs


DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64"]


@pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=DTYPES)
def test_tensors_of_every_plain_type_are_read(tmp_path: Path, dtype: torch.dtype) -> None:
    torch.save({"t": torch.ones(3, 2, dtype=dtype).T, "s": torch.ones(5, dtype=dtype)[2:4]}, tmp_path / "f.pt")
    opened = open_file(tmp_path, "f.pt")
    assert isinstance(opened, OpenFile)
    with opened:
        found = read_torch_file(opened)
    assert isinstance(found, TorchFile) and isinstance(found.value, dict)
    assert (found.value["t"].shape, found.value["t"].stride, found.value["s"].offset) == ((2, 3), (1, 2), 2)


def test_a_model_with_its_own_dictionary_is_read(tmp_path: Path) -> None:
    """Torch hangs module versions on the dictionary of a module's weights, by setting the state of a dictionary."""
    torch.save(torch.nn.Linear(2, 3).state_dict(), tmp_path / "f.pt")
    opened = open_file(tmp_path, "f.pt")
    assert isinstance(opened, OpenFile)
    with opened:
        found = read_torch_file(opened)
    assert isinstance(found, TorchFile) and isinstance(found.value, dict) and list(found.value) == ["weight", "bias"]


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_other_protocols_are_refused_by_name(tmp_path: Path, protocol: int) -> None:
    torch.save({"a": 1}, tmp_path / "f.pt", pickle_protocol=protocol)
    opened = open_file(tmp_path, "f.pt")
    assert isinstance(opened, OpenFile)
    with opened:
        assert read_torch_file(opened) == PickleUnreadable("f.pt", (f"its pickle is of protocol {protocol}, not 2",))


def test_the_older_form_is_refused_by_name(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "f.pt", _use_new_zipfile_serialization=False)
    opened = open_file(tmp_path, "f.pt")
    assert isinstance(opened, OpenFile)
    with opened:
        found = read_torch_file(opened)
    assert found == PickleUnreadable("f.pt", ("it is a bare pickle, not the archive that torch writes since version 1.6",))


def test_real_states_of_generators_are_whole(tmp_path: Path) -> None:
    states = {"python": random.getstate(), "numpy": numpy.random.get_state(), "cpu": torch.random.get_rng_state()}
    for left_out in (None, *states):
        folder = folders.checkpoint(tmp_path / str(left_out))
        torch.save({key: value for key, value in states.items() if key != left_out}, folder / "rng_state.pth")
        found = readback(folder).components[Component.RNG_STATE]
        assert isinstance(found, ComponentRead) == (left_out is None)


CURVES = [
    ("constant_with_warmup", {}, "constant"),
    ("linear", {}, "linear"),
    ("cosine", {}, "cosine"),
    ("cosine_with_restarts", {"num_cycles": 3}, "cosine_with_restarts(cycles=3)"),
    ("cosine_with_min_lr", {"min_lr_rate": 0.1}, "cosine_with_min_lr(min_lr_rate=0.1)"),
    ("polynomial", {"lr_end": 1e-7, "power": 2.0}, "polynomial(lr_end=1e-7,power=2)"),
    ("inverse_sqrt", {"timescale": 100}, "inverse_sqrt(timescale=100)"),
    *(
        (
            "warmup_stable_decay",
            {"num_decay_steps": 9, "decay_type": shape, "min_lr_ratio": 0.1},
            f"warmup_stable_decay(decay_steps=9,decay_shape={shape},min_lr_rate=0.1)",
        )
        for shape in ("linear", "cosine", "1-sqrt")
    ),
]


@proven_by(planted(rates, "_wave", lambda part: 1 - part), planted(rates, "_warming", lambda schedule, part: part**2))
def test_every_rate_is_the_librarys_own() -> None:
    for name, details, spelling in CURVES:
        schedule = clean_manifest(lr_schedule=spelling).lr_schedule
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=0.002)
        scheduler = get_scheduler(name, optimizer, 4, 20, details)
        for step in range(23):
            rate = rates.rate_after(schedule, 4, 20, step, 0.002)
            assert rate == pytest.approx(scheduler.get_last_lr()[0], rel=1e-12, abs=1e-15), (spelling, step)
            optimizer.step()
            scheduler.step()


# -------------------------------------------------------------------------------------------- the helpers of the other tests


def test_files_made_by_hand_are_what_torch_loads(tmp_path: Path) -> None:
    value = {"a": [1, 2.5, None, True], "b": Tensor("F32", (2, 2), (1, 2, 3, 4)), "c": ("x", {"y": Tensor("I64", (), (7,))})}
    loaded = torch.load(io.BytesIO(torch_file(value)), weights_only=True)
    assert torch.equal(loaded["b"], torch.tensor([[1.0, 2.0], [3.0, 4.0]])) and loaded["c"][1]["y"].item() == 7
    assert loaded["a"] == value["a"]
    state = torch.load(io.BytesIO(torch_file(folders.optimizer())), weights_only=True)
    assert len(state["param_groups"][0]["params"]) == 8 and state["state"][0]["step"].item() == 4


# ------------------------------------------------------------------------------------------------------------ adapters


def test_every_key_of_the_installed_peft_has_its_place_in_the_table() -> None:
    """A release that adds a key is noticed here, before its adapters count as different from older ones."""
    assert {field.name for field in dataclasses.fields(LoraConfig)} == set(ADAPTER_KEYS)


def test_the_tables_defaults_are_those_of_the_library(tmp_path: Path) -> None:
    written = LoraConfig()
    written.save_pretrained(tmp_path)
    found = read_adapter(tmp_path)
    assert isinstance(found, AdapterConfig)
    said = {"peft_type": "LORA", "peft_version": found.values["peft_version"]}
    defaults = {key: dict(known.default) if hasattr(known.default, "items") else known.default for key, known in ADAPTER_KEYS.items()}
    assert dict(found.values) == defaults | said
    assert found.unknown() == ()


def test_saving_twice_gives_one_output_though_no_file_is_the_same(trained: Path, tmp_path: Path) -> None:
    first = measure_output(trained / "out/checkpoint-4")
    base = AutoModelForCausalLM.from_pretrained(trained / "base")
    PeftModel.from_pretrained(base, trained / "out/checkpoint-4").save_pretrained(tmp_path / "again")
    second = measure_output(tmp_path / "again")
    assert isinstance(first, OutputReading) and first == second
    assert (tmp_path / "again/adapter_config.json").read_bytes() != (trained / "out/checkpoint-4/adapter_config.json").read_bytes()
    one, other = (read_adapter(folder) for folder in (trained / "out/checkpoint-4", tmp_path / "again"))
    assert isinstance(one, AdapterConfig) and isinstance(other, AdapterConfig) and one.ran() == other.ran()


# --------------------------------------------------------------------------------------------------------------- bases


def test_a_real_models_root_is_that_of_the_official_readers_bytes(trained: Path) -> None:
    found = measure_base(trained / "base")
    assert isinstance(found, MeasuredBase)
    official = safetensors.deserialize((trained / "base/model.safetensors").read_bytes())
    lines = [TensorLine(name, one["dtype"], tuple(one["shape"]), Sha256(hashlib.sha256(one["data"]).hexdigest())) for name, one in official]
    assert weights_root(lines) == found.weights.root


def test_resharding_and_loading_again_move_nothing(trained: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(trained / "base")
    model.save_pretrained(tmp_path / "sharded", max_shard_size="10KB")
    assert len(list((tmp_path / "sharded").glob("model-*.safetensors"))) > 1
    one, many = measure_base(trained / "base"), measure_base(tmp_path / "sharded")
    assert isinstance(one, MeasuredBase) and isinstance(many, MeasuredBase)
    assert one.weights.root == many.weights.root and one.base_artifact == many.base_artifact
    assert not isinstance(measure_weights(tmp_path / "sharded"), Refused)
