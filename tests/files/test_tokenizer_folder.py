"""Tokenizers as files: what moves the coordinate, special ids, and templates."""

import json
from pathlib import Path
from typing import Any

import pytest

from countermark.files.tokenizer_folder import MeasuredTokenizer, measure_tokenizer
from countermark.recipe.canonical import tokenization_digest
from countermark.values import NonEmpty, Refused
from countermark.weights.refusals import DocumentUnreadable, FileAbsent, LinkLeavesFolder, TokenizerAbsent
from tests.files.tensors import write

TOKENIZER = {
    "added_tokens": [{"id": 0, "content": "<s>"}, {"id": 1, "content": "</s>"}, {"id": 5, "content": "<x>"}],
    "model": {"type": "BPE", "vocab": {"<s>": 0, "</s>": 1, "<unk>": 2, "a": 3}},
}
CONFIG: dict[str, Any] = {
    "bos_token": "<s>",
    "eos_token": {"content": "</s>", "lstrip": False},
    "unk_token": "<unk>",
    "pad_token": "<not there>",
    "additional_special_tokens": ["<x>", "<not there>"],
    "chat_template": "{{ messages }}",
}


def folder(path: Path, **changes: Any) -> Path:
    write(path / "tokenizer.json", json.dumps(TOKENIZER | changes.pop("tokenizer", {})).encode())
    write(path / "tokenizer_config.json", json.dumps(CONFIG | changes).encode())
    return path


def measured(path: Path) -> MeasuredTokenizer:
    found = measure_tokenizer(path)
    assert isinstance(found, MeasuredTokenizer), found
    return found


def test_files_ids_and_template_are_measured(tmp_path: Path) -> None:
    found = measured(folder(tmp_path))
    assert [name for name, _ in found.files] == ["tokenizer.json", "tokenizer_config.json"]
    assert found.special_ids == {"bos_token": 0, "eos_token": 1, "unk_token": 2, "additional_special_tokens": [5]}
    assert found.chat_template == "{{ messages }}"
    assert found.tokenization == tokenization_digest(dict(found.files), found.special_ids, found.chat_template)


def test_other_files_of_the_folder_do_not_count(tmp_path: Path) -> None:
    clean = measured(folder(tmp_path))
    write(tmp_path / "model.safetensors", b"x")
    write(tmp_path / "README.md", b"x")
    assert measured(tmp_path) == clean


@pytest.mark.parametrize(
    "change",
    [{"eos_token": "<s>"}, {"chat_template": "{{ m }}"}, {"tokenizer": {"added_tokens": []}}, {"padding_side": "left"}],
)
def test_what_a_tokenizer_is_made_of_moves_it(tmp_path: Path, change: dict[str, Any]) -> None:
    assert measured(folder(tmp_path / "a", **change)).tokenization != measured(folder(tmp_path / "b")).tokenization


def test_a_tokenizer_without_a_limit_on_its_length_is_measured(tmp_path: Path) -> None:
    """As libraries write it: far beyond what a number of a canonical document may be."""
    unlimited = 1000000000000000019884624838656
    found = measured(folder(tmp_path / "a", model_max_length=unlimited))
    moved = measured(folder(tmp_path / "b", model_max_length=unlimited + 2))
    assert found.apart not in (moved.apart, measured(folder(tmp_path / "c")).apart) and found.tokenization != moved.tokenization


def test_a_template_of_its_own_file_comes_first(tmp_path: Path) -> None:
    write(folder(tmp_path) / "chat_template.jinja", "{{ ü }}".encode())
    assert measured(tmp_path).chat_template == "{{ ü }}"


def test_several_named_templates_are_one_text(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "a"}, {"name": "tool", "template": "b"}]
    found = measured(folder(tmp_path, chat_template=named))
    assert found.chat_template == '[{"name":"default","template":"a"},{"name":"tool","template":"b"}]'


def test_an_older_tokenizer_is_read_from_its_files(tmp_path: Path) -> None:
    write(tmp_path / "vocab.json", b'{"<s>": 7, "a": 1}')
    write(tmp_path / "merges.txt", b"#version: 0.2\n")
    write(tmp_path / "added_tokens.json", b'{"</s>": 9}')
    write(tmp_path / "special_tokens_map.json", b'{"bos_token": "<s>", "eos_token": "</s>"}')
    write(tmp_path / "tokenizer_config.json", b'{"added_tokens_decoder": {"11": {"content": "<pad>"}}, "pad_token": "<pad>"}')
    assert measured(tmp_path).special_ids == {"bos_token": 7, "eos_token": 9, "pad_token": 11}


def test_everything_that_is_wrong_is_named(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", b"x")
    path = tmp_path / "t"
    write(path / "tokenizer.json", b'{"a":1,"a":2}')
    write(path / "tokenizer_config.json", b"\xff")
    write(path / "chat_template.jinja", b"ab\xff")
    (path / "merges.txt").symlink_to(outside)
    found = measure_tokenizer(path)
    assert isinstance(found, Refused)
    assert set(found.defects) == {
        DocumentUnreadable("tokenizer.json", "'a' stands twice in one object"),
        DocumentUnreadable("tokenizer_config.json", "byte 0 is not UTF-8"),
        DocumentUnreadable("chat_template.jinja", "byte 2 is not UTF-8"),
        LinkLeavesFolder("merges.txt"),
    }


def test_no_tokenizer(tmp_path: Path) -> None:
    assert measure_tokenizer(tmp_path) == Refused(NonEmpty(TokenizerAbsent()))
    assert measure_tokenizer(tmp_path / "none") == Refused(NonEmpty(FileAbsent(str(tmp_path / "none"))))
