"""Datasets of JSON lines: the coordinate of the rows, and every bad row by its line."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.files import dataset_file
from countermark.files.dataset_file import LoadedDataset, MeasuredDataset, load_dataset, measure_dataset
from countermark.recipe.canonical import dataset_digest
from countermark.values import NonEmpty, Refused
from countermark.weights.refusals import DatasetEmpty, DatasetRowUnreadable, FileAbsent, FileChanged, FileNotRegular, MoreRowsUnreadable
from tests.faults import planted, proven_by

ROWS = [{"text": "a"}, {"text": "b", "n": 1.5}, {"text": "ü", "list": [1, None, True]}]


def jsonl(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"\n".join(lines))
    return path


def clean(folder: Path) -> Path:
    return jsonl(folder / "d.jsonl", *(json.dumps(row).encode() for row in ROWS), b"")


def measured(path: Path, limit: int | None = None) -> MeasuredDataset:
    found = measure_dataset(path, limit=limit)
    assert isinstance(found, MeasuredDataset), found
    return found


def defects(path: Path, limit: int | None = None) -> Counter[Any]:
    found = measure_dataset(path, limit=limit)
    return Counter(found.defects) if isinstance(found, Refused) else Counter()


def test_the_rows_are_what_is_measured(tmp_path: Path) -> None:
    found = measured(clean(tmp_path))
    assert found.dataset == dataset_digest(ROWS) and found.rows == 3 and found.bytes == clean(tmp_path).stat().st_size


def test_the_rows_that_are_loaded_are_those_that_were_measured(tmp_path: Path) -> None:
    found = load_dataset(clean(tmp_path), limit=2)
    assert isinstance(found, LoadedDataset)
    assert list(found.rows) == ROWS[:2] and found.measured.dataset == dataset_digest(ROWS[:2])
    assert found.measured == measured(clean(tmp_path), limit=2)


def test_spelling_moves_nothing(tmp_path: Path) -> None:
    other = jsonl(
        tmp_path / "o", b'  {"text":"\\u0061"}\r', b"", b'{"n":15e-1,"text":"b"}', b" \t ", b'{"list":[1.0,null,true],"text":"\xc3\xbc"}'
    )
    assert measured(other).dataset == measured(clean(tmp_path)).dataset


def test_the_order_of_rows_moves_it(tmp_path: Path) -> None:
    other = jsonl(tmp_path / "o", *(json.dumps(row).encode() for row in reversed(ROWS)))
    assert measured(other).dataset != measured(clean(tmp_path)).dataset


def test_a_limit_beyond_the_end_is_the_whole(tmp_path: Path) -> None:
    assert measured(clean(tmp_path), limit=9) == measured(clean(tmp_path))


BAD = {
    b"": None,
    b"nonsense": "it is not JSON: Expecting value at line 1, column 1",
    b"[1]": "it is not a JSON object",
    b'{"a":1,"a":2}': "'a' stands twice in one object",
    b'{"a":{"b":1,"b":2}}': "'b' stands twice in one object",
    b'{"a":NaN}': "it holds NaN, which JSON has not",
    b'{"a":"\xff"}': "byte 6 is not UTF-8",
    b'{"a":1e999}': "NaN and infinities are no JSON numbers",
    b'{"a":"\\ud800"}': "a text holds half of a surrogate pair",
    b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}": "it is nested too deep",
}


@proven_by(
    planted(dataset_file._Reading, "refuse", lambda self, line, why: self.defects or self.defects.append(DatasetRowUnreadable(line, why)))
)
def test_every_bad_row_is_named_by_its_line(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "d", b'{"fine":1}', *BAD)
    wanted = [DatasetRowUnreadable(line, why) for line, why in enumerate(BAD.values(), start=2) if why is not None]
    assert defects(path) == Counter(wanted)


def test_a_number_that_is_not_exact_is_named(tmp_path: Path) -> None:
    (found,) = defects(jsonl(tmp_path / "d", b'{"id":9007199254740993}'))
    assert isinstance(found, DatasetRowUnreadable) and found.line == 1 and "2^53" in found.why


def test_very_many_bad_rows_are_counted(tmp_path: Path) -> None:
    found = defects(jsonl(tmp_path / "d", *[b"x"] * 250))
    why = "it is not JSON: Expecting value at line 1, column 1"
    assert found == Counter([*(DatasetRowUnreadable(line, why) for line in range(1, 101)), MoreRowsUnreadable(150)])


def test_what_stands_behind_the_limit_is_not_judged(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "d", b'{"a":1}', b'{"a":2}', b"nonsense")
    assert measured(path, limit=2).rows == 2
    assert len(defects(path, limit=3)) == 1


def test_a_line_beyond_the_bound_is_named_and_the_next_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_file, "LINE_BYTES_MAX", 1000)
    path = jsonl(tmp_path / "d", b'{"a":"' + b"x" * 3_000_000 + b'"}', b'{"a":1}', b"y" * 1001)
    assert defects(path) == Counter([DatasetRowUnreadable(1, "it has over 1000 bytes"), DatasetRowUnreadable(3, "it has over 1000 bytes")])


@given(st.lists(st.binary(max_size=6).map(lambda raw: json.dumps({"t": raw.hex()}).encode()), min_size=1, max_size=20), st.integers(1, 9))
def test_pieces_of_any_size_give_the_same_rows(lines: list[bytes], size: int) -> None:
    """Lines are put together across the pieces in which a file arrives."""
    content = b"\n".join(lines)

    class Pieces:
        size = len(content)

        def parts(self, begin: int, end: int) -> Any:
            return (memoryview(content)[at : at + width] for at in range(begin, end, width))

    width = size
    found = list(dataset_file._lines(Pieces(), dataset_file._Reading(None, False), None))  # type: ignore[arg-type]
    assert found == [(number, line) for number, line in enumerate(lines, start=1) if line or number < len(lines)]


@pytest.mark.parametrize(("content", "wanted"), [(b"", DatasetEmpty()), (b"\n \n\n", DatasetEmpty())])
def test_no_rows_are_no_dataset(tmp_path: Path, content: bytes, wanted: object) -> None:
    (tmp_path / "d").write_bytes(content)
    assert defects(tmp_path / "d") == Counter([wanted])


def test_what_is_no_file(tmp_path: Path) -> None:
    assert measure_dataset(tmp_path / "none") == Refused(NonEmpty(FileAbsent("none")))
    assert measure_dataset(tmp_path) == Refused(NonEmpty(FileNotRegular(tmp_path.name, "a folder")))


def test_a_file_that_changes_meanwhile_has_no_digest(tmp_path: Path) -> None:
    path = clean(tmp_path)
    found = measure_dataset(path, progress=lambda done, total: path.write_bytes(path.read_bytes()) and None)
    assert isinstance(found, Refused) and FileChanged("d.jsonl") in set(found.defects)
