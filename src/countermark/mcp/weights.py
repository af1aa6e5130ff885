"""The tools of what lies on the disk: checkpoints and differences of weights. Both may take minutes, tell how far they are, and can be
ended; what they measured is held for its further pages."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar, cast, final

from countermark.app.inspect import inspect_checkpoints
from countermark.app.weights import Compared, compared_document
from countermark.app.weights import weights_diff as compared
from countermark.lines.blocks import Lines, Table
from countermark.lines.checkpoint import Inspected, Inspection, checkpoint_document, document_of
from countermark.lines.defects import AnyDefect, defect_documents, known
from countermark.lines.inspected import inspection_blocks
from countermark.lines.serving import ParameterUnfit, PathOutside
from countermark.lines.spectrum import spectrum_note
from countermark.lines.texts import Document, number
from countermark.lines.weights import COLUMNS, difference_rows, known_lines, root_lines, tensor_document, verdict_line
from countermark.mcp.arguments import Given
from countermark.mcp.bounds import taken
from countermark.mcp.cursors import Place
from countermark.mcp.desk import Desk, Told, Watch
from countermark.mcp.sessions import more_line, place_of
from countermark.values import NonEmpty, Refused, shown

T = TypeVar("T")

_RUN: Final = re.compile(r"[0-9a-f]{8,64}", re.ASCII)


@final
@dataclass(frozen=True, slots=True)
class _Seen:
    """An inspection, the defects and warnings of no single checkpoint, and how many bytes were not known before."""

    inspection: Inspection
    alone: tuple[AnyDefect, ...]
    warnings: tuple[AnyDefect, ...]
    hashed: int


@final
@dataclass(frozen=True, slots=True)
class _Differing:
    """A difference, the paths of both sides, and what is odd about them or about kept digests."""

    found: Compared
    a: str
    b: str
    defects: tuple[AnyDefect, ...]
    warnings: tuple[AnyDefect, ...]


def checkpoint_inspect(desk: Desk, given: Given, watch: Watch) -> Told | Refused[object]:
    begun = _measured(desk, "checkpoint_inspect", given, lambda: _inspected(desk, given, watch))
    if isinstance(begun, Refused):
        return begun
    place, seen, first = begun
    every = seen.inspection.checkpoints
    some, _ = taken(every[first : first + given.limit], _inspected_document)
    page = replace(seen.inspection, checkpoints=some)
    each = {at: defect_documents(inspected.defects()) for at, inspected in enumerate(some)}
    document = document_of(page, each, seen.hashed)
    defects = (*(defect for inspected in some for defect in inspected.defects()), *seen.alone)
    cursor = _next(desk, "checkpoint_inspect", given, place, seen, first + len(some), len(every))
    beside: Document = {"first": number(first + 1 if some else 0), "total": number(len(every)), "next": cursor}
    return Told({**document, **beside}, inspection_blocks(page, seen.alone), defects, seen.warnings, more_line(cursor))


def _inspected_document(inspected: Inspected) -> Document:
    """What a checkpoint takes of a page: what speaks against it stands in its own document, and among what is wrong with all of them."""
    defects = defect_documents(inspected.defects())
    return {**checkpoint_document(inspected), "defects": [*defects, *defects]}


def _inspected(desk: Desk, given: Given, watch: Watch) -> _Seen | Refused[object]:
    paths, defects = _paths(desk, [("paths", each) for each in given.texts("paths")])
    run = given.text("run")
    # Whoever asks for a manifest by a name reads the file of that name where there is one.
    if run is not None and (not _RUN.fullmatch(run) or os.path.lexists(run)):
        defects.append(ParameterUnfit("run", shown(run), "a run's id, or 8 or more of its first digits"))
    if (refused := NonEmpty.of(defects)) is not None:
        return Refused(refused)
    cache = desk.cache()
    found = inspect_checkpoints(
        paths, run, False, desk.folder, desk.database, step=given.number("step"), cache=cache, progress=watch.bytes_done
    )
    if isinstance(found, Refused):
        return found
    return _Seen(found, (*known(found.shared), *known(cache.disagreed)), known(cache.warnings), cache.hashed)


def weights_diff(desk: Desk, given: Given, watch: Watch) -> Told | Refused[object]:
    begun = _measured(desk, "weights_diff", given, lambda: _differing(desk, given, watch))
    if isinstance(begun, Refused):
        return begun
    place, seen, first = begun
    found = seen.found.found
    every = tuple(row for row in found.rows if given.flag("equal") or row.status != "equal")
    spectra = dict(seen.found.spectra.found)
    some, _ = taken(every[first : first + given.limit], lambda row: tensor_document(row, spectra.get(row.name)))
    page = replace(seen.found, found=replace(found, rows=some))
    cursor = _next(desk, "weights_diff", given, place, seen, first + len(some), len(every))
    lines = [verdict_line(found, seen.found.spectra), *root_lines(found)]
    if (note := spectrum_note(seen.found.spectra, False)) is not None:
        lines.append(note)
    lines.extend(known_lines(seen.found.known, None))
    blocks = (Lines(tuple(lines)), *((Table(COLUMNS, difference_rows(some, seen.found.spectra)),) if some else ()))
    beside: Document = {"first": number(first + 1 if some else 0), "total": number(len(every)), "next": cursor}
    return Told({**compared_document(page, seen.a, seen.b), **beside}, blocks, seen.defects, seen.warnings, more_line(cursor))


def _differing(desk: Desk, given: Given, watch: Watch) -> _Differing | Refused[object]:
    paths, defects = _paths(desk, [(side, given.text(side) or "") for side in ("a", "b")])
    if (refused := NonEmpty.of(defects)) is not None:
        return Refused(refused)
    a, b = paths
    cache = desk.cache()
    found = compared(a, b, partial=given.flag("partial"), cache=cache, progress=watch.bytes_done, measuring=watch.bytes_done)
    if isinstance(found, Refused):
        return found
    warnings = known((*found.left_out_a, *found.left_out_b, *dict.fromkeys(found.notes), *cache.warnings))
    return _Differing(found, a, b, known(cache.disagreed), warnings)


def _measured(
    desk: Desk, tool: str, given: Given, measure: "Callable[[], T | Refused[object]]"
) -> "tuple[Place | None, T, int] | Refused[object]":
    """Where a call goes on, what was measured for its first page (now, or then), and how many rows went before."""
    place = place_of(desk, tool, given)
    if isinstance(place, ParameterUnfit):
        return Refused(NonEmpty(place))
    held = measure() if place is None else desk.cursors.held(str(place[0]), given.text("cursor") or "")
    if isinstance(held, ParameterUnfit):
        return Refused(NonEmpty(held))
    if isinstance(held, Refused):
        return cast("Refused[object]", held)
    return place, cast("T", held), 0 if place is None else int(place[1])


def _paths(desk: Desk, named: list[tuple[str, str]]) -> tuple[list[str], list[PathOutside | ParameterUnfit]]:
    read = [desk.places.path_of(text, argument) for argument, text in named]
    return [each for each in read if isinstance(each, str)], [each for each in read if not isinstance(each, str)]


def _next(desk: Desk, tool: str, given: Given, place: Place | None, seen: object, passed: int, total: int) -> str | None:
    """The cursor of the page that begins after ``passed`` rows; what the first one measured is kept for it."""
    if passed >= total:
        return None
    name = desk.cursors.hold(seen) if place is None else str(place[0])
    return desk.cursors.spell(tool, given.asked(), (name, passed))
