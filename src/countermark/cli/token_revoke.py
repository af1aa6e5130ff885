"""``countermark token revoke``: an end to what a token may do."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer, Lines
from countermark.cli.options import JsonOption, StoreOption


def token_revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The token's name.")], store: StoreOption = None, as_json: JsonOption = False
) -> Answer:
    """Take a token's rights for good: the next request with it is turned away."""
    from countermark.cli.context import settings
    from countermark.cli.serving import tokens_of
    from countermark.cli.session_reading import of
    from countermark.server.tokens import revoke_token

    chosen = settings(store_url=store)
    revoked = of(revoke_token(tokens_of(chosen), name))
    return Answer({"name": revoked.name}, (Lines((f"{revoked.name} may do nothing any more",)),), warnings=chosen.warnings)
