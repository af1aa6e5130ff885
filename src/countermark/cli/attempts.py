"""``countermark attempts``: a run's graph, and what the last sweep saw of each attempt."""

from countermark.cli.answers import Answer, Lines, Table
from countermark.cli.options import JsonOption, RunArgument, StoreOption


def attempts(run: RunArgument, store: StoreOption = None, as_json: JsonOption = False) -> Answer:
    """Show a run's attempts, their causes and how each ended."""
    from countermark.app.running import latest_sweep
    from countermark.cli.context import settings
    from countermark.cli.failures import CallRefused
    from countermark.cli.running import found, opened
    from countermark.lines.defects import known
    from countermark.lines.runs import ATTEMPT_COLUMNS, attempt_documents, attempt_rows
    from countermark.lines.sentence import short
    from countermark.lines.texts import Document, plain
    from countermark.values import Refused

    chosen = settings(store_url=store)
    with opened(chosen) as ports:
        record = found(ports, run)
        seen = latest_sweep(ports, record.run_id)
        if isinstance(seen, Refused):
            raise CallRefused(known(seen.defects))
        folders = {claim.attempt.nonce.hex: str(ports.launcher.folder(claim.attempt.nonce.hex)) for claim in record.ledger.claims}
    reads = None if seen is None else seen.reads
    rows = attempt_rows(record.ledger, reads)
    lines = tuple(f"{short(nonce)} lies in {plain(folder)}" for nonce, folder in folders.items())
    document: Document = {"run": record.run_id, "attempts": attempt_documents(record.ledger, reads), "folders": dict(folders)}
    return Answer(document, (Table(ATTEMPT_COLUMNS, rows), Lines(lines)), (), chosen.warnings, run=short(record.run_id))
