"""``countermark demo``: the story from a refused recipe to equal weights, on a real fine-tune."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer


def demo(
    folder: Annotated[str | None, typer.Option("--into", metavar="DIR", help="A new folder for it; by default ./demo.")] = None,
) -> Answer:
    """Tell the whole story on a real small fine-tune, in a folder of its own."""
    from countermark.cli.chapters import tell

    return Answer(code=tell(folder))
