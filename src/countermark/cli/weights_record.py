"""``countermark weights record``: a weight edit that was made by hand, as an event."""

from time import time_ns
from typing import Annotated

import typer

from countermark.cli.answers import Answer, Lines, refused
from countermark.cli.options import JsonOption, StoreOption


def weights_record(
    tensor: Annotated[str, typer.Argument(metavar="TENSOR", help="The tensor's name, as the file of weights has it.")],
    changed: Annotated[int, typer.Option("--changed", metavar="N", help="Elements whose bits differ.")],
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="The session to record in; by default a new one.")] = None,
    shape: Annotated[str | None, typer.Option("--shape", metavar="SIZES", help="The tensor's shape, as 1024,4096 (or - for none).")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", metavar="TYPE", help="Its type, as safetensors spells it.")] = None,
    value_changed: Annotated[int | None, typer.Option("--value-changed", metavar="N", help="Elements whose values differ.")] = None,
    non_finite_created: Annotated[
        int | None, typer.Option("--non-finite-created", metavar="N", help="Elements that became NaN or infinite.")
    ] = None,
    non_finite_cleared: Annotated[
        int | None, typer.Option("--non-finite-cleared", metavar="N", help="Elements that are finite again.")
    ] = None,
    l2: Annotated[float | None, typer.Option("--l2", metavar="X", help="The Euclidean norm of after - before.")] = None,
    max_abs: Annotated[float | None, typer.Option("--max-abs", metavar="X", help="The largest absolute value of after - before.")] = None,
    sha256_before: Annotated[str | None, typer.Option("--sha256-before", metavar="HEX", help="SHA-256 of its data before.")] = None,
    sha256_after: Annotated[str | None, typer.Option("--sha256-after", metavar="HEX", help="SHA-256 of its data after.")] = None,
    checkpoint_before: Annotated[
        str | None, typer.Option("--checkpoint-before", metavar="DIGEST", help="The digest of the weights before.")
    ] = None,
    checkpoint_after: Annotated[
        str | None, typer.Option("--checkpoint-after", metavar="DIGEST", help="The digest of the weights after.")
    ] = None,
    alias: Annotated[list[str] | None, typer.Option("--alias", metavar="NAME", help="Another name of the tensor; repeatable.")] = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Free text.")] = None,
    event_id: Annotated[
        str | None, typer.Option("--event-id", metavar="ID", help="Who the event is: recorded again under its id it changes nothing.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Record a weight edit in a session."""
    said = {
        "tensor": tensor, "changed": changed, "shape": None if shape is None else _sizes(shape), "dtype": dtype,
        "valueChanged": value_changed, "nonFiniteCreated": non_finite_created, "nonFiniteCleared": non_finite_cleared, "l2": l2,
        "maxAbs": max_abs, "sha256Before": sha256_before, "sha256After": sha256_after, "checkpointBefore": checkpoint_before,
        "checkpointAfter": checkpoint_after, "aliases": alias, "note": note,
    }  # fmt: skip
    return _recorded({key: value for key, value in said.items() if value is not None}, session, event_id, store)


def _recorded(said: dict[str, object], session: str | None, event_id: str | None, store: str | None) -> Answer:
    from countermark.app.recording import told_edit
    from countermark.app.sessions import take
    from countermark.cli.context import settings
    from countermark.cli.session_reading import of, opened
    from countermark.lines.texts import plain
    from countermark.lines.weight_edits import format_weight_edit
    from countermark.sessions.events import Batch, EventConflicts

    event = of(told_edit(said, session, event_id, time_ns()))
    assert event.session is not None, "an edit is recorded in a session"
    chosen = settings(store_url=store)
    with opened(chosen, create=True) as sessions:
        (item,) = take(sessions, Batch(((0, event),), ())).items
    line = format_weight_edit(said)
    document = {"id": event.id, "session": event.session, "outcome": item.outcome, "line": line}
    if item.outcome == "conflict":
        return refused((EventConflicts(event.id),), document)
    what = "recorded" if item.outcome == "stored" else "recorded before, and nothing changed:"
    return Answer(document, (Lines((line, f"{what} in session {plain(event.session)}")),), warnings=chosen.warnings)


def _sizes(text: str) -> list[int | str]:
    """The sizes of a shape; what is no size stays a text, which the edit refuses by its place."""
    parts = [part.strip() for part in text.strip("[]() ").split(",")] if text.strip("[]() -") else []
    return [int(part) if part.isascii() and part.isdigit() and len(part) < 20 else part for part in parts]
