"""Recorded edits at the command line: those that a command keeps, and those that it is told of, in files or in sessions."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from countermark.lines.texts import Document
    from countermark.values import Refused
    from countermark.weights.difference import WeightsDifference
    from countermark.weights.edits import TensorEdit


@final
@dataclass(frozen=True, slots=True)
class Kept:
    """What was recorded of a difference: for people, and for documents (None where nothing was to be)."""

    lines: tuple[str, ...] = ()
    document: "Document | None" = None


def recorded(difference: "WeightsDifference", session: str | None, into_store: bool, store: str | None, into_file: str | None) -> Kept:
    """Keep an event of every changed tensor in the store, in a new file, or in both."""
    if not into_store and into_file is None:
        return Kept()
    from countermark.app.recording import edits_found, new_id
    from countermark.cli.context import new_file, settings
    from countermark.cli.session_reading import of, opened
    from countermark.lines.texts import counted, number, plain
    from countermark.wire.events import event_line

    name = session if session is not None else f"diff:{new_id()}"
    events = of(edits_found(difference, name))
    what = counted(len(events), "weight edit")
    lines: list[str] = []
    if into_store and events:
        with opened(settings(store_url=store), create=True) as sessions:
            sessions.ingest(events)
        lines.append(f"recorded {what} in session {plain(name)}: countermark show {plain(name)}")
    elif into_store:
        lines.append("nothing changed, and nothing is recorded")
    if into_file is not None:
        new_file(into_file, "--record-to", b"".join(map(event_line, events)))
        lines.append(f"recorded {what} in {plain(into_file)}")
    document: Document = {
        "session": name if into_store and events else None,
        "file": into_file,
        "events": number(len(events)),
    }
    return Kept(tuple(lines), document)


def claimed_edits(sources: Iterable[str], store: str | None) -> "tuple[TensorEdit, ...] | Refused[object]":
    """The edits of files of events, or of sessions of the store where no file has the name, one source after another; refused with
    everything that is wrong with all of them."""
    from countermark.app.recording import recorded_edits, session_edits
    from countermark.cli.context import settings
    from countermark.cli.session_reading import opened
    from countermark.values import NonEmpty, Refused

    found: list[TensorEdit] = []
    defects: list[object] = []
    for source in sources:
        if os.path.lexists(source):
            of_source: tuple[TensorEdit, ...] | Refused[object] = recorded_edits((source,))
        else:
            with opened(settings(store_url=store)) as sessions:
                of_source = session_edits(sessions, source)
        if isinstance(of_source, Refused):
            defects.extend(of_source.defects)
        else:
            found.extend(of_source)
    return Refused(refused) if (refused := NonEmpty.of(defects)) is not None else tuple(found)
