"""``countermark store migrate``: a store of an earlier release, brought to this one's schema."""

from typing import Annotated

import typer

from countermark.cli.answers import REFUSED, Answer, Lines
from countermark.cli.options import JsonOption, StoreOption

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what it would do, and write nothing.")]


def store_migrate(store: StoreOption = None, dry_run: DryRunOption = False, as_json: JsonOption = False) -> Answer:
    """Bring a store of an earlier release to this one's schema, whole or not at all."""
    from countermark.app.health import store_migrate as migrated
    from countermark.cli.context import settings
    from countermark.lines.surface import StoreFinding
    from countermark.lines.texts import Document, JsonValue, plain
    from countermark.store.migrations.outcome import Migrated, NothingToDo, NotWhole, Plan, WouldMigrate

    chosen = settings(store_url=store)
    shown = plain(chosen.store_shown)

    def document(found: int, version: int, plan: Plan | None, done: bool, backup: str | None) -> Document:
        steps: list[JsonValue] = [{"version": step.version, "what": step.what} for step in (() if plan is None else plan.steps)]
        told: Document = {"store": chosen.store_shown, "found": found, "version": version, "steps": steps, "backup": backup}
        return {**told, "migrated": done, "dryRun": dry_run}

    def steps_of(plan: Plan) -> tuple[str, ...]:
        return tuple(f"  schema {step.version}: {step.what}" for step in plan.steps)

    match migrated(chosen.store, chosen.database, dry_run):
        case NothingToDo(_, version):
            said = Lines((f"nothing to do: the store has schema {version}, which this countermark reads: {shown}",))
            return Answer(document(version, version, None, False, None), (said,), warnings=chosen.warnings)
        case WouldMigrate(plan, backup):
            kept = (
                "nothing is copied first: back the database up" if backup is None else f"copies of what it is would go to {plain(backup)}"
            )
            head = f"the store has schema {plan.found} and would get schema {plan.wanted}: {shown}"
            said = Lines((head, *steps_of(plan), kept, "nothing was written; every other countermark process has to end first"))
            return Answer(document(plan.found, plan.found, plan, False, backup), (said,), warnings=chosen.warnings)
        case Migrated(plan, backup):
            copies = () if backup is None else (f"copies of what it was lie in {plain(backup)}",)
            said = Lines((f"the store had schema {plan.found} and has schema {plan.wanted} now: {shown}", *steps_of(plan), *copies))
            return Answer(document(plan.found, plan.wanted, plan, True, backup), (said,), warnings=chosen.warnings)
        case NotWhole(plan, findings):
            said = Lines((f"the store is not whole; it was left as it is, with schema {plan.found}: {shown}",))
            told = tuple(StoreFinding(each.code, each.where, each.what, each.remedy) for each in findings)
            return Answer(document(plan.found, plan.found, plan, False, None), (said,), told, chosen.warnings, REFUSED)
