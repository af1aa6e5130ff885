"""Differences of weights as tables, as one verdict line, and as documents: the same numbers on every surface."""

from collections.abc import Sequence

from countermark.lines.numbers import shown_norm, shown_share
from countermark.lines.spectrum import COLUMN, spectrum_cell, spectrum_clause, spectrum_document, tensor_spectrum_document
from countermark.lines.texts import Document, counted, listed, number, plain, scaled
from countermark.values import WeightsRoot
from countermark.weights.difference import Rootless, Status, TensorDifference, TensorSide, Totals, WeightsDifference
from countermark.weights.pairing import Pairing
from countermark.weights.spectrum import NO_SPECTRA, Gap, Spectra, Spectrum

COLUMNS = ("tensor", "status", "dtype", "shape", "changed", "share", "l2", "max", "relative", "non-finite", COLUMN)
_SAID: dict[Status, str] = {
    "equal": "equal", "changed": "changed", "cast": "cast", "reshaped": "reshaped", "renamed": "same bytes, renamed", "tied": "tied",
    "only_a": "only in A", "only_b": "only in B",
}  # fmt: skip
_ROOTLESS: dict[Rootless, str] = {
    "names": "a name in it has control characters",
    "pickled": "it is a pickle, whose files alone have a digest",
    "types": "some of its types are not those of safetensors",
}


def difference_rows(rows: Sequence[TensorDifference], spectra: Spectra = NO_SPECTRA) -> tuple[tuple[str, ...], ...]:
    """A row for every tensor, as a table shows it."""
    by_name = dict(spectra.found)
    return tuple((*_row(row), spectrum_cell(by_name.get(row.name))) for row in rows)


def _row(row: TensorDifference) -> tuple[str, ...]:
    numbers = row.numbers
    sides = tuple(side for side in (row.a, row.b) if side is not None)
    name = plain(row.name) if row.a is None or row.b is None or row.a.name == row.b.name else f"{plain(row.a.name)} → {plain(row.b.name)}"
    dtype = " → ".join(dict.fromkeys(side.dtype for side in sides))
    shape = " → ".join(dict.fromkeys(shown_shape(side.shape) for side in sides))
    if numbers is None:
        return (name, _status(row), dtype, shape, "-", "-", "-", "-", "-", "-")
    share = "-" if numbers.changed is None or not numbers.elements else shown_share(numbers.changed, numbers.elements)
    changed = "-" if numbers.changed is None else f"{numbers.changed:,}"
    return (
        name,
        _status(row),
        dtype,
        shape,
        changed,
        share,
        shown_norm(numbers.l2),
        shown_norm(numbers.max_abs),
        shown_norm(numbers.relative()),
        non_finite(numbers.non_finite_created, numbers.non_finite_cleared),
    )


def _status(row: TensorDifference) -> str:
    said = _SAID[row.status]
    if row.aliases:
        said = f"{said} (also called {listed(map(plain, row.aliases))})"
    if row.status == "tied":
        with_it, without = ("A", "B") if row.b is None else ("B", "A")
        return f"absent in {without}: an alias of {plain(row.alias_of or '')} in {with_it}"
    if row.alias_of is not None:
        return f"{said} (same bytes as {plain(row.alias_of)})"
    if row.common is not None and row.a is not None and row.b is not None:
        there, here = row.a.shape[0], row.b.shape[0]
        more = counted(abs(here - there), "row") + (" added" if here > there else " dropped")
        rows = (
            "common rows equal" if row.common.changed == 0 else "common rows cast" if row.common.changed is None else "common rows changed"
        )
        return f"{said}: {rows}, {more}"
    if row.numbers is not None and row.numbers.domain == "raw":
        return f"{said} (by bits alone)"
    return said


def shown_shape(shape: tuple[int, ...]) -> str:
    """A shape as roots spell it, cut after eight sizes."""
    kept = [str(size) for size in shape[:8]] + (["…"] if len(shape) > 8 else [])
    return f"[{','.join(kept)}]"


def non_finite(created: int, cleared: int) -> str:
    """``+1`` for a value that became NaN or infinite, ``−1`` for one that is finite again."""
    return " ".join((*([f"+{created:,}"] if created else []), *([f"−{cleared:,}"] if cleared else []))) or "-"


def verdict_line(found: WeightsDifference, spectra: Spectra = NO_SPECTRA) -> str:
    """The whole difference in one line."""
    totals = found.totals
    both = totals.rows - totals.count("only_a", "only_b", "tied")
    changed = totals.count("changed", "cast", "reshaped")
    parts = [f"{changed:,} of {counted(both, 'tensor')} changed"]
    if totals.changed:
        parts.append(f"{scaled(totals.changed)} of {scaled(totals.elements)} weights ({shown_share(totals.changed, totals.elements)})")
    if totals.l2 and totals.norm_a:
        parts.append(f"‖Δ‖/‖W‖ {shown_norm(totals.l2 / totals.norm_a)} over what changed")
    if clause := spectrum_clause(spectra, changed):
        parts.append(clause)
    if totals.non_finite_created or totals.non_finite_cleared:
        parts.append(f"non-finite {non_finite(totals.non_finite_created, totals.non_finite_cleared)}")
    parts.extend(_also(totals))
    if changed == 0 and found.root_a == found.root_b and isinstance(found.root_a, WeightsRoot):
        parts.append("same tensor root")
    if found.prefixes:
        parts.append(
            "names differ by " + listed(f"{plain(old) or '(nothing)'} → {plain(new) or '(nothing)'}" for old, new in found.prefixes)
        )
    return ", ".join(parts)


def _also(totals: Totals) -> list[str]:
    """What is not counted as a changed tensor, and must not be folded into "0 changed"."""
    named: tuple[tuple[Status, str], ...] = (
        ("cast", "cast"), ("reshaped", "reshaped"), ("renamed", "renamed"), ("tied", "tied and absent"),
        ("only_a", "removed"), ("only_b", "added"),
    )  # fmt: skip
    said = [f"{word}: {totals.count(status):,}" for status, word in named if totals.count(status)]
    return [*said, f"without an l2: {totals.left_out:,}"] if totals.left_out else said


def root_lines(found: WeightsDifference) -> tuple[str, str]:
    """Both roots, each with its side, or why it has none."""
    return _root_line("A", found.root_a), _root_line("B", found.root_b)


def root_told(root: WeightsRoot | Rootless) -> str:
    """A root, or why there is none."""
    return root.spell() if isinstance(root, WeightsRoot) else f"no root: {_ROOTLESS[root]}"


def known_lines(known: tuple[int, int], base_root: str | None) -> tuple[str, ...]:
    """Of how many tensors the digests were known and are not measured now; nothing where all were."""
    if base_root is not None:
        return (f"A's digests are those of {plain(base_root)}, and were not measured",)
    sides = [f"{counted(count, 'tensor')} of {side}" for side, count in zip("AB", known, strict=True) if count]
    return (f"digests of {listed(sides)} were measured before; --fresh measures all of them",) if sides else ()


def _root_line(side: str, root: WeightsRoot | Rootless) -> str:
    return f"{side} {root_told(root)}" if isinstance(root, WeightsRoot) else f"{side} has {root_told(root)}"


def preflight_lines(pairing: Pairing) -> tuple[str, ...]:
    """What the headers alone say is different: shapes, types and names. Nothing where all of them agree."""
    reshaped = [pair for pair in pairing.pairs if pair.a.shape != pair.b.shape]
    cast = [pair.a.name for pair in pairing.pairs if pair.cast]
    lines = [f"headers: {plain(pair.a.name)} {shown_shape(pair.a.shape)} → {shown_shape(pair.b.shape)}" for pair in reshaped[:5]]
    if len(reshaped) > 5:
        lines.append(f"headers: {len(reshaped) - 5:,} more of another shape")
    lonely = ([span.name for span in side] for side in (pairing.only_a, pairing.only_b))
    named = zip((cast, *lonely), ("of another type", "only in A", "only in B"), strict=True)
    return (*lines, *(f"headers: {counted(len(names), 'tensor')} {what}: {_some(names)}" for names, what in named if names))


def _some(names: Sequence[str]) -> str:
    """The first names of many."""
    return ", ".join((*(plain(name, 100) for name in names[:3]), *(["…"] if len(names) > 3 else [])))


def difference_document(found: WeightsDifference, spectra: Spectra = NO_SPECTRA) -> Document:
    """The whole difference as a document. Names stand in it as they are; NaN and infinities never do."""
    totals = found.totals
    by_name = dict(spectra.found)
    sides = (("a", found.root_a), ("b", found.root_b))
    return {
        "roots": {side: root.spell() if isinstance(root, WeightsRoot) else None for side, root in sides},
        "rootless": {side: None if isinstance(root, WeightsRoot) else root for side, root in sides},
        "totals": {
            "tensors": totals.rows,
            "byStatus": dict(totals.by_status),
            "elements": number(totals.elements),
            "changed": number(totals.changed),
            "valueChanged": number(totals.value_changed),
            "nonFiniteCreated": number(totals.non_finite_created),
            "nonFiniteCleared": number(totals.non_finite_cleared),
            "l2": totals.l2,
            "maxAbs": totals.max_abs,
            "normA": totals.norm_a,
            "withoutL2": totals.left_out,
        },
        "prefixes": [{"a": old, "b": new} for old, new in found.prefixes],
        "spectrum": spectrum_document(spectra),
        "tensors": [tensor_document(row, by_name.get(row.name)) for row in found.rows],
    }


def tensor_document(row: TensorDifference, spectrum: Spectrum | Gap | None) -> Document:
    """One tensor of a difference."""
    numbers = row.numbers
    same = row.status in ("equal", "renamed")
    zero = 0 if same else None
    side = row.a if row.a is not None else row.b
    assert side is not None, "a row has a side"
    return {
        "name": row.name,
        "nameB": None if row.b is None else row.b.name,
        "status": row.status,
        "dtype": side.dtype,
        "dtypeB": None if row.b is None else row.b.dtype,
        "shape": _sizes(side),
        "shapeB": None if row.b is None else _sizes(row.b),
        "domain": None if numbers is None else numbers.domain,
        "changed": zero if numbers is None else _count(numbers.changed),
        "valueChanged": zero if numbers is None else _count(numbers.value_changed),
        "l2": (0.0 if same else None) if numbers is None else numbers.l2,
        "maxAbs": (0.0 if same else None) if numbers is None else numbers.max_abs,
        "relative": (0.0 if same else None) if numbers is None else numbers.relative(),
        **tensor_spectrum_document(spectrum),
        "nonFiniteCreated": zero if numbers is None else number(numbers.non_finite_created),
        "nonFiniteCleared": zero if numbers is None else number(numbers.non_finite_cleared),
        "sha256Before": None if row.a is None else row.a.sha256.hex,
        "sha256After": None if row.b is None else row.b.sha256.hex,
        "commonRows": None if row.common is None else {"rows": number(row.common.rows), "changed": _count(row.common.changed)},
        "aliasOf": row.alias_of,
        "aliases": list(row.aliases),
    }


def _count(value: int | None) -> int | str | None:
    return None if value is None else number(value)


def _sizes(side: TensorSide) -> list[int | str]:
    return [number(size) for size in side.shape]
