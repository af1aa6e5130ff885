"""``countermark doctor``: what is set and from where, what is missing, and what mends it."""

from countermark.cli.answers import Answer, Table
from countermark.cli.options import JsonOption, StoreOption


def doctor(store: StoreOption = None, as_json: JsonOption = False) -> Answer:
    """Say what is set and from where, what is missing, and the command that mends it."""
    from countermark.app.health import doctor as examined
    from countermark.cli.context import settings
    from countermark.lines.texts import Document

    chosen = settings(store_url=store)
    findings = examined(chosen.store, chosen.database, chosen.forward_endpoint)
    document: Document = {
        "settings": [{"setting": each.setting.name, "value": each.value, "source": each.source} for each in chosen.resolved],
        "checks": [{"check": each.name, "ok": each.ok, "found": each.found, "remedy": each.remedy} for each in findings],
    }
    checks = tuple((each.name, "well" if each.ok else "not well", each.found, each.remedy or "-") for each in findings)
    blocks = (
        Table(("setting", "value", "from"), tuple((each.setting.name, each.value, each.source) for each in chosen.resolved)),
        Table(("check", "state", "found", "what to do"), checks),
    )
    return Answer(document, blocks, warnings=chosen.warnings)
