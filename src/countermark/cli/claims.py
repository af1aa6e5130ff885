"""``countermark claims``: every control fact of a run, in the order of the ledger."""

from countermark.cli.answers import Answer, Table
from countermark.cli.options import JsonOption, RunArgument, StoreOption


def claims(run: RunArgument, store: StoreOption = None, as_json: JsonOption = False) -> Answer:
    """Show a run's claims, dispatches and decisions in the order of the ledger."""
    from countermark.cli.context import settings
    from countermark.cli.running import found, opened
    from countermark.lines.runs import CLAIM_COLUMNS, claim_documents, claim_rows
    from countermark.lines.sentence import short
    from countermark.lines.texts import Document

    chosen = settings(store_url=store)
    with opened(chosen) as ports:
        record = found(ports, run)
    document: Document = {"run": record.run_id, "version": record.ledger.version, "claims": claim_documents(record)}
    return Answer(document, (Table(CLAIM_COLUMNS, claim_rows(record)),), (), chosen.warnings, run=short(record.run_id))
