"""``countermark token add``: a token for those who send to the server or ask of it."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from countermark.cli.answers import Answer, Lines
from countermark.cli.options import JsonOption, StoreOption


def token_add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the token is called when it is listed or revoked.")],
    scope: Annotated[list[str], typer.Option("--scope", metavar="SCOPE", help="What it may do: ingest, read or act; repeatable.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Make a token and tell it once; what is kept of it is its hash."""
    from countermark.cli.context import settings
    from countermark.cli.serving import tokens_of
    from countermark.cli.session_reading import of
    from countermark.server.tokens import add_token

    chosen = settings(store_url=store)
    text = of(add_token(tokens_of(chosen), name, scope, datetime.now(UTC).isoformat(timespec="seconds")))
    lines = (text, "it is told this once: set COUNTERMARK_TOKEN to it, or send it as Authorization: Bearer TOKEN")
    return Answer({"name": name, "scopes": list(dict.fromkeys(scope)), "token": text}, (Lines(lines),), warnings=chosen.warnings)
