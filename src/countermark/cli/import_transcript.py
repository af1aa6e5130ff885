"""``countermark import transcript``: what an agent wrote of its sessions, as events."""

from typing import Annotated

import typer

from countermark.cli.answers import REFUSED, Answer, Lines
from countermark.cli.options import JsonOption, StoreOption


def import_transcript(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Transcripts, one JSON object a line.")],
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="What belongs to that names no session; by default the name of its file."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Store transcripts of agents as sessions, without their secrets; again stores nothing twice."""
    from countermark.app.recording import import_transcripts
    from countermark.cli.context import existing_file, settings
    from countermark.cli.progress import reading
    from countermark.cli.session_reading import of, opened
    from countermark.lines.texts import counted, listed, number, plain

    files = [existing_file(path, "a transcript") for path in paths]
    chosen = settings(store_url=store)
    with opened(chosen, create=True) as sessions:
        found = of(import_transcripts(sessions, files, session, (), reading("transcripts")))
    lines = [f"{counted(found.stored, 'event')} stored, {found.duplicates:,} stored before"]
    if found.conflicts:
        lines.append(f"{counted(found.conflicts, 'event')} came with another payload under a known id: the first is kept")
    if found.sessions:
        more = f" and {len(found.sessions) - 5:,} more" if len(found.sessions) > 5 else ""
        lines.append(f"countermark show {listed(plain(each, 80) for each in found.sessions[:5])}{more}")
    if found.refused:
        lines.append(f"{counted(found.refused, 'line')} refused")
    document = {
        "stored": number(found.stored),
        "duplicates": number(found.duplicates),
        "conflicts": number(found.conflicts),
        "sessions": list(found.sessions),
        "refused": number(found.refused),
    }
    return Answer(document, (Lines(tuple(lines)),), found.named, chosen.warnings, REFUSED if found.refused else 0)
