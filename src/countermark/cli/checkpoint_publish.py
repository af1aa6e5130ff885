"""``countermark checkpoint publish``: a checkpoint folder, published whole or not at all."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer, Lines
from countermark.cli.options import JsonOption


def checkpoint_publish(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A checkpoint in an attempt's folder, as a trainer wrote it: a folder, or one file.")
    ],
    into: Annotated[
        str | None, typer.Option("--into", metavar="DIR", help="Where to publish it; by default among the attempt's own.")
    ] = None,
    as_json: JsonOption = False,
) -> Answer:
    """Publish a checkpoint atomically, with digests."""
    from countermark.app.inspect import publish_checkpoint
    from countermark.cli.context import existing_path, folder_to_be
    from countermark.cli.failures import CallRefused
    from countermark.lines.defects import known
    from countermark.lines.texts import number, plain, sized
    from countermark.values import Refused

    place = existing_path(path, "a checkpoint")
    found = publish_checkpoint(place, None if into is None else folder_to_be(into, "--into", place))
    if isinstance(found, Refused):
        raise CallRefused(known(found.defects))
    document = {"path": found.path, "step": number(found.step), "digest": found.identity.digest.spell(), "bytes": number(found.bytes)}
    lines = (f"published {plain(found.path)}", f"step {found.step}, {sized(found.bytes)}, {found.identity.digest.spell()}")
    return Answer(document, (Lines(lines),))
