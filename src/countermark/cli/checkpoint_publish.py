"""``countermark checkpoint publish``: a checkpoint folder, published whole or not at all."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer, Lines
from countermark.cli.options import JsonOption


def checkpoint_publish(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A checkpoint's folder, as a trainer wrote it.")],
    into: Annotated[str | None, typer.Option("--into", metavar="DIR", help="Where to publish it; by default beside PATH.")] = None,
    as_json: JsonOption = False,
) -> Answer:
    """Publish a checkpoint folder atomically, with digests."""
    from countermark.app.inspect import publish_checkpoint
    from countermark.cli.context import existing_path
    from countermark.cli.failures import CallRefused
    from countermark.lines.defects import known
    from countermark.lines.texts import number, plain, sized
    from countermark.values import Refused

    found = publish_checkpoint(existing_path(path, "a checkpoint's folder"), into)
    if isinstance(found, Refused):
        raise CallRefused(known(found.defects))
    document = {"path": found.path, "step": number(found.step), "digest": found.identity.digest.spell(), "bytes": number(found.bytes)}
    lines = (f"published {plain(found.path)}", f"step {found.step}, {sized(found.bytes)}, {found.identity.digest.spell()}")
    return Answer(document, (Lines(lines),))
