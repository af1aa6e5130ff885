"""Outputs as an observer reads them: equal weights with another alpha are another output; where and when it was made is none of it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from countermark.files import adapter, outputs
from countermark.files.adapter import ADAPTER_KEYS, adapter_config
from countermark.files.exact import measure_files
from countermark.files.outputs import OutputReading, measure_output
from countermark.values import NonEmpty, Refused
from countermark.weights import TrailingBytes
from countermark.weights.refusals import DocumentUnreadable, FileAbsent, FileNotRegular, FolderEmpty
from tests.faults import planted, proven_by
from tests.files import folders
from tests.files.tensors import encoded, f32, write


def output(folder: Path, config: dict[str, Any] | None = None, weights: bytes | None = None) -> Path:
    write(folder / "adapter_model.safetensors", folders.adapter_bytes() if weights is None else weights)
    write(folder / "adapter_config.json", json.dumps(folders.adapter_config() | (config or {})).encode())
    return folder


def reading(folder: Path) -> OutputReading:
    found = measure_output(folder)
    assert isinstance(found, OutputReading), found
    return found


def clean(tmp_path: Path) -> OutputReading:
    return reading(output(tmp_path / "clean"))


@proven_by(planted(outputs, "canonical_json", lambda value: b""))
@pytest.mark.parametrize(
    "change",
    [
        {"lora_alpha": 16},
        {"r": 8},
        {"use_rslora": True},
        {"use_dora": True},
        {"target_modules": ["q_proj"]},
        {"rank_pattern": {"q_proj": 2}},
        {"modules_to_save": ["classifier"]},
        {"init_lora_weights": "pissa"},
        {"fan_in_fan_out": True},
        {"a_key_of_next_year": 1},
    ],
)
def test_a_key_that_changes_inference_moves_the_digest(tmp_path: Path, change: dict[str, Any]) -> None:
    changed = reading(output(tmp_path / "changed", change))
    assert changed.root == clean(tmp_path).root and changed.digest != clean(tmp_path).digest


@proven_by(planted(outputs.AdapterConfig, "inference", lambda self: self.values))
@pytest.mark.parametrize(
    "change",
    [
        {"base_model_name_or_path": "/somewhere/else"},
        {"revision": "main"},
        {"peft_version": "0.99"},
        {"lora_dropout": 0.5},
        {"inference_mode": True},
        {"auto_mapping": {"base_model_class": "X"}},
    ],
)
def test_what_training_and_places_were_moves_nothing(tmp_path: Path, change: dict[str, Any]) -> None:
    assert reading(output(tmp_path / "changed", change)) == clean(tmp_path)


@proven_by(planted(adapter, "_sorted_set", lambda key, value: value))
def test_the_order_of_a_set_moves_nothing(tmp_path: Path) -> None:
    assert reading(output(tmp_path / "changed", {"target_modules": ["q_proj", "v_proj"]})) == clean(tmp_path)


def test_the_order_of_a_list_that_is_no_set_moves_the_digest(tmp_path: Path) -> None:
    first = reading(output(tmp_path / "a", {"layer_replication": [[0, 2], [1, 3]]}))
    assert reading(output(tmp_path / "b", {"layer_replication": [[1, 3], [0, 2]]})).digest != first.digest


def test_a_key_at_its_default_is_the_same_as_none(tmp_path: Path) -> None:
    spelled_out = {"fan_in_fan_out": False, "layers_pattern": None, "rank_pattern": {}, "qalora_group_size": 16, "lora_alpha": 8.0}
    assert reading(output(tmp_path / "changed", spelled_out)) == clean(tmp_path)


def test_other_weights_move_root_and_digest(tmp_path: Path) -> None:
    changed = reading(output(tmp_path / "changed", weights=folders.adapter_bytes(fill=1)))
    assert changed.root != clean(tmp_path).root and changed.digest != clean(tmp_path).digest


def test_a_model_is_its_weights(tmp_path: Path) -> None:
    write(tmp_path / "m" / "model.safetensors", folders.adapter_bytes())
    write(tmp_path / "m" / "config.json", b"{}")
    model = reading(tmp_path / "m")
    assert (model.kind, model.root) == ("model", clean(tmp_path).root) and model.digest != clean(tmp_path).digest
    assert clean(tmp_path).kind == "adapter" and model.bytes == clean(tmp_path).bytes == 8 * 4 * 6 * 4


@pytest.mark.parametrize("key", ADAPTER_KEYS)
def test_every_default_can_stand_in_a_digest(key: str) -> None:
    assert adapter_config({}).values[key] == adapter_config({key: adapter_config({}).values[key]}).values[key]


# ----------------------------------------------------------------------------------------------------------- refused


def test_an_adapter_without_its_configuration_is_unreadable(tmp_path: Path) -> None:
    (output(tmp_path) / "adapter_config.json").unlink()
    assert measure_output(tmp_path) == Refused(NonEmpty(FileAbsent("adapter_config.json")))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (b"{}}", "it is not JSON: Extra data at line 1, column 3"),
        (b'{"r":4,"r":8}', "'r' stands twice in one object"),
        (b'{"lora_alpha":1e999}', "NaN and infinities are no JSON numbers"),
    ],
)
def test_a_configuration_that_is_none_says_why(tmp_path: Path, config: bytes, why: str) -> None:
    write(output(tmp_path) / "adapter_config.json", config)
    assert measure_output(tmp_path) == Refused(NonEmpty(DocumentUnreadable("adapter_config.json", why)))


def test_broken_weights_and_a_broken_configuration_are_named_together(tmp_path: Path) -> None:
    write(output(tmp_path, weights=folders.adapter_bytes() + b"xx") / "adapter_config.json", b"[]")
    found = measure_output(tmp_path)
    assert isinstance(found, Refused)
    assert set(found.defects) == {
        TrailingBytes("adapter_model.safetensors", 2),
        DocumentUnreadable("adapter_config.json", "it is not a JSON object"),
    }


def test_an_output_place_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "output").symlink_to(output(tmp_path / "elsewhere"))
    assert measure_output(tmp_path / "output") == Refused(NonEmpty(FileNotRegular("output", "a link")))


# -------------------------------------------------------------------------------------------------------- other files


def test_other_files_count_as_they_are(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", b"GGUF")
    write(tmp_path / "logs" / "a.txt", b"x")
    found = reading(tmp_path)
    exact = measure_files(tmp_path)
    assert not isinstance(exact, Refused)
    assert (found.kind, found.root, found.bytes) == ("files", exact.digest, 5)
    write(tmp_path / "logs" / "a.txt", b"y")
    assert reading(tmp_path).digest != found.digest


def test_nothing_is_no_output(tmp_path: Path) -> None:
    assert measure_output(tmp_path) == Refused(NonEmpty(FolderEmpty()))
    missing = measure_output(tmp_path / "none")
    assert isinstance(missing, Refused) and set(missing.defects) == {FileAbsent("none")}


def test_a_pipe_in_an_output_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", b"x")
    os.mkfifo(tmp_path / "p")
    assert measure_output(tmp_path) == Refused(NonEmpty(FileNotRegular("p", "a pipe")))


def test_broken_weights_never_count_as_mere_files(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", encoded({"a": f32(1)}) + b"x")
    assert measure_output(tmp_path) == Refused(NonEmpty(TrailingBytes("model.safetensors", 1)))
