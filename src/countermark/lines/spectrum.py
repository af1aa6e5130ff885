"""The spectrum of a change in words: a cell of a table, a clause of the verdict line, a note of what was not measured, and documents.

Rules kept here:

1. A share below 1 never reads as 1, and some never as none: ``0.99`` is told as it is, cut and not rounded up.
2. *looks like an adapter* is said of the whole only where it holds for every changed tensor; else it is said of how many.
"""

from collections.abc import Mapping
from typing import Final

from countermark.lines.texts import Document, counted, listed, scaled
from countermark.weights.spectrum import RANK_SHOWN, RANKS, Gap, Spectra, Spectrum

COLUMN: Final = "spectrum"
#: Elements that a core measures in a second, for a rough word on what it would cost.
_ELEMENTS_PER_S: Final = 100_000_000

_WHY: Final[Mapping[Gap, str]] = {
    "not_asked": "not asked for",
    "vector": "no matrix",
    "not_float": "no float numbers on both sides",
    "wide": "too wide",
    "no_l2": "without an l2",
}


def shown_energy(energy: float) -> str:
    """A share of the energy with two decimals, or more where two would make it none."""
    if energy >= 0.01:
        return f"{int(energy * 100) / 100:.2f}"
    return "0" if energy == 0.0 else f"{energy:.1g}"


def spectrum_cell(one: Spectrum | Gap | None) -> str:
    """A tensor's energy in the rank that it looks like, or in that which is always shown."""
    if not isinstance(one, Spectrum):
        return "-"
    rank = one.adapter_rank()
    return f"{shown_energy(one.energy(rank or RANK_SHOWN))} in rank {rank or RANK_SHOWN}"


def spectrum_clause(spectra: Spectra, changed: int) -> str:
    """The clause of the verdict line, of ``changed`` tensors; empty where nothing was measured."""
    measured, ranks = len(spectra.measured), spectra.adapters()
    rank = max(ranks, default=RANK_SHOWN)
    energy = spectra.energy(rank)
    if energy is None:
        return ""
    told = f"energy in rank {rank}: {shown_energy(energy)}"
    if measured < changed:
        told += f" ({measured:,} of {changed:,} measured)"
    if not ranks:
        return told
    if len(ranks) < measured:
        return f"{told}: {len(ranks):,} of {measured:,} look like adapters of rank {rank} or less"
    if measured < changed:
        return f"{told}: what was measured looks like a rank-{rank} adapter"
    return f"{told}: looks like a rank-{rank} adapter"


def spectrum_note(spectra: Spectra, asked: bool) -> str | None:
    """What was not measured and why; None where there is nothing to say, or nobody asked for what cannot be measured."""
    waiting = spectra.left_out("not_asked")
    if waiting:
        seconds = max(spectra.elements // _ELEMENTS_PER_S, 1)
        of = f"{counted(waiting, 'changed matrix', 'changed matrices')} ({scaled(spectra.elements)} numbers)"
        return f"the spectrum of {of} was not measured: --spectrum does, in about {seconds:,} s"
    gaps = [(spectra.left_out(gap), why) for gap, why in _WHY.items()]
    said = [f"{why} ({count:,})" for count, why in gaps if count]
    return f"tensors without a spectrum: {listed(said)}" if said and asked else None


def spectrum_document(spectra: Spectra) -> Document:
    """The whole: how many were measured, how many look like adapters, and the energy of all of them in each rank."""
    ranks = spectra.adapters()
    return {
        "measured": len(spectra.measured),
        "adapters": len(ranks),
        "rank": max(ranks, default=None),
        "energy": {str(rank): _rounded(spectra.energy(rank)) for rank in RANKS} if spectra.measured else None,
        "notMeasured": {gap: count for gap in _WHY if (count := spectra.left_out(gap))},
    }


def tensor_spectrum_document(one: Spectrum | Gap | None) -> Document:
    """What a tensor's row says of its spectrum."""
    if not isinstance(one, Spectrum):
        return {"spectrum": None, "noSpectrum": one}
    found: Document = {
        "rows": one.rows,
        "columns": one.columns,
        "rank": one.adapter_rank(),
        "energy": {str(rank): _rounded(one.energy(rank)) for rank in RANKS},
    }
    return {"spectrum": found, "noSpectrum": None}


def _rounded(energy: float | None) -> float | None:
    """To what the measuring is sure of."""
    return None if energy is None else round(energy, 6)
