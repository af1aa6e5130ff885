"""What becomes an event here: edits that were found between two weights, edits that a person tells of, and transcripts of agents.

Rules kept here:

1. What is recorded is checked as what comes in from elsewhere is: one roster of fields, every field that is wrong named.
2. A transcript is stored batch by batch, each by one commit: an import that is broken off is carried on by calling it again, which stores
   nothing twice.
"""

import os
import secrets
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, final

from countermark.app.sessions import events_of, take
from countermark.files.lines import lines_of
from countermark.files.reading import OpenFile, open_file, read_small
from countermark.lines.of_sessions import event_sentence
from countermark.sessions.canonical import spelled_json
from countermark.sessions.edits import EventFieldDefect, WeightEdit, read_edit
from countermark.sessions.events import Batch, Event, EventDefect, EventLineRefused, EventRefused
from countermark.sessions.records import SessionNotFound
from countermark.store.sessions.interface import SessionStore
from countermark.values import NonEmpty, Refused, WeightsRoot
from countermark.weights.difference import WeightsDifference
from countermark.weights.edits import EditUnreadable, TensorEdit
from countermark.weights.refusals import FileDefect
from countermark.wire.events import LINE_BYTES_MAX, read_event
from countermark.wire.transcripts import Transcript
from countermark.wire.weight_edits import edit_of, edit_of_payload, edits_of

#: Events that are stored by one commit of an import.
BATCH_EVENTS: Final = 500
#: The longest file of events that edits are read from, in bytes.
EVENTS_BYTES_MAX: Final = 1 << 30
#: Refused lines of a transcript that are named; the others are counted.
NAMED_MAX: Final = 20


def new_id() -> str:
    """A UUID of version 7: milliseconds first, then randomness, so that ids sort by time."""
    stamp = (time.time_ns() // 1_000_000) << 80
    noise = secrets.randbits(80) & ~(0xF << 76) & ~(0x3 << 62)
    return str(uuid.UUID(int=stamp | 0x7 << 76 | 0x2 << 62 | noise))


def edit_event(edit: WeightEdit, session: str, now_ns: int) -> Event:
    """A new event of an edit that happened now (ns UTC)."""
    payload = spelled_json(edit.payload(), "payload")
    assert not isinstance(payload, Refused), "an edit's fields have spellings"
    return Event(new_id(), "notification", payload, now_ns, session, start_ns=now_ns)


def edits_found(found: WeightsDifference, session: str) -> tuple[Event, ...] | Refused[EventFieldDefect]:
    """One weight-edit event for every changed tensor, in the order of the names; refused where no event can carry some tensor's name."""
    before, after = (root.spell() if isinstance(root, WeightsRoot) else None for root in (found.root_a, found.root_b))
    now_ns = time.time_ns()
    edits = tuple(edit for row in found.rows if (edit := edit_of(row, before, after)) is not None)
    refusals = [read for edit in edits if isinstance(read := read_edit(edit.payload(), f"{edit.tensor[:40]}: "), Refused)]
    if (defects := NonEmpty.of(defect for refusal in refusals for defect in refusal.defects)) is not None:
        return Refused(defects)
    return tuple(edit_event(edit, session, now_ns) for edit in edits)


def told_edit(said: Mapping[str, object], session: str | None, event_id: str | None, now_ns: int) -> Event | Refused[EventDefect]:
    """The event of an edit that somebody tells of, by the keys of its payload; in a session of its own where none is named."""
    document = {
        "id": event_id if event_id is not None else new_id(),
        "type": "notification",
        "session": session if session is not None else f"edit:{new_id()}",
        "time": now_ns,
        "payload": {"kind": "weights.edit", **said},
    }
    return read_event(document, now_ns)


@final
@dataclass(frozen=True, slots=True)
class Imported:
    """What an import came to: how many events are stored now, were stored before, and came with another payload under a known id; the
    sessions that they belong to, and the lines that were refused, the first of them by name."""

    stored: int = 0
    duplicates: int = 0
    conflicts: int = 0
    sessions: tuple[str, ...] = ()
    refused: int = 0
    named: tuple[EventLineRefused, ...] = ()


def import_transcripts(
    store: SessionStore, files: Sequence[str], session: str | None, named: tuple[str, ...], progress: Callable[[int, int], None]
) -> Imported | Refused[FileDefect]:
    """Store the events of transcripts, one file after another. ``session`` is what events belong to that name none, by default the name of
    their file; ``named`` are texts that are secrets wherever they stand. Refused with every file that cannot be opened, before anything is
    stored. Raises ``StoreError``."""
    paths = [Path(os.path.realpath(file)) for file in files]
    opened = [open_file(path.parent, path.name) for path in paths]
    good = [file for file in opened if isinstance(file, OpenFile)]
    try:
        if (defects := NonEmpty.of(file for file in opened if not isinstance(file, OpenFile))) is not None:
            return Refused(defects)
        total, done, tally = sum(file.size for file in good), 0, _Tally()
        for file in good:
            name = session or file.name.removesuffix(".jsonl")
            broken_off = _imported(tally, store, file, name, named, partial(_onward, progress, done, total))
            if broken_off is not None:
                return Refused(NonEmpty(broken_off))
            done += file.size
        progress(total, total)
        return tally.whole()
    finally:
        for file in good:
            file.__exit__(None, None, None)


def _onward(progress: Callable[[int, int], None], before: int, total: int, done: int) -> None:
    """Progress within one of several files."""
    progress(before + done, total)


@dataclass(slots=True)
class _Tally:
    """An import while it goes on."""

    stored: int = 0
    duplicates: int = 0
    conflicts: int = 0
    refused: int = 0
    sessions: dict[str, None] = field(default_factory=dict[str, None])
    named: list[EventLineRefused] = field(default_factory=list[EventLineRefused])

    def refuse(self, file: str, line: int, item: EventRefused) -> None:
        self.refused += 1
        if len(self.named) < NAMED_MAX:
            self.named.append(EventLineRefused(file, line, _why(item)))

    def store(self, store: SessionStore, events: Sequence[Event]) -> None:
        taken = take(store, Batch(tuple(enumerate(events)), ()))
        self.stored += taken.count("stored")
        self.duplicates += taken.count("duplicate")
        self.conflicts += taken.count("conflict")
        self.sessions.update((event.session, None) for event in events if event.session is not None)

    def whole(self) -> Imported:
        return Imported(self.stored, self.duplicates, self.conflicts, tuple(self.sessions), self.refused, tuple(self.named))


def _imported(
    tally: _Tally, store: SessionStore, file: OpenFile, session: str, named: tuple[str, ...], progress: Callable[[int], None]
) -> FileDefect | None:
    """Store the events of one file; what kept it from being read to its end."""
    reader = Transcript(session, time.time_ns(), named)
    waiting, done = list[Event](), 0
    for number, line in enumerate(lines_of(file, LINE_BYTES_MAX)):
        if not isinstance(line, bytes):
            return line
        read = reader.read(line, number)
        done += len(line) + 1
        if isinstance(read, EventRefused):
            tally.refuse(file.name, number + 1, read)
        else:
            waiting.extend(read)
        if len(waiting) >= BATCH_EVENTS:
            tally.store(store, waiting)
            waiting = []
            progress(min(done, file.size))
    tally.store(store, waiting)
    return None


def _why(item: EventRefused) -> str:
    return "; ".join(event_sentence(defect).message for defect in item.defects)


def recorded_edits(files: Sequence[str]) -> tuple[TensorEdit, ...] | Refused[FileDefect | EditUnreadable]:
    """The weight edits of files of events, one after another, or every line of all files that cannot be read."""
    edits: list[TensorEdit] = []
    defects: list[FileDefect | EditUnreadable] = []
    for file in files:
        real = Path(os.path.realpath(file))
        content = read_small(real.parent, real.name, EVENTS_BYTES_MAX)
        found = edits_of(file, content) if isinstance(content, bytes) else Refused(NonEmpty(content))
        if isinstance(found, Refused):
            defects.extend(found.defects)
        else:
            edits.extend(found)
    return Refused(refused) if (refused := NonEmpty.of(defects)) is not None else tuple(edits)


def session_edits(store: SessionStore, session: str) -> tuple[TensorEdit, ...] | Refused[SessionNotFound | EditUnreadable]:
    """The weight edits of a session in its order, or every event of it that says it is one and is none. Raises ``StoreError``."""
    found = store.session(session)
    if isinstance(found, Refused):
        return Refused(NonEmpty(found.defects.first, found.defects.more))
    edits: list[TensorEdit] = []
    defects: list[SessionNotFound | EditUnreadable] = []
    for stored in events_of(store, found.id):
        edit = edit_of_payload(f"{found.id}:{stored.event.id}", stored.event.payload.value)
        if isinstance(edit, Refused):
            defects.extend(edit.defects)
        elif edit is not None:
            edits.append(edit)
    return Refused(refused) if (refused := NonEmpty.of(defects)) is not None else tuple(edits)
