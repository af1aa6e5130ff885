"""``countermark evidence``: what the last sweep saw, source by source, in read order."""

from countermark.cli.answers import Answer, Lines, Table
from countermark.cli.options import JsonOption, RunArgument, StoreOption


def evidence(run: RunArgument, store: StoreOption = None, as_json: JsonOption = False) -> Answer:
    """Show what the last sweep saw on each axis, with receipts, in read order."""
    from countermark.app.running import kept_sweep
    from countermark.cli.context import settings
    from countermark.cli.failures import CallRefused
    from countermark.cli.running import found, opened
    from countermark.lines.defects import known
    from countermark.lines.runs import MEMBER_COLUMNS, SOURCE_COLUMNS, member_rows, source_rows, sweep_document
    from countermark.lines.sentence import short
    from countermark.lines.texts import Document
    from countermark.values import Refused

    chosen = settings(store_url=store)
    with opened(chosen) as ports:
        record = found(ports, run)
        kept = kept_sweep(ports, record.run_id)
    if isinstance(kept, Refused):
        raise CallRefused(known(kept.defects))
    name = short(record.run_id)
    if kept is None:
        nothing = Lines((f"nobody has looked at this run yet: countermark reconcile {name}",))
        return Answer({"run": record.run_id, "sweep": None}, (nothing,), (), chosen.warnings, run=name)
    reads = kept.sweep.reads
    named = Lines(
        (f"sweep {kept.sweep_id}: conclude from it once more with countermark reconcile {name} --from-sweep {kept.sweep_id[:8]}",)
    )
    blocks = (Table(SOURCE_COLUMNS, source_rows(reads)), Table(MEMBER_COLUMNS, member_rows(reads)), named)
    document: Document = {"run": record.run_id, "sweep": sweep_document(kept.sweep_id, reads, kept.sweep.cut)}
    return Answer(document, blocks, (), chosen.warnings, run=name)
