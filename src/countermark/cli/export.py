"""``countermark export``: the events of sessions, for programs that read JSON lines, CSV or Parquet."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countermark.cli.answers import Answer, Lines
from countermark.cli.failures import WrongCall
from countermark.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from countermark.app.exporting import Format
    from countermark.sessions.records import StoredEvent


def _form(form: str | None, to: str | None) -> "Format":
    """The format that is asked for, or that the name of the file says."""
    from countermark.app.exporting import FORMATS
    from countermark.values import shown

    ending = "" if to is None else Path(to).suffix.removeprefix(".")
    asked = form if form is not None else ending if ending in FORMATS else "jsonl"
    for each in FORMATS:
        if each == asked:
            return each
    raise WrongCall(f"--format {shown(asked)} is none", f"write one of {', '.join(FORMATS)}")


def export(
    sessions: Annotated[list[str] | None, typer.Argument(metavar="SESSION...", help="Sessions; by default all of them.")] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="FILTER", help="Only sessions for which this holds, as in: weights.edits > 0")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="F", help="jsonl, csv or parquet; by default as the name of the file ends, else jsonl."),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="FILE", help="A new file; by default standard output.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Write the events of sessions as JSON lines, CSV or Parquet."""
    from countermark.app.exporting import export as written
    from countermark.app.exporting import sessions_for
    from countermark.app.sessions import events_of
    from countermark.cli.context import name_to_be, settings
    from countermark.cli.progress import exporting
    from countermark.cli.session_reading import of, opened
    from countermark.files.durable import make_new
    from countermark.lines.texts import counted, number, plain

    chosen_form = _form(form, to)
    if sessions and where is not None:
        raise WrongCall("SESSION and --where both say which sessions", "leave out one of the two")
    if to is None and (as_json or chosen_form == "parquet"):
        raise WrongCall("standard output is for the answer or for text", "name a new file: --to FILE")
    name_to_be(to, "--to")
    chosen = settings(store_url=store)
    with opened(chosen) as kept:
        ids = (of(kept.session(each)).id for each in [*sessions]) if sessions else of(sessions_for(kept, where))
        names = tuple(dict.fromkeys(ids)) if sessions else ids

        def write(into: "BinaryIO") -> int:
            events: Iterator[StoredEvent] = (stored for name in names for stored in events_of(kept, name))
            return written(events, chosen_form, into, exporting())

        def into_descriptor(descriptor: int) -> int:
            with open(descriptor, "wb", closefd=False) as into:
                return write(into)

        if to is None:
            write(sys.stdout.buffer)
            sys.stdout.flush()
            return Answer(warnings=chosen.warnings)
        count = make_new(Path(to), into_descriptor)
    document = {"file": to, "format": chosen_form, "events": number(count)}
    return Answer(document, (Lines((f"{counted(count, 'event')} in {plain(to)}",)),), warnings=chosen.warnings)
