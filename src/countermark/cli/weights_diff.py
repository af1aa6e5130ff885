"""``countermark weights diff``: what changed between two weights, tensor by tensor."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from countermark.cli.answers import REFUSED, Answer, Lines, Table, known_defects
from countermark.cli.options import FreshOption, JsonOption, StoreOption

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countermark.app.weights import Compared
    from countermark.files.digest_cache import DigestCache
    from countermark.lines.surface import DifferenceFailsOn
    from countermark.weights.difference import Rule, Surprises, TensorDifference
    from countermark.weights.pairing import Pairing

_WHAT = "A folder of weights, or one safetensors file."


def weights_diff(
    a: Annotated[str, typer.Argument(metavar="A", help=_WHAT)],
    b: Annotated[str, typer.Argument(metavar="B", help=_WHAT)],
    every: Annotated[bool, typer.Option("--all", help="Show equal tensors too.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Compare what exists of an incomplete folder, and say what is missing.")
    ] = False,
    expect: Annotated[list[str] | None, typer.Option("--expect", metavar="PATTERN", help="Tensors that should have changed.")] = None,
    fail_on: Annotated[list[str] | None, typer.Option("--fail-on", metavar="WHAT", help="Exit with 1 on this, too; repeatable.")] = None,
    edits: Annotated[
        list[str] | None, typer.Option("--edits", metavar="FILE|SESSION", help="Recorded edits that B must bear out; repeatable.")
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Record an event for every changed tensor in a session of the store.")] = False,
    record_to: Annotated[str | None, typer.Option("--record-to", metavar="FILE", help="Write these events into a file.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="The session to record in; by default a new one.")] = None,
    spectrum: Annotated[
        bool | None,
        typer.Option(
            "--spectrum/--no-spectrum",
            help="Measure in how few directions each changed matrix changed; by default where that takes less than a second.",
        ),
    ] = None,
    draws: Annotated[bool, typer.Option("--map", help="Draw a map of the change by layer and module.")] = False,
    svg: Annotated[str | None, typer.Option("--svg", metavar="FILE", help="Write that map as a picture.")] = None,
    base_root: Annotated[
        str | None, typer.Option("--base-root", metavar="FILE", help="Lines that weights root --lines wrote of A: A is not hashed again.")
    ] = None,
    fresh: FreshOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Say what changed between two weights, tensor by tensor, with both roots."""
    from countermark.app.weights import compared_document, not_borne_out
    from countermark.cli.context import digest_cache, name_to_be, new_file
    from countermark.cli.session_reading import of
    from countermark.cli.weights_events import claimed_edits, recorded
    from countermark.cli.weights_maps import drawn, picture
    from countermark.lines.spectrum import spectrum_note
    from countermark.lines.weights import COLUMNS, difference_rows, known_lines, root_lines, verdict_line
    from countermark.weights.difference import surprises_of

    name_to_be(record_to, "--record-to")
    name_to_be(svg, "--svg")
    rules = _rules(fail_on)
    claimed = of(claimed_edits(edits or (), store)) if edits else ()
    cache = digest_cache(fresh)
    found = _compared(a, b, partial, spectrum, cache, base_root)
    difference = found.found
    surprises = surprises_of(difference.rows, expect or ())
    defects = known_defects((*_failed(difference.rows, rules, surprises), *not_borne_out(difference, claimed), *cache.disagreed))
    kept = recorded(difference, session, record, store, record_to)
    if svg is not None:
        new_file(svg, "--svg", picture(found, surprises, a, b))
    shown = tuple(row for row in difference.rows if every or row.status != "equal")
    lines = [verdict_line(difference, found.spectra), *root_lines(difference)]
    if (note := spectrum_note(found.spectra, spectrum is True)) is not None and spectrum is not False:
        lines.append(note)
    lines.extend(known_lines(found.known, base_root))
    if expect:
        lines.append(f"expected and unchanged: {len(surprises.unchanged):,}; changed and not expected: {len(surprises.changed):,}")
    lines.extend(kept.lines)
    blocks = (
        Lines(tuple(lines)),
        *((drawn(found, surprises),) if draws and not as_json else ()),
        *((Table(COLUMNS, difference_rows(shown, found.spectra)),) if shown else ()),
    )
    document = {**compared_document(found, a, b, base_root), "recorded": kept.document}
    warnings = known_defects((*found.left_out_a, *found.left_out_b, *dict.fromkeys(found.notes), *cache.warnings))
    return Answer(document, blocks, defects, warnings, REFUSED if defects else 0)


def _failed(rows: "Iterable[TensorDifference]", rules: "Iterable[Rule]", surprises: "Surprises") -> "tuple[DifferenceFailsOn, ...]":
    """What the caller wants to fail on."""
    from countermark.weights.difference import failing

    broken = failing(rows, rules, surprises)
    if not broken:
        return ()
    from countermark.lines.surface import DifferenceFailsOn

    return tuple(DifferenceFailsOn(rule, names) for rule, names in broken)


def _rules(texts: "list[str] | None") -> "tuple[Rule, ...]":
    """The rules of --fail-on, or a call that names those there are."""
    from countermark.cli.failures import WrongCall
    from countermark.lines.texts import either
    from countermark.values import shown
    from countermark.weights.difference import RULES

    unknown = [text for text in texts or () if text not in RULES]
    if unknown:
        raise WrongCall(f"--fail-on {', '.join(map(shown, unknown))} is nothing to fail on", f"write --fail-on {either(RULES)}")
    return tuple(rule for rule in RULES if rule in (texts or ()))


def _compared(a: str, b: str, partial: bool, spectrum: "bool | None", cache: "DigestCache", base_root: "str | None") -> "Compared":
    """The difference, or a call that is refused."""
    from countermark.app.weights import weights_diff as compared
    from countermark.cli.context import existing_path
    from countermark.cli.failures import CallRefused
    from countermark.cli.progress import hashing
    from countermark.values import Refused

    if "numpy" not in sys.modules:
        # The reading has two threads already: those of the linear algebra would only wait for one another.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    paths = (existing_path(a, "a folder of weights or one file of them"), existing_path(b, "a folder of weights or one file of them"))
    watching = hashing(f"{a} and {b}"), hashing(f"spectra of {a} and {b}")
    found = compared(
        *paths,
        partial=partial,
        spectrum=spectrum,
        cache=cache,
        base_lines=base_root,
        preflight=_preflight,
        progress=watching[0],
        measuring=watching[1],
    )
    if isinstance(found, Refused):
        raise CallRefused(known_defects(found.defects))
    return found


def _preflight(pairing: "Pairing") -> None:
    """What the headers alone show, said before the data is read: a wrong pair of files is seen in milliseconds."""
    from countermark.cli.progress import say
    from countermark.lines.weights import preflight_lines

    for line in preflight_lines(pairing):
        say(line)
