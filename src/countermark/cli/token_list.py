"""``countermark token list``: the names of the tokens, and what each may do."""

from countermark.cli.answers import Answer, Lines, Table
from countermark.cli.options import JsonOption, StoreOption


def token_list(store: StoreOption = None, as_json: JsonOption = False) -> Answer:
    """List the server's tokens by their names; none of them can be told again."""
    from countermark.cli.context import settings
    from countermark.cli.serving import tokens_of
    from countermark.server.tokens import read_tokens

    chosen = settings(store_url=store)
    found = read_tokens(tokens_of(chosen))
    rows = tuple((token.name, ", ".join(token.scopes), token.made) for token in found)
    blocks = (Table(("name", "may", "made"), rows),) if rows else (Lines(("no token: countermark token add NAME --scope ingest",)),)
    document = {"tokens": [{"name": token.name, "scopes": list(token.scopes), "made": token.made} for token in found]}
    return Answer(document, blocks, warnings=chosen.warnings)
