"""Weights held against weights, and against what was recorded of them."""

import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from countermark.app.errors import EnvironmentFailed
from countermark.files.comparing import compare
from countermark.files.digest_cache import DigestCache
from countermark.files.model_folder import MeasuredWeights, measure_weights
from countermark.files.opened_weights import OpenedWeights, open_weights
from countermark.files.recorded import is_lines, read_lines, recorded_of
from countermark.files.spectra import spectra_of
from countermark.lines.texts import Document
from countermark.lines.weights import difference_document
from countermark.values import NonEmpty, Refused, WeightsRoot
from countermark.weights import HeaderOdd, TensorLine, TensorSpan, weights_root
from countermark.weights.difference import Rootless, TensorSide, Ties, WeightsDifference, joined, matched, totals_of
from countermark.weights.edits import EditNotInArtifact, TensorEdit, apply_edits, unborne_edits
from countermark.weights.pairing import Pairing, pair
from countermark.weights.quantized import packed
from countermark.weights.refusals import WeightsDefect
from countermark.weights.spectrum import Spectra


@final
@dataclass(frozen=True, slots=True)
class Compared:
    """A difference, the spectra of what changed, what ``partial`` left out of either side, what is odd about their
    headers, and of how many tensors of each the digests were ``known``, and not measured now."""

    found: WeightsDifference
    spectra: Spectra
    left_out_a: tuple[WeightsDefect, ...]
    left_out_b: tuple[WeightsDefect, ...]
    notes: tuple[HeaderOdd, ...] = ()
    known: tuple[int, int] = (0, 0)


def weights_diff(
    a: str,
    b: str,
    *,
    partial: bool = False,
    spectrum: bool | None = None,
    cache: DigestCache | None = None,
    base_lines: str | None = None,
    preflight: Callable[[Pairing], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
    measuring: Callable[[int, int], None] | None = None,
) -> Compared | Refused[object]:
    """The difference of two weights, each a folder or a file; ``preflight`` is told what the headers alone show, before any data is read.
    ``spectrum``: measure that of all that changed, of none, or (None) where it costs little. What ``cache`` knows, or the file
    ``base_lines`` says of A, is not hashed again. Refused with every defect of both sides. Raises ``EnvironmentFailed`` where NumPy is
    not installed."""
    if importlib.util.find_spec("numpy") is None:
        raise EnvironmentFailed(
            "NumPy is not installed, and comparing weights needs it", sys.executable, "pip install 'countermark[weights]'"
        )
    opened = (open_weights(Path(a), partial=partial), open_weights(Path(b), partial=partial))
    lines = None if base_lines is None else read_lines(base_lines)
    refusals = [part for part in (*opened, lines) if isinstance(part, Refused)]
    if (defects := NonEmpty.of(defect for refusal in refusals for defect in refusal.defects)) is not None:
        for side in opened:
            if isinstance(side, OpenedWeights):
                side.close()
        return Refused(defects)
    left, right = opened
    assert isinstance(left, OpenedWeights)
    assert isinstance(right, OpenedWeights)
    assert not isinstance(lines, Refused)
    with left, right:
        kept = cache or DigestCache(None)
        known = recorded_of(left, right, kept, lines)
        if isinstance(known, Refused):
            return Refused(known.defects)
        pairing = pair(_spans(left), _spans(right))
        if preflight is not None:
            preflight(pairing)
        raw = frozenset(packed(_spans(left))) | frozenset(packed(_spans(right)))
        rows = compare(left, right, pairing, raw=raw, known=known.a, known_b=known.b, progress=progress)
        if isinstance(rows, Refused):
            return Refused(rows.defects)
        known.keep(left, right, kept, rows)
        settled = matched(joined(rows, Ties(left.ties, right.ties)))
        spectra = spectra_of(left, right, settled, spectrum, measuring)
        if isinstance(spectra, Refused):
            return Refused(spectra.defects)
    # Both roots are of the rows before any are joined: every tensor of a side stands in one of them.
    roots = (left.rootless or _root(row.a for row in rows), right.rootless or _root(row.b for row in rows))
    prefixes = tuple((change.before, change.after) for change in pairing.prefixes)
    found = WeightsDifference(*roots, settled, prefixes, totals_of(settled))
    return Compared(found, spectra, left.left_out, right.left_out, (*left.notes, *right.notes), (len(known.a), len(known.b)))


def compared_document(found: Compared, a: str, b: str, base_root: str | None = None) -> Document:
    """A difference of the weights at two paths, with how it was measured."""
    return {
        "a": a,
        "b": b,
        "complete": not (found.left_out_a or found.left_out_b),
        "known": {"a": found.known[0], "b": found.known[1], "baseRoot": base_root},
        **difference_document(found.found, found.spectra),
    }


def _spans(side: OpenedWeights) -> tuple[TensorSpan, ...]:
    return tuple(one.span for one in side.tensors.values())


def _root(sides: Iterable[TensorSide | None]) -> WeightsRoot | Rootless:
    """The root of one side, or that some name has no place in a root."""
    found = weights_root(TensorLine(side.name, side.dtype, side.shape, side.sha256) for side in sides if side is not None)
    return "names" if isinstance(found, Refused) else found


@final
@dataclass(frozen=True, slots=True)
class Applied:
    """The root that follows from a base and recorded edits; ``edited`` counts the tensors whose data they changed."""

    base: WeightsRoot
    root: WeightsRoot
    edits: int
    edited: int


def apply_root(
    base: str, edits: Sequence[TensorEdit] | Refused[object], cache: DigestCache, progress: Callable[[int, int], None]
) -> Applied | Refused[object]:
    """The root of what the edits make of a base, without an edited model; every edit that does not fit is named. The base is a folder or
    file of weights, whose digests may be in the cache, or the lines of its root alone. Edits that could not be read are refused together
    with what is wrong with the base."""
    measured = read_lines(base) if is_lines(base) else _lines_of(measure_weights(Path(base), progress=progress, cache=cache))
    refusals = [part for part in (measured, edits) if isinstance(part, Refused)]
    if (defects := NonEmpty.of(defect for refusal in refusals for defect in refusal.defects)) is not None:
        return Refused(defects)
    assert not isinstance(measured, Refused) and not isinstance(edits, Refused)
    lines = apply_edits(measured, edits)
    if isinstance(lines, Refused):
        return Refused(lines.defects)
    start, root = weights_root(measured), weights_root(lines)
    assert not isinstance(start, Refused), "its names were read as those of a root"
    assert not isinstance(root, Refused), "the names are the base's, which has a root"
    before = {line.name: line.sha256 for line in measured}
    return Applied(start, root, len(edits), sum(line.sha256 != before[line.name] for line in lines))


def _lines_of(measured: MeasuredWeights | Refused[WeightsDefect]) -> tuple[TensorLine, ...] | Refused[WeightsDefect]:
    return measured if isinstance(measured, Refused) else measured.tensors


def not_borne_out(found: WeightsDifference, edits: Sequence[TensorEdit]) -> tuple[EditNotInArtifact, ...]:
    """The recorded edits that side B of a difference does not bear out."""
    held = ((name, row.b.sha256) for row in found.rows if row.b is not None for name in (row.b.name, *row.aliases))
    return unborne_edits(held, edits)
