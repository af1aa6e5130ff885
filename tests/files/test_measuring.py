"""Both digests of weights: side by side, each byte hashed once for each, and kept in one order whichever thread was first."""

import os
import time
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Barrier, BrokenBarrierError, current_thread

import pytest

from countermark.files import measuring, reading
from countermark.files.digest_cache import DigestCache
from countermark.files.measuring import MeasuredForm, measure_form
from countermark.files.reading import OpenFile, Progress
from countermark.values import Sha256
from countermark.weights.refusals import CachedDigestsDisagree
from tests.faults import planted, proven_by
from tests.files.tensors import encoded, f32, write

TENSORS = {"a": f32(*range(300)), "b": f32(*range(700))}
DATA_BYTES = 4000


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return write(tmp_path / "weights.safetensors", encoded(TENSORS))


def cache_of(folder: Path, fresh: bool = False) -> DigestCache:
    """A cache that begins so late that it keeps what is measured."""
    return DigestCache(folder / "cache", fresh, now_ns=lambda: time.time_ns() + 60 * 10**9)


def one_after_the_other() -> AbstractContextManager[object]:
    """The files are hashed before what is inside of them."""

    class Pool:
        def __init__(self, *_: object, **__: object) -> None: ...
        def __enter__(self) -> "Pool":
            return self

        def __exit__(self, *_: object) -> None: ...
        def submit(self, call: object) -> "Pool":
            self.found = call()  # type: ignore[operator]
            return self

        def result(self) -> object:
            return self.found

    return planted(measuring, "ThreadPoolExecutor", Pool)()


@proven_by(one_after_the_other)
def test_the_two_digests_are_measured_side_by_side(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both, real = Barrier(2), OpenFile.sha256
    met: list[str] = []

    def sha256(self: OpenFile, begin: int, end: int, progress: Progress | None = None) -> Sha256:
        try:
            both.wait(1)
            met.append(current_thread().name.rstrip("_0123456789"))
        except BrokenBarrierError:
            pass
        return real(self, begin, end, progress)

    monkeypatch.setattr(OpenFile, "sha256", sha256)
    one = write(weights.parent / "one.safetensors", encoded({"a": TENSORS["a"]}))
    assert isinstance(measure_form(one), MeasuredForm)
    assert sorted(met) == ["MainThread", "exact files"]


def hashed_twice() -> AbstractContextManager[object]:
    """What is asked for is hashed once more than it has to be."""
    real = OpenFile.sha256

    def sha256(self: OpenFile, begin: int, end: int, progress: Progress | None = None) -> Sha256:
        real(self, begin, end)
        return real(self, begin, end, progress)

    return planted(OpenFile, "sha256", sha256)()


@proven_by(hashed_twice)
def test_each_byte_is_read_and_hashed_once_for_each_digest_and_never_for_one_that_is_kept(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, inode, read, hashed = weights.stat().st_size, weights.stat().st_ino, list[int](), list[int]()
    real_read, real_sha256 = os.preadv, reading.hashlib.sha256

    class Counting:
        def __init__(self) -> None:
            self._real = real_sha256()

        def update(self, data: memoryview) -> None:
            hashed.append(len(data))
            self._real.update(data)

        def hexdigest(self) -> str:
            return self._real.hexdigest()

    class Hashes:
        sha256 = Counting

    def preadv(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        count = real_read(descriptor, buffers, offset)
        if os.fstat(descriptor).st_ino == inode:
            read.append(count)
        return count

    monkeypatch.setattr(reading.os, "preadv", preadv)
    monkeypatch.setattr(reading, "hashlib", Hashes)
    cache = cache_of(weights.parent)
    first = measure_form(weights, cache)
    assert (sum(hashed), cache.hashed) == (size + DATA_BYTES, size + DATA_BYTES)
    # The first bytes, to see what it is; those that hold the header's length; the header; and what is hashed.
    assert sum(read) == 4 + 64 + (size - DATA_BYTES - 8) + DATA_BYTES + size
    hashed.clear()
    again = cache_of(weights.parent)
    assert measure_form(weights, again) == first
    assert (hashed, again.hashed) == ([], 0)


def told_by_whoever_is_first() -> AbstractContextManager[object]:
    """The second thread keeps what it measures by itself, before the first: it began earlier, and has less to do."""
    real = measuring._inside

    def inside(path: Path, cache: DigestCache | None, progress: object) -> object:
        measuring.measure_exact(path, cache)
        return real(path, cache, progress)  # type: ignore[arg-type]

    return planted(measuring, "_inside", inside)()


@proven_by(told_by_whoever_is_first)
def test_what_both_measured_is_kept_and_told_in_one_order(weights: Path) -> None:
    cache = cache_of(weights.parent)
    stamp = reading.Stamp.of(weights.stat())
    size = weights.stat().st_size
    wrong = Sha256("ab" * 32)
    cache.keep("weights.safetensors", stamp, {(0, size): wrong, (size - 2800, size): wrong, (size - 4000, size - 2800): wrong})
    fresh = cache_of(weights.parent, fresh=True)
    found = measure_form(weights, fresh)
    assert isinstance(found, MeasuredForm)
    assert fresh.disagreed == [CachedDigestsDisagree("weights.safetensors", 2)]
    assert fresh.hashed == size + DATA_BYTES
    assert dict(cache.known(stamp)) == {
        (0, size): found.whole,
        (size - 4000, size - 2800): found.lines[0].sha256,
        (size - 2800, size): found.lines[1].sha256,
    }


class Enough(Exception):
    """What a person's interruption looks like to the reading."""


def the_other_thread_goes_on() -> AbstractContextManager[object]:
    """Nobody is told to stop."""

    class Never:
        def set(self) -> None: ...
        def is_set(self) -> bool:
            return False

    return planted(measuring, "Event", Never)()


@proven_by(the_other_thread_goes_on)
def test_an_interruption_of_the_one_stops_the_other(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BUFFER_BYTES", 64)
    hashed: list[int] = []
    real = measuring.measured_with

    def slowly(cache: DigestCache | None, look: Progress) -> AbstractContextManager[None]:
        def each(count: int) -> None:
            hashed.append(count)
            time.sleep(0.002)
            look(count)

        return real(cache, each)

    def interrupt(done: int, total: int) -> None:
        while not hashed:
            time.sleep(0.001)
        raise Enough

    monkeypatch.setattr(measuring, "measured_with", slowly)
    with pytest.raises(Enough):
        measure_form(weights, None, interrupt)
    assert 0 < len(hashed) < 20 < weights.stat().st_size // 64
