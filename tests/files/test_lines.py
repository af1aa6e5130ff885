"""A file is read line by line in bounded memory, and a line that has no end is cut where its reader sees that it is too long."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from countermark.files import reading
from countermark.files.lines import lines_of
from countermark.files.reading import OpenFile, open_file
from countermark.weights.refusals import FileChanged, FileDefect
from tests.faults import planted, proven_by


def read(path: Path, bytes_max: int) -> list[bytes | FileDefect]:
    opened = open_file(path.parent, path.name)
    assert isinstance(opened, OpenFile)
    with opened:
        return list(lines_of(opened, bytes_max))


@given(st.lists(st.sampled_from([b"", b"a", b"bc", b"d" * 20, b"\r", b"\xff"]), max_size=12), st.booleans(), st.integers(1, 7))
def test_lines_are_those_of_the_file_wherever_its_pieces_end(lines: list[bytes], ended: bool, buffer: int) -> None:
    content = b"\n".join(lines) + (b"\n" if ended else b"")
    *wanted, last = content.split(b"\n")
    with TemporaryDirectory() as folder, planted(reading, "BUFFER_BYTES", buffer)():
        path = Path(folder, "f")
        path.write_bytes(content)
        assert read(path, 8) == [line[:9] for line in (*wanted, *([last] if last else []))]


@proven_by(planted(OpenFile, "parts_judged", lambda self, begin, end: iter((memoryview(b"x" * 4_000_000),))))
def test_a_line_without_an_end_takes_no_more_memory_than_the_longest(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 3_000_000 + b"\ny")
    assert [len(line) for line in read(tmp_path / "f", 10) if isinstance(line, bytes)] == [11, 1]


def test_a_file_that_is_cut_meanwhile_ends_in_a_defect(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a\nb\n")
    opened = open_file(tmp_path, "f")
    assert isinstance(opened, OpenFile)
    with opened:
        path.write_bytes(b"a\n")
        assert list(lines_of(opened, 10)) == [b"a", FileChanged("f")]
