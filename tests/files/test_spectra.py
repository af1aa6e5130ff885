"""Spectra of weights on a disk: by the rows that changed, within bounds, and never of a file that changed."""

import os
import struct
import time
import tracemalloc
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from countermark.files import spectra
from countermark.files.opened_weights import OpenedWeights
from countermark.files.spectra import spectra_of
from countermark.values import NonEmpty, Refused
from countermark.weights.difference import TensorDifference
from countermark.weights.refusals import FileChanged
from countermark.weights.spectrum import Spectra, Spectrum
from tests.faults import planted, proven_by
from tests.files.tensors import Tensor, f32
from tests.files.test_comparing import many, rows_of, sides

ROWS, COLUMNS = 64, 48


def matrix(seed: int) -> Tensor:
    return "F32", [ROWS, COLUMNS], many(ROWS * COLUMNS, seed)[2]


def outer(tensor: Tensor) -> Tensor:
    """The matrix, and a rank-1 update on top."""
    values = struct.unpack(f"<{ROWS * COLUMNS}f", tensor[2])
    moved = (value + ((at // COLUMNS) % 7 + 1) * ((at % COLUMNS) % 5 - 2) * 0.01 for at, value in enumerate(values))
    return "F32", [ROWS, COLUMNS], struct.pack(f"<{ROWS * COLUMNS}f", *moved)


BEFORE = {"adapted": matrix(1), "dense": matrix(2), "same": matrix(3), "norm": f32(1, 2)}
AFTER = {"adapted": outer(matrix(1)), "dense": matrix(4), "same": matrix(3), "norm": f32(1, 3)}


def compared(left: OpenedWeights, right: OpenedWeights) -> tuple[TensorDifference, ...]:
    return tuple(sorted(rows_of(left, right).values(), key=lambda row: row.name))


def of(left: OpenedWeights, right: OpenedWeights, asked: bool | None = None) -> dict[str, object]:
    found = spectra_of(left, right, compared(left, right), asked)
    assert isinstance(found, Spectra), found
    return {name: one.adapter_rank() if isinstance(one, Spectrum) else one for name, one in found.found}


def rows_from_the_start() -> AbstractContextManager[object]:
    """Every block is the first."""
    real = spectra._read
    return planted(spectra, "_read", lambda file, begin, size: real(file, begin - begin % 4096, size))()


@proven_by(rows_from_the_start)
def test_each_changed_tensor_has_a_spectrum_or_the_reason_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectra, "BLOCK_ELEMENTS", 8 * COLUMNS)
    with sides(tmp_path, BEFORE, AFTER) as (left, right):
        assert of(left, right) == {"adapted": 1, "dense": None, "norm": "vector"}
        assert of(left, right, asked=False) == {"adapted": "not_asked", "dense": "not_asked", "norm": "vector"}


@proven_by(planted(spectra, "UNASKED_ELEMENTS", 1 << 40))
def test_unasked_nothing_is_measured_that_would_be_felt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if spectra.UNASKED_ELEMENTS < 1 << 40:
        monkeypatch.setattr(spectra, "UNASKED_ELEMENTS", 2 * ROWS * COLUMNS - 1)
    with sides(tmp_path, BEFORE, AFTER) as (left, right):
        assert of(left, right)["adapted"] == "not_asked"
        assert of(left, right, asked=True)["adapted"] == 1


def nobody_looks_again() -> AbstractContextManager[object]:
    """A short read gives zeros, and files are not looked at once more."""
    return planted(spectra, "_read", lambda file, begin, size: memoryview(bytes(size)))()


@proven_by(nobody_looks_again)
def test_a_file_cut_meanwhile_gives_a_defect_and_no_spectrum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sides(tmp_path, BEFORE, AFTER) as (left, right):
        rows = compared(left, right)
        # Only the short read tells: what is looked at afterwards is a test of its own.
        monkeypatch.setattr(OpenedWeights, "changed", lambda self: ())
        os.truncate(tmp_path / "b.safetensors", 200)
        assert spectra_of(left, right, rows, True) == Refused(NonEmpty(FileChanged("b.safetensors")))


@proven_by(planted(OpenedWeights, "changed", lambda self: ()))
def test_a_file_that_is_another_one_afterwards_is_named(tmp_path: Path) -> None:
    with sides(tmp_path, BEFORE, AFTER) as (left, right):
        rows = compared(left, right)
        os.utime(tmp_path / "a.safetensors", ns=(1, 1))
        assert spectra_of(left, right, rows, True) == Refused(NonEmpty(FileChanged("a.safetensors")))


class Enough(Exception):
    """What a person's interruption looks like to the reading."""


def nobody_looks_whether_to_stop() -> AbstractContextManager[object]:
    """The threads go on to the end of what they have."""
    return planted(spectra._Reading, "part", lambda self, one, begin, size: spectra._read(one.file, one.begin + begin, size))()


@proven_by(nobody_looks_whether_to_stop)
def test_an_interruption_ends_the_reading_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = spectra._read

    def counted(*place: object) -> memoryview:
        read.append(1)
        time.sleep(0.001)
        return real(*place)  # type: ignore[arg-type]

    def interrupt(done: int, total: int) -> None:
        assert done <= total
        # Nothing more is read from here on, but for the block that each thread holds.
        read.clear()
        raise Enough

    monkeypatch.setattr(spectra, "BLOCK_ELEMENTS", 1)
    many_of = {f"t{number}": matrix(number) for number in range(20)}
    with sides(tmp_path, many_of, {name: outer(each) for name, each in many_of.items()}) as (left, right):
        rows = compared(left, right)
        monkeypatch.setattr(spectra, "_read", counted)
        with pytest.raises(Enough):
            spectra_of(left, right, rows, True, interrupt)
    assert len(read) < 10 < 20 * 2 * 2 * ROWS // 8


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with sides(tmp_path, BEFORE, AFTER) as (left, right):
        spectra_of(left, right, compared(left, right), True, lambda done, total: told.append((done, total)))
    assert told[-1] == (8 * ROWS * COLUMNS * 4, 8 * ROWS * COLUMNS * 4)


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    peaks = []
    for rows in (4_000, 12_000):
        zeros: Tensor = ("U8", [rows, 512], bytes(rows * 512))
        wide: Tensor = ("F16", [rows, 256], zeros[2])
        other: Tensor = ("F16", [rows, 256], bytes(rows * 512 - 2) + b"\0\x3c")
        with sides(tmp_path, {"w": wide}, {"w": other}) as (left, right):
            found = compared(left, right)
            del zeros, wide, other
            tracemalloc.start()
            assert isinstance(spectra_of(left, right, found, True), Spectra)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < 16 << 20
    assert peaks[1] < peaks[0] + (4 << 20)


def test_where_nothing_changed_nothing_is_measured(tmp_path: Path) -> None:
    with sides(tmp_path, BEFORE, BEFORE) as (left, right):
        assert of(left, right, asked=True) == {}
