"""``countermark store check``: everything in a store read again, and every key derived again."""

from countermark.cli.answers import REFUSED, Answer, Lines, Table
from countermark.cli.options import JsonOption, StoreOption


def store_check(store: StoreOption = None, as_json: JsonOption = False) -> Answer:
    """Read everything in a store and derive every key in it again."""
    from countermark.app.health import store_check as checked
    from countermark.cli.context import settings
    from countermark.lines.surface import StoreFinding
    from countermark.lines.texts import Document, plain

    chosen = settings(store_url=store)
    findings = tuple(StoreFinding(each.code, each.where, each.what, each.remedy) for each in checked(chosen.store, chosen.database))
    document: Document = {"store": chosen.store_shown, "findings": len(findings)}
    if not findings:
        return Answer(document, (Lines((f"the store is whole: {plain(chosen.store_shown)}",)),), warnings=chosen.warnings)
    rows = tuple((each.finding, each.where, each.what) for each in findings)
    return Answer(document, (Table(("finding", "where", "what"), rows),), findings, chosen.warnings, REFUSED)
