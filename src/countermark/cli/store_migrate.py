"""``countermark store migrate``: a store of an earlier release, brought to this one's schema."""

from typing import TYPE_CHECKING, Annotated

import typer

from countermark.cli.answers import REFUSED, Answer, Lines
from countermark.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from countermark.lines.texts import Document, JsonValue
    from countermark.store.migrations.outcome import Migration, Plan, SessionsMigrated

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what it would do, and write nothing.")]


def store_migrate(store: StoreOption = None, dry_run: DryRunOption = False, as_json: JsonOption = False) -> Answer:
    """Bring a store of an earlier release to this one's schema, whole or not at all."""
    from countermark.app.health import store_migrate as migrated
    from countermark.cli.context import settings
    from countermark.lines.surface import StoreFinding
    from countermark.store.migrations.outcome import Migrated, NotWhole

    chosen = settings(store_url=store)
    done = migrated(chosen.store, chosen.database, dry_run)
    brought = isinstance(done.ledger, Migrated) or (not dry_run and _is_brought(done.sessions))
    document: Document = {"store": chosen.store_shown, **_ledger_document(done.ledger), "sessions": _sessions_document(done.sessions)}
    document |= {"migrated": brought, "dryRun": dry_run}
    said = (*_ledger_lines(done.ledger, chosen.store_shown), *_sessions_lines(done.sessions, dry_run))
    if not isinstance(done.ledger, NotWhole):
        return Answer(document, (Lines(said),), warnings=chosen.warnings)
    told = tuple(StoreFinding(each.code, each.where, each.what, each.remedy) for each in done.ledger.findings)
    return Answer(document, (Lines(said),), told, chosen.warnings, REFUSED)


def _ledger_document(ledger: "Migration | None") -> "Document":
    from countermark.store.migrations.outcome import Migrated, NothingToDo, NotWhole, WouldMigrate

    match ledger:
        case None:
            return {"found": None, "version": None, "steps": [], "backup": None}
        case NothingToDo(_, version):
            return {"found": version, "version": version, "steps": [], "backup": None}
        case WouldMigrate(plan, backup):
            return {"found": plan.found, "version": plan.found, "steps": _steps(plan), "backup": backup}
        case Migrated(plan, backup):
            return {"found": plan.found, "version": plan.wanted, "steps": _steps(plan), "backup": backup}
        case NotWhole(plan):
            return {"found": plan.found, "version": plan.found, "steps": _steps(plan), "backup": None}


def _steps(plan: "Plan") -> "list[JsonValue]":
    return [{"version": step.version, "what": step.what} for step in plan.steps]


def _ledger_lines(ledger: "Migration | None", store: str) -> tuple[str, ...]:
    from countermark.lines.texts import plain
    from countermark.store.migrations.outcome import Migrated, NothingToDo, NotWhole, WouldMigrate

    shown = plain(store)

    def steps_of(plan: "Plan") -> tuple[str, ...]:
        return tuple(f"  schema {step.version}: {step.what}" for step in plan.steps)

    match ledger:
        case None:
            return (f"there are sessions here, and no ledger yet: {shown}",)
        case NothingToDo(_, version):
            return (f"nothing to do: the store has schema {version}, which this countermark reads: {shown}",)
        case WouldMigrate(plan, backup):
            head = f"the store has schema {plan.found} and would get schema {plan.wanted}: {shown}"
            copies = f"copies of what it is would go to {plain(backup)}" if backup is not None else None
            kept = copies or "nothing is copied first: back the database up"
            return (head, *steps_of(plan), kept, "nothing was written; every other countermark process has to end first")
        case Migrated(plan, backup):
            copied = () if backup is None else (f"copies of what it was lie in {plain(backup)}",)
            return (f"the store had schema {plan.found} and has schema {plan.wanted} now: {shown}", *steps_of(plan), *copied)
        case NotWhole(plan):
            return (f"the store is not whole; it was left as it is, with schema {plan.found}: {shown}",)


def _is_brought(sessions: "SessionsMigrated | None") -> bool:
    return sessions is not None and (sessions.found != sessions.version or bool(sessions.refolded))


def _sessions_document(sessions: "SessionsMigrated | None") -> "JsonValue":
    if sessions is None:
        return None
    return {"found": sessions.found, "version": sessions.version, "refolded": sessions.refolded}


def _sessions_lines(sessions: "SessionsMigrated | None", dry_run: bool) -> tuple[str, ...]:
    from countermark.lines.texts import counted

    if sessions is None:
        return ()
    lines = [f"sessions have schema {sessions.version}, which this countermark reads"]
    if sessions.found != sessions.version:
        brought = f"would get schema {sessions.version}" if dry_run else f"have schema {sessions.version} now"
        lines = [f"sessions {'have' if dry_run else 'had'} schema {sessions.found} and {brought}"]
    if sessions.refolded:
        lines.append(f"{counted(sessions.refolded, 'session')} {'to be folded' if dry_run else 'folded'} again")
    return tuple(lines)
