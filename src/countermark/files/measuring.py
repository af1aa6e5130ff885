"""Weights of any form as they are told to a person: their root where they have one, and always the digest of the exact files.

Rules kept here:

1. Safetensors, NumPy's archives and GGUF files of plain types have a weights root. What a side has none for is said: pickled files have the
   digest of their files alone, and are not read beyond it; a GGUF file of packed blocks holds types that a root cannot spell.
2. What keeps safetensors from being read as what they say refuses them; a pickle is never judged by its contents.
3. Both digests are taken even where one is refused, so that every defect of both is named.
4. Each has a thread, because they are two hashes of the same bytes: side by side they go through the files at one pace, so that what one
   read the other finds in memory. Whoever stops the one stops the other.
"""

from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final, final

from countermark.files.digest_cache import DigestCache, hash_ranges, measured_with
from countermark.files.exact import MeasuredFiles, measure_exact
from countermark.files.located import Located
from countermark.files.model_folder import PICKLED_INDEX, SINGLE_FILES, MeasuredWeights, TotalProgress, hub_blobs, measure_weights
from countermark.files.opened_weights import OpenedWeights, OtherFile, PickledShards, form_of, open_weights
from countermark.files.reading import find, is_folder
from countermark.values import Digest, FilesDigest, NonEmpty, Refused, Sha256, WeightsRoot
from countermark.weights import HeaderOdd, TensorLine, weights_root
from countermark.weights.difference import Rootless
from countermark.weights.refusals import ExactDefect, FileDefect, WeightsAbsent, WeightsDefect, WeightsKind

_PICKLED_KINDS: Final[Mapping[str, WeightsKind]] = {"pytorch_model.bin": "model", PICKLED_INDEX: "model", "adapter_model.bin": "adapter"}


@final
@dataclass(frozen=True, slots=True)
class MeasuredForm:
    """Weights of any form: the root, or why there is none; the digest of the exact files; how many tensors there are (None: nobody looked)
    and the bytes that the root, or else the files, are of; every tensor's line where there is a root; ``whole`` is the plain digest of a
    file that was named itself; ``notes`` say what is odd about a header."""

    root: WeightsRoot | Rootless
    files: FilesDigest
    tensors: int | None
    bytes: int
    kind: WeightsKind | None
    lines: tuple[TensorLine, ...]
    whole: Sha256 | None
    notes: tuple[HeaderOdd, ...]

    def digests(self) -> tuple[Digest, ...]:
        """Every digest that was measured, each of its kind."""
        rooted = (self.root,) if isinstance(self.root, WeightsRoot) else ()
        return (*rooted, self.files, *(() if self.whole is None else (self.whole,)))


@final
@dataclass(frozen=True, slots=True)
class _Inside:
    """What was measured inside of the files."""

    root: WeightsRoot | Rootless
    tensors: int | None
    bytes: int | None
    kind: WeightsKind | None
    lines: tuple[TensorLine, ...] = ()
    notes: tuple[HeaderOdd, ...] = ()


def measure_form(
    path: Path, cache: DigestCache | None = None, progress: TotalProgress | None = None
) -> MeasuredForm | Refused[WeightsDefect | ExactDefect]:
    """The weights of a folder or of one file, whatever their form."""
    inside, files = _both(path, cache, progress)
    refusals = [part for part in (inside, files) if isinstance(part, Refused)]
    if (defects := NonEmpty.of(dict.fromkeys(defect for refusal in refusals for defect in refusal.defects))) is not None:
        return Refused(defects)
    assert not isinstance(inside, Refused)
    assert not isinstance(files, Refused)
    size = files.bytes if inside.bytes is None else inside.bytes
    whole = None if is_folder(path) else files.files[0][1]
    return MeasuredForm(inside.root, files.digest, inside.tensors, size, inside.kind, inside.lines, whole, inside.notes)


class _Stopped(Exception):
    """The other thread failed, or a person interrupted it."""


def _both(
    path: Path, cache: DigestCache | None, progress: TotalProgress | None
) -> tuple[_Inside | Refused[WeightsDefect], MeasuredFiles | Refused[ExactDefect]]:
    """What is inside of the files, and the files themselves, side by side."""
    stop, beside = Event(), None if cache is None else cache.beside()

    def look(_: int) -> None:
        if stop.is_set():
            raise _Stopped

    def exact() -> MeasuredFiles | Refused[ExactDefect]:
        with measured_with(None, look):
            return measure_exact(path, beside)

    with ThreadPoolExecutor(1, thread_name_prefix="exact files") as pool:
        waiting = pool.submit(exact)
        try:
            inside = _inside(path, cache, progress)
            files = waiting.result()
        except BaseException:
            stop.set()
            raise
    if cache is not None and beside is not None:
        cache.settle(beside)
    return inside, files


def _inside(path: Path, cache: DigestCache | None, progress: TotalProgress | None) -> _Inside | Refused[WeightsDefect]:
    real = find(path)
    if not isinstance(real, Path):
        return Refused(NonEmpty(real))
    form = form_of(real, hub_blobs(real))
    if isinstance(form, PickledShards) or (isinstance(form, OtherFile) and form.pickled):
        return _Inside("pickled", None, None, _PICKLED_KINDS.get(form.index if isinstance(form, PickledShards) else form.path.name))
    if form is not None:
        return _other(real, cache, progress)
    weights = measure_weights(real, progress=progress, cache=cache)
    if isinstance(weights, MeasuredWeights):
        return _Inside(weights.root, len(weights.tensors), weights.bytes, weights.kind, weights.tensors, weights.notes)
    alone = tuple(weights.defects)
    if len(alone) == 1 and isinstance(alone[0], WeightsAbsent) and alone[0].pickled:
        return _Inside("pickled", None, None, None)
    return Refused(weights.defects)


def _other(path: Path, cache: DigestCache | None, progress: TotalProgress | None) -> _Inside | Refused[WeightsDefect]:
    """An archive of arrays or a GGUF file: the lines of its tensors, where its types have any."""
    opened = open_weights(path)
    if isinstance(opened, Refused):
        return opened
    with opened:
        total = sum(one.bytes for one in opened.tensors.values())
        kind = SINGLE_FILES.get(path.name)
        if opened.rootless is not None:
            return _Inside(opened.rootless, len(opened.tensors), total, kind)
        lines = _lines(opened, total, cache, progress)
    if isinstance(lines, Refused):
        return Refused(lines.defects)
    root = weights_root(lines)
    return Refused(root.defects) if isinstance(root, Refused) else _Inside(root, len(lines), total, kind, lines)


def _lines(
    opened: OpenedWeights, total: int, cache: DigestCache | None, progress: TotalProgress | None
) -> tuple[TensorLine, ...] | Refused[FileDefect]:
    """Each tensor's line. Only what lies in the file itself is looked up in the cache: what was laid out anew has no stamp that stays."""
    lines: list[TensorLine] = []
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    by_file: defaultdict[int, list[Located]] = defaultdict(list)
    for one in opened.tensors.values():
        by_file[one.file.fileno()].append(one)
    for located in by_file.values():
        file = located[0].file
        ranges = tuple((one.begin, one.end) for one in located)
        digests = hash_ranges(file, ranges, advance, cache if opened.holds(file) else None)
        if not isinstance(digests, tuple):
            return Refused(NonEmpty(digests))
        spans = (one.span for one in located)
        lines.extend(TensorLine(span.name, span.dtype, span.shape, digest) for span, digest in zip(spans, digests, strict=True))
    changed = NonEmpty.of(opened.changed())
    return tuple(lines) if changed is None else Refused(changed)
