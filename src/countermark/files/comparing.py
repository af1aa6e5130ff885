"""Two sets of weights read side by side: every byte once, in blocks that do not grow with the model.

Rules kept here:

1. Two threads, each with a tensor of its own and two small buffers: reading, hashing and comparing release the interpreter's lock.
2. Blocks are held against each other as memory: those that are equal are hashed once for both sides, and not looked into; from the first
   block that differs, each side has a hash of its own.
3. What is known of either side's digests (recorded for just these files) is not hashed again; values are compared all the same. Two tensors
   whose bytes say the opposite of their digests refuse the comparison: what was recorded is not of these files.
4. A short read, or a file that is another one afterwards, refuses the whole comparison: never a number from two versions of a file.
5. The biggest tensors begin, so that no thread is left alone with one at the end. Stopping is looked for before every block.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, final

from countermark.files.located import Located
from countermark.files.opened_weights import OpenedWeights
from countermark.files.reading import OpenFile, ShortRead
from countermark.values import NonEmpty, Refused, Sha256
from countermark.weights.difference import CommonRows, Numbers, TensorDifference, TensorSide
from countermark.weights.dtypes import DTYPE_BITS
from countermark.weights.pairing import Pair, Pairing
from countermark.weights.refusals import DigestsContradict, FileDefect

if TYPE_CHECKING:
    from countermark.weights.statistics import Comparison as _Comparison

#: Elements in a block: 1 MiB of 32-bit numbers, and a multiple of what any packing needs.
BLOCK_ELEMENTS: Final = 1 << 18
THREADS: Final = 2

#: Told the bytes read so far and the bytes to read; it may raise to stop the reading.
Progress = Callable[[int, int], None]


class Hash(Protocol):
    """What hashes as it reads."""

    def update(self, data: memoryview, /) -> None: ...
    def copy(self) -> Self: ...
    def hexdigest(self) -> str: ...


class Unread(Exception):
    """A file could not be read as it stood when it was opened, or is not the one that digests were recorded of."""

    def __init__(self, defect: FileDefect | DigestsContradict) -> None:
        super().__init__(str(defect))
        self.defect = defect


@final
@dataclass(frozen=True, slots=True)
class Known:
    """The digests of a pair that were recorded already; None: not this one."""

    a: Sha256 | None = None
    b: Sha256 | None = None


class Stopped(Exception):
    """Another thread failed, or a person interrupted: this one gives up."""


@final
@dataclass(slots=True)
class _Job:
    """What the threads share: the total, how far it is, and whether to stop."""

    total: int
    progress: Progress | None
    done: int = 0
    stop: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)

    def advance(self, count: int) -> None:
        if self.stop.is_set():
            raise Stopped
        with self.lock:
            self.done += count

    def tell(self) -> None:
        """Tell who watches how far it is. Equal parts that were read twice count once: never more than the total."""
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)


@final
class _Buffers:
    """One block of each side, made once for each thread's tensor and reused."""

    __slots__ = ("_whole_a", "a", "b")

    def __init__(self, bytes_a: int, bytes_b: int) -> None:
        self._whole_a = bytearray(bytes_a)
        self.a = memoryview(self._whole_a)
        self.b = memoryview(bytearray(bytes_b))

    def equal(self, size: int) -> bool:
        """Whether the first ``size`` bytes of both are equal. Two views are compared item by item; this is one call of memcmp."""
        return self._whole_a.startswith(self.b[:size])

    def filled(self, a: Located, b: Located, offset: int, size: int, job: _Job) -> tuple[memoryview, memoryview]:
        """``size`` bytes from ``offset`` of each side; where both are one, they are read once."""
        job.advance(2 * size)
        left, right = self.a[:size], self.b[:size]
        _fill(a.file, left, a.begin + offset)
        if a is b:
            return left, left
        _fill(b.file, right, b.begin + offset)
        return left, right


def _fill(file: OpenFile, buffer: memoryview, begin: int) -> None:
    """Read exactly the buffer's bytes from ``begin``; raises ``Unread``."""
    at = 0
    try:
        while at < len(buffer):
            count = os.preadv(file.fileno(), [buffer[at:]], begin + at)
            if count == 0:
                raise ShortRead(file.name)
            at += count
    except (OSError, ShortRead) as error:
        raise Unread(file.judged(error)) from error


def _hash_of(one: Located, size: int, job: _Job) -> Hash:
    """The hash of a tensor's first ``size`` bytes."""
    hasher = hashlib.sha256()
    buffer = memoryview(bytearray(min(1 << 20, max(size, 1))))
    for begin in range(0, size, len(buffer)):
        part = buffer[: min(len(buffer), size - begin)]
        job.advance(len(part))
        _fill(one.file, part, one.begin + begin)
        hasher.update(part)
    return hasher


def _whole(one: Located, known: Sha256 | None, job: _Job) -> TensorSide:
    """A tensor with its digest, which is measured where it is not known."""
    return _side(one, known if known is not None else Sha256(_hash_of(one, one.bytes, job).hexdigest()))


def _side(one: Located, digest: Sha256) -> TensorSide:
    return TensorSide(one.span.name, one.span.dtype, one.span.shape, digest)


def _block_bytes(dtype: str) -> int:
    return BLOCK_ELEMENTS * DTYPE_BITS[_compared_as(dtype)] // 8


def _compared_as(dtype: str) -> str:
    """A type that is not one of ours (blocks of codes) is compared byte by byte."""
    return dtype if dtype in DTYPE_BITS else "U8"


def _same_type(a: Located, b: Located, raw: bool, known: Known, job: _Job) -> tuple[Numbers | None, Sha256, Sha256]:
    """Two tensors of one type and size: their numbers (None: all bytes are equal) and digests."""
    step = _block_bytes(a.span.dtype)
    buffers = _Buffers(min(step, max(a.bytes, 1)), min(step, max(b.bytes, 1)))
    # As long as all is equal, one hash is of both sides; where a digest is known, there is none until a difference shows.
    shared: Hash | None = hashlib.sha256() if known.a is None and known.b is None else None
    hash_a, hash_b = shared, None
    comparison: _Comparison | None = None
    equal_until = 0
    for offset in range(0, a.bytes, step):
        left, right = buffers.filled(a, b, offset, min(step, a.bytes - offset), job)
        if comparison is None and not buffers.equal(len(left)):
            # Equal weights do without NumPy, and where one thread waits for it the other reads on.
            from countermark.weights.statistics import Comparison

            equal_until = offset
            comparison = Comparison(_compared_as(a.span.dtype), _compared_as(b.span.dtype), raw)
            if known.a is None and shared is None:
                hash_a = _hash_of(a, offset, job)
            if known.b is None:
                hash_b = shared.copy() if shared is not None else _hash_of(b, offset, job)
        if hash_a is not None:
            hash_a.update(left)
        if hash_b is not None:
            hash_b.update(right)
        if comparison is not None:
            comparison.add(left, right)
    digest_a = known.a if hash_a is None else Sha256(hash_a.hexdigest())
    if comparison is None:
        return None, *_agreed(a, digest_a, known.b)
    digest_b = known.b if hash_b is None else Sha256(hash_b.hexdigest())
    assert digest_a is not None
    assert digest_b is not None, "where a side differs, its digest is known or was hashed"
    if digest_a == digest_b:
        raise Unread(DigestsContradict(a.span.name))
    for offset in range(0, equal_until, step):
        # What lies before the first difference counts for the norms, and only tensors that differ have any.
        left, right = buffers.filled(a, a, offset, step, job)
        comparison.add(left, right)
    return comparison.result(), digest_a, digest_b


def _agreed(a: Located, digest_a: Sha256 | None, digest_b: Sha256 | None) -> tuple[Sha256, Sha256]:
    """The one digest of two tensors whose bytes are equal."""
    digest = digest_a if digest_a is not None else digest_b
    assert digest is not None, "either it is known, or it was hashed"
    if digest_b is not None and digest_b != digest:
        raise Unread(DigestsContradict(a.span.name))
    return digest, digest


def _across_types(a: Located, b: Located, elements: int, known: Known, job: _Job) -> tuple[Numbers, Sha256, Sha256]:
    """Two tensors of different types and equally many elements."""
    from countermark.weights.statistics import Comparison

    steps = (_block_bytes(a.span.dtype), _block_bytes(b.span.dtype))
    buffers = _Buffers(min(steps[0], max(a.bytes, 1)), min(steps[1], max(b.bytes, 1)))
    hashes = tuple(hashlib.sha256() if digest is None else None for digest in (known.a, known.b))
    comparison = Comparison(a.span.dtype, b.span.dtype)
    for at in range(-(-elements // BLOCK_ELEMENTS)):
        parts: list[memoryview] = []
        for side, step, buffer, hasher in ((a, steps[0], buffers.a, hashes[0]), (b, steps[1], buffers.b, hashes[1])):
            part = buffer[: min(step, side.bytes - at * step)]
            job.advance(len(part))
            _fill(side.file, part, side.begin + at * step)
            if hasher is not None:
                hasher.update(part)
            parts.append(part)
        comparison.add(parts[0], parts[1])
    digests = (
        Sha256(hasher.hexdigest()) if hasher is not None else digest for hasher, digest in zip(hashes, (known.a, known.b), strict=True)
    )
    digest_a, digest_b = digests
    assert digest_a is not None
    assert digest_b is not None, "what is not known was hashed"
    return comparison.result(), digest_a, digest_b


def _common_rows(a: Located, b: Located, rows: int, job: _Job) -> CommonRows:
    """How many elements of the rows that both tensors have differ in their bits."""
    from countermark.weights.statistics import Comparison

    if a.span.dtype != b.span.dtype:
        return CommonRows(rows, None)
    size = a.bytes // a.span.shape[0] * rows if a.span.shape[0] else 0
    step = _block_bytes(a.span.dtype)
    buffers = _Buffers(min(step, max(size, 1)), min(step, max(size, 1)))
    comparison = Comparison(_compared_as(a.span.dtype), _compared_as(b.span.dtype), raw=True)
    for offset in range(0, size, step):
        comparison.add(*buffers.filled(a, b, offset, min(step, size - offset), job))
    return CommonRows(rows, comparison.changed)


def _compare(pair: Pair, a: Located, b: Located, raw: bool, known: Known, job: _Job) -> TensorDifference:
    renamed = pair.a.name != pair.b.name
    if pair.a.shape != pair.b.shape:
        rows = pair.common_rows()
        common = None if rows is None else _common_rows(a, b, rows, job)
        return TensorDifference("reshaped", _whole(a, known.a, job), _whole(b, known.b, job), common=common)
    if pair.cast and not {pair.a.dtype, pair.b.dtype} <= DTYPE_BITS.keys():
        return TensorDifference("cast", _whole(a, known.a, job), _whole(b, known.b, job))
    if pair.cast:
        elements = a.bytes * 8 // DTYPE_BITS[pair.a.dtype]
        numbers, digest_a, digest_b = _across_types(a, b, elements, known, job)
        return TensorDifference("cast", _side(a, digest_a), _side(b, digest_b), numbers)
    found, digest_a, digest_b = _same_type(a, b, raw, known, job)
    if found is None:
        return TensorDifference("renamed" if renamed else "equal", _side(a, digest_a), _side(b, digest_b))
    return TensorDifference("changed", _side(a, digest_a), _side(b, digest_b), found)


def compare(
    a: OpenedWeights,
    b: OpenedWeights,
    pairing: Pairing,
    *,
    raw: frozenset[str] = frozenset(),
    known: Mapping[str, Sha256] | None = None,
    known_b: Mapping[str, Sha256] | None = None,
    progress: Progress | None = None,
) -> tuple[TensorDifference, ...] | Refused[FileDefect | DigestsContradict]:
    """One row for every tensor of both sides, in no order; or every file that could not be read as it stood.

    ``raw``: names (in A) that are compared by bits alone. ``known`` and ``known_b``: digests of A's and of B's
    tensors that were recorded for these very files.
    """
    recorded, recorded_b = known or {}, known_b or {}
    total = sum(one.bytes for side in (a, b) for one in side.tensors.values())
    job = _Job(total, progress)
    work: list[tuple[int, Callable[[], TensorDifference]]] = []
    for pair in pairing.pairs:
        left, right = a.tensors[pair.a.name], b.tensors[pair.b.name]
        by_bits = pair.a.name in raw or pair.a.dtype not in DTYPE_BITS
        digests = Known(recorded.get(pair.a.name), recorded_b.get(pair.b.name))
        work.append((left.bytes + right.bytes, _of_pair(pair, left, right, by_bits, digests, job)))
    for span in pairing.only_a:
        work.append((a.tensors[span.name].bytes, _of_one("only_a", a.tensors[span.name], recorded.get(span.name), job)))
    for span in pairing.only_b:
        work.append((b.tensors[span.name].bytes, _of_one("only_b", b.tensors[span.name], recorded_b.get(span.name), job)))
    work.sort(key=lambda one: -one[0])
    rows, defects = _done([task for _, task in work], job)
    defects += [*a.changed(), *b.changed()]
    refused = NonEmpty.of(dict.fromkeys(defects))
    return Refused(refused) if refused is not None else tuple(rows)


def _of_pair(pair: Pair, a: Located, b: Located, raw: bool, known: Known, job: _Job) -> Callable[[], TensorDifference]:
    return lambda: _compare(pair, a, b, raw, known, job)


def _of_one(status: Literal["only_a", "only_b"], one: Located, known: Sha256 | None, job: _Job) -> Callable[[], TensorDifference]:
    def hashed() -> TensorDifference:
        side = _whole(one, known, job)
        return TensorDifference(status, side, None) if status == "only_a" else TensorDifference(status, None, side)

    return hashed


def _done(tasks: list[Callable[[], TensorDifference]], job: _Job) -> tuple[list[TensorDifference], list[FileDefect | DigestsContradict]]:
    """Run the tasks on the threads. A failure to read stops the others; an interruption stops them all and goes on upwards."""
    rows: list[TensorDifference] = []
    defects: list[FileDefect | DigestsContradict] = []

    def guarded(task: Callable[[], TensorDifference]) -> None:
        try:
            rows.append(task())
        except Unread as error:
            defects.append(error.defect)
            job.stop.set()
        except Stopped:
            pass
        except BaseException:
            job.stop.set()
            raise

    with ThreadPoolExecutor(THREADS, thread_name_prefix="compare") as pool:
        waiting: set[Future[None]] = {pool.submit(guarded, task) for task in tasks}
        try:
            while waiting:
                finished, waiting = wait(waiting, timeout=0.1, return_when=FIRST_EXCEPTION)
                for future in finished:
                    future.result()
                job.tell()
        except BaseException:
            job.stop.set()
            raise
    return rows, defects
