"""The spectrum of a change in words: said of the whole only where it holds for the whole."""

from contextlib import AbstractContextManager

from countermark.lines.spectrum import (
    shown_energy,
    spectrum_cell,
    spectrum_clause,
    spectrum_document,
    spectrum_note,
    tensor_spectrum_document,
)
from countermark.weights.spectrum import NO_SPECTRA, Spectra, Spectrum
from tests.faults import planted, proven_by

ADAPTER = Spectrum(900, 900, 3.0, (*[0.124] * 8, *[1e-5] * 32), 800, 800)
DENSE = Spectrum(900, 900, 4.0, (0.005,) * 40, 800, 800)


def every_change_is_an_adapter() -> AbstractContextManager[object]:
    """Whatever was measured is counted as one."""
    return planted(Spectra, "adapters", lambda self: tuple(8 for _ in self.measured))()


def test_shares_are_cut_and_never_rounded_to_all_or_none() -> None:
    shares = {0.9999: "0.99", 1.0: "1.00", 0.0: "0", 0.004: "0.004", 1e-7: "1e-07", 0.129: "0.12"}
    assert {share: shown_energy(share) for share in shares} == shares


@proven_by(every_change_is_an_adapter)
def test_an_adapter_is_said_of_the_whole_only_where_the_whole_is_one() -> None:
    one, two = Spectra((("a", ADAPTER),)), Spectra((("a", ADAPTER), ("b", DENSE)))
    beside = Spectra((("a", ADAPTER), ("v", "vector")))
    assert [spectrum_clause(*each) for each in ((one, 1), (beside, 2), (two, 2), (Spectra((("b", DENSE),)), 1), (NO_SPECTRA, 3))] == [
        "energy in rank 8: 0.99: looks like a rank-8 adapter",
        "energy in rank 8: 0.99 (1 of 2 measured): what was measured looks like a rank-8 adapter",
        "energy in rank 8: 0.38: 1 of 2 look like adapters of rank 8 or less",
        "energy in rank 8: 0.04",
        "",
    ]


def test_what_was_not_measured_is_said_with_what_it_would_cost() -> None:
    waiting = Spectra((("a", "not_asked"), ("b", "not_asked"), ("v", "vector")), 3_000_000_000)
    assert (
        spectrum_note(waiting, False) == "the spectrum of 2 changed matrices (3 B numbers) was not measured: --spectrum does, in about 30 s"
    )
    beside = Spectra((("a", ADAPTER), ("v", "vector"), ("w", "wide")))
    assert spectrum_note(beside, True) == "tensors without a spectrum: no matrix (1) and too wide (1)"
    assert (spectrum_note(beside, False), spectrum_note(Spectra((("a", ADAPTER),)), True)) == (None, None)


def test_cells_and_documents_tell_the_rank_and_the_reason() -> None:
    assert [spectrum_cell(each) for each in (ADAPTER, DENSE, "wide", None)] == ["0.99 in rank 8", "0.04 in rank 8", "-", "-"]
    document = spectrum_document(Spectra((("a", ADAPTER), ("v", "vector"))))
    assert (document["measured"], document["adapters"], document["rank"], document["notMeasured"]) == (1, 1, 8, {"vector": 1})
    assert tensor_spectrum_document("wide") == {"spectrum": None, "noSpectrum": "wide"}
    assert tensor_spectrum_document(DENSE)["spectrum"] == {
        "rows": 900, "columns": 900, "rank": None,
        "energy": {"1": 0.005, "2": 0.01, "4": 0.02, "8": 0.04, "16": 0.08, "32": 0.16},
    }  # fmt: skip
