"""The schema of every ``--json`` document, generated: ``python -m countermark.cli.schema [--check]`` writes, or compares, it.

Rules kept here:

1. Codes, arms, coordinates, components, stages and members come from the program's own rosters and types; none is listed here again.
2. Every command that takes ``--json`` has a schema of its own name under ``$defs``; the root takes a document of any of them.
3. Objects are closed: a field that the schema lacks is a fault of one of the two.
4. The same code gives the same bytes; a test refuses a stale file.
"""

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints

from countermark.cli.forms import (
    NONCE,
    NOTHING,
    RUN,
    SHA256,
    TEXT,
    WHOLE,
    WORK_KEY,
    YES_OR_NO,
    Schema,
    answer,
    fields_of,
    listed,
    maybe,
    of_class,
    of_type,
    one_of,
    record,
    ref,
    refusal,
)
from countermark.cli.groups import load
from countermark.cli.roster import ENTRIES
from countermark.cli.schema_sessions import SESSIONS, event_definitions
from countermark.cli.schema_weights import WEIGHTS
from countermark.cli.settings import ROSTER as SETTINGS
from countermark.evidence.cut import STAGES
from countermark.evidence.members import EnumerationReceipt, ManifestSeen, Misfiled, OutputSeen, ProcessSeen, Terminal
from countermark.lines.defects import CODES
from countermark.lines.texts import camel
from countermark.recipe import ROSTER
from countermark.recipe.manifest import ENTRIES as COORDINATES
from countermark.run.attempts import Cause
from countermark.run.checkpoint import AdmittedCheckpoint, Component
from countermark.run.retention import Fate
from countermark.values import NonEmpty
from countermark.verdict.kinds import Blocked, Blocker, CompletionCandidate, Note, Verdict, WhyNot

PATH: Final = Path("contract/schema.json")
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_ID: Final = "urn:countermark:schema:1"


def schema() -> Schema:
    """The whole document."""
    commands = {entry.name.replace(" ", "-"): _answers(entry.name) for entry in ENTRIES if takes_json(entry.name)}
    parts = (commands, {"refusal": refusal()}, _shared(), event_definitions(), _defects())
    definitions = {name: part for each in parts for name, part in each.items()}
    assert len(definitions) == sum(map(len, parts)), "two definitions have one name"
    return {
        "$schema": _DIALECT,
        "$id": _ID,
        "title": "What countermark prints with --json, and the events that it takes",
        "description": "Each command's documents are under $defs by the command's name; a refusal may be without the fields of an answer. "
        "What is sent is $defs/event.",
        "anyOf": [ref(name) for name in commands],
        "$defs": definitions,
    }


def takes_json(name: str) -> bool:
    """Whether the command of this name prints a document."""
    entry = next(entry for entry in ENTRIES if entry.name == name)
    return any("--json" in parameter.opts for parameter in load(entry).params)


def _answers(name: str) -> Schema:
    return {"anyOf": [*_ANSWERS[name](), ref("refusal")]}


# --------------------------------------------------------------------------------------------------------------- shared


def _defects() -> dict[str, Schema]:
    """One schema for each code, and ``defect`` for any of them."""
    said = {"message": TEXT, "remedy": TEXT}
    each = {code: record({"code": {"const": code}, **fields_of(kind), **said}) for code, kind in CODES.items()}
    return {"defect": {"required": ["code"], "anyOf": [ref(code) for code in each]}, **each}


def _of_kinds(union: Any) -> Schema:
    """A defect of one family."""
    return {"anyOf": [ref(kind.__name__) for kind in get_args(union) or (union,)]}


def _shared() -> dict[str, Schema]:
    return {
        "whole": {
            "description": "A whole number; beyond 2^53 a text, because JavaScript would read another number.",
            "anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]+$"}],
        },
        "nonce": {"description": "An attempt's id.", "type": "string", "pattern": "^[0-9a-f]{32}$"},
        "workKey": {"type": "string", "pattern": "^wk1:[0-9a-f]{64}$"},
        "sha256": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
        "sweep": _sweep(),
        "source": _source(),
        "checkpoint": record(*_checkpoint()),
        "listedRun": record(_run_fields()),
        **{f"verdict{arm.__name__}": _members(arm) for arm in get_args(Verdict)},
    }


def _run_fields() -> dict[str, Schema]:
    return {
        "run": RUN, "name": maybe(TEXT), "requester": maybe(TEXT), "request": maybe(TEXT), "defects": listed(ref("defect")),
        "createdMs": WHOLE, "facts": {"type": "integer"}, "cancelled": YES_OR_NO,
    }  # fmt: skip


def _arms() -> Schema:
    return one_of(arm.__name__ for arm in get_args(Verdict))


def _concluded() -> dict[str, Schema]:
    """What a look at one run answers."""
    return {
        "run": RUN,
        "name": TEXT,
        "workKey": WORK_KEY,
        "verdict": _arms(),
        "members": {"type": "object"},
        "blockers": listed(_of_kinds(Blocker)),
        "whyNot": listed(_of_kinds(WhyNot)),
        "notes": listed(_of_kinds(Note)),
        "acted": listed(TEXT),
        "sweep": ref("sweep"),
    }


def _conclusion(inner: Schema) -> Schema:
    """A conclusion whose members are those of its verdict, and which has blockers where it is blocked and nowhere else."""
    arms = [
        {
            "properties": {
                "verdict": {"const": arm.__name__},
                "members": ref(f"verdict{arm.__name__}"),
                "blockers": {"minItems": 1} if arm is Blocked else {"maxItems": 0},
            }
        }
        for arm in get_args(Verdict)
    ]
    return {**inner, "anyOf": arms}


def _members(arm: type) -> Schema:
    """The populations of a verdict's arm. A blocked run's are the attempts that its blockers, which stand beside them, are about."""
    if arm is Blocked:
        return record({"attempts": listed(NONCE)})
    hints = get_type_hints(arm)
    return record({camel(field.name): _member(hints[field.name]) for field in fields(arm)})


def _member(kind: Any) -> Schema:
    if kind is CompletionCandidate:
        return record({"attempt": NONCE, "output": SHA256, "path": TEXT})
    if kind is AdmittedCheckpoint:
        return record({"attempt": NONCE, "step": WHOLE, "path": TEXT, "digest": SHA256, "layout": TEXT})
    if get_origin(kind) is NonEmpty:
        return listed(_member(get_args(kind)[0]), minItems=1)
    return of_type(kind)


def _sweep() -> Schema:
    stage = one_of(STAGES)
    moment = maybe(WHOLE)
    return record(
        {
            "id": {"type": "string", "minLength": 1},
            "finished": YES_OR_NO,
            "order": listed(stage),
            "stages": listed(record({"stage": stage, "sources": listed(ref("source"))}), minItems=len(STAGES), maxItems=len(STAGES)),
            "freshness": record({"beganMs": moment, "endedMs": moment}),
        }
    )


def _source() -> Schema:
    """A source by its arm: observed with members, not looked at, or refused."""
    told = {"attempt": NONCE, "line": TEXT}
    kinds = (Terminal, ProcessSeen, OutputSeen, ManifestSeen)
    seen = [record({"is": {"const": kind.__name__}, **fields_of(kind), **told}) for kind in kinds]
    seen.append(record({"is": {"const": "CheckpointSeen"}, **told, "step": WHOLE, "path": TEXT}))
    receipt = of_class(EnumerationReceipt)
    observed = {"members": listed({"anyOf": seen}), "misfiled": listed(of_class(Misfiled)), "receipt": receipt, "why": NOTHING}
    return {
        "anyOf": [
            record({"source": TEXT, "arm": {"const": "observed"}, **observed}),
            record({"source": TEXT, "arm": {"const": "notAttempted"}, "members": NOTHING, "receipt": NOTHING, "why": TEXT}),
            record({"source": TEXT, "arm": {"const": "refused"}, "members": NOTHING, "receipt": receipt, "why": TEXT}),
        ]
    }


def _checkpoint() -> tuple[dict[str, Schema], dict[str, Schema]]:
    """The fields of one checkpoint: always there, and there where anything is at its path."""
    names = [component.value for component in Component]
    file = record({"name": TEXT}, {"sha256": SHA256, "bytes": WHOLE})
    found = {"state": one_of(("read", "missing", "unread")), "digest": maybe(SHA256), "step": maybe(WHOLE), "files": listed(file)}
    component = record(found, {"told": {"type": "integer"}, "whys": listed(TEXT)})
    admissible = {"resume": YES_OR_NO, "weightsOnly": YES_OR_NO, "vouched": YES_OR_NO, "heldAgainst": one_of(("itself", "a manifest"))}
    always = {
        "path": TEXT,
        "layout": maybe(TEXT),
        "step": maybe(WHOLE),
        "publication": maybe(one_of(("atomic", "incomplete", "unobserved"))),
        "components": record({}, dict.fromkeys(names, component)),
        "witnesses": listed(record({"component": one_of(names), "source": TEXT, "step": WHOLE})),
        "notes": listed(TEXT),
        "admissible": record(admissible),
    }
    there = {
        "publicationWhy": TEXT,
        "digest": maybe(SHA256),
        "attempt": maybe(TEXT),
        "workKey": maybe(TEXT),
        "microBatches": maybe(WHOLE),
    }
    return always, there


# ------------------------------------------------------------------------------------------------------------- commands


def _doctor() -> list[Schema]:
    setting = record({"setting": one_of(each.name for each in SETTINGS), "value": TEXT, "source": TEXT})
    check = record({"check": TEXT, "ok": YES_OR_NO, "found": TEXT, "remedy": TEXT})
    return [answer({"settings": listed(setting), "checks": listed(check)})]


def _resolve() -> list[Schema]:
    leaves = [f"{name}.{leaf}" for name, entry in COORDINATES.items() for leaf in (entry.kind.key, *entry.kind.leaves) if leaf]
    receipt = {"axis": one_of((*ROSTER, *leaves)), "source": TEXT, "line": maybe({"type": "integer"}), "field": TEXT, "tool": TEXT}
    manifest = record(dict.fromkeys(ROSTER, TEXT))
    return [
        answer(
            {
                "manifest": manifest,
                "workKey": WORK_KEY,
                "principal": TEXT,
                "receipts": listed(record(receipt)),
                "pinned": listed(TEXT),
            }
        )
    ]


def _key() -> list[Schema]:
    material = listed(record({"name": TEXT, "text": TEXT}))
    return [answer({"workKey": WORK_KEY}), answer({"workKey": WORK_KEY, "principal": TEXT, "material": material})]


def _manifest_diff() -> list[Schema]:
    return [answer({"differing": listed(record({"coordinate": one_of(ROSTER), "leaf": TEXT, "a": TEXT, "b": TEXT}))})]


def _one_run() -> list[Schema]:
    return [_conclusion(answer(_concluded(), {"waited": {"const": False}}))]


def _status() -> list[Schema]:
    waiting = record({**_run_fields(), "verdict": maybe(_arms())})
    return [_conclusion(answer(_concluded())), answer({"runs": listed(waiting)})]


def _reconcile() -> list[Schema]:
    """One run, or each open one; a run that could not even be looked at is there with its id. Or what a stored sweep gives now."""
    each = [_conclusion(record({"ok": YES_OR_NO, **_concluded()})), record({"ok": {"const": False}, "run": RUN})]
    compared = record({"equal": maybe(YES_OR_NO), "replayed": TEXT, "stored": maybe(TEXT)})
    replayed = {name: inner for name, inner in _concluded().items() if name != "acted"}
    stored = _conclusion(answer({**replayed, "replay": compared}))
    return [_conclusion(answer(_concluded())), answer({"runs": listed({"anyOf": each})}), stored]


def _runs() -> list[Schema]:
    return [answer({"runs": listed(ref("listedRun"))})]


def _cause() -> Schema:
    """A cause's arm and what it names."""
    return {"type": "array", "prefixItems": [one_of(arm.__name__ for arm in get_args(Cause))], "items": TEXT, "minItems": 1}


def _attempts() -> list[Schema]:
    seen = dict.fromkeys(("process", "ended", "checkpoints", "output"), maybe(TEXT))
    attempt = {"attempt": NONCE, "cause": _cause(), "dispatch": TEXT, **seen, "predecessor": maybe(NONCE)}
    folders: Schema = {"type": "object", "propertyNames": NONCE, "additionalProperties": TEXT}
    return [answer({"run": RUN, "attempts": listed(record(attempt)), "folders": folders})]


def _claims() -> list[Schema]:
    fact = {"version": {"type": "integer"}, "what": TEXT, "recordedMs": WHOLE}
    claim = record({**fact, "kind": {"const": "claim"}, "attempt": NONCE, "slot": TEXT, "cause": _cause()})
    other = record({**fact, "kind": one_of(("intent", "outcome", "abandonment", "adjudication")), "attempt": NONCE})
    cancelled = record({**fact, "kind": {"const": "cancellation"}, "attempt": NOTHING})
    return [answer({"run": RUN, "version": {"type": "integer"}, "claims": listed({"anyOf": [claim, other, cancelled]})})]


def _evidence() -> list[Schema]:
    return [answer({"run": RUN, "sweep": maybe(ref("sweep"))})]


def _checkpoint_inspect() -> list[Schema]:
    """Of a single checkpoint the fields stand at the top as well."""
    always, there = _checkpoint()
    one = record({"ok": YES_OR_NO, **always, "defects": listed(ref("defect"))}, there)
    folder = record({"path": TEXT, "others": listed(TEXT)})
    checkpoints = {"checkpoints": listed(one, minItems=1), "folders": listed(folder), "hashedBytes": WHOLE}
    return [answer(checkpoints), answer({**always, **checkpoints}, there)]


def _checkpoint_publish() -> list[Schema]:
    return [answer({"path": TEXT, "step": WHOLE, "digest": SHA256, "bytes": WHOLE})]


def _checkpoint_prune() -> list[Schema]:
    """``bytes``: those of what goes. ``why`` is the kind of what becomes of a checkpoint."""
    fate = {"fate": one_of(("stays", "would go", "went")), "why": one_of(kind.__name__ for kind in get_args(Fate)), "message": TEXT}
    place = {"name": TEXT, "path": TEXT, "step": WHOLE, "bytes": WHOLE, "admitted": YES_OR_NO}
    one = record({**place, **fate, "defects": listed(ref("defect"))})
    left = record({"name": TEXT, "state": one_of(("dead", "live", "unknown"))})
    told = {"path": TEXT, "keep": WHOLE, "dryRun": YES_OR_NO, "bytes": WHOLE, "others": listed(TEXT)}
    return [answer({**told, "checkpoints": listed(one), "leftovers": listed(left)})]


def _store_init() -> list[Schema]:
    return [answer({"store": TEXT, "created": YES_OR_NO})]


def _store_check() -> list[Schema]:
    return [answer({"store": TEXT, "findings": {"type": "integer"}})]


def _store_prune() -> list[Schema]:
    """``outdated`` names the first fifty; ``owed`` are the sinks for which one of them stays."""
    one = record({"session": TEXT, "events": WHOLE, "last": TEXT, "owed": listed(TEXT)})
    owed = record({"sink": TEXT, "sessions": WHOLE})
    told = {"store": TEXT, "keepDays": WHOLE, "before": TEXT, "dryRun": YES_OR_NO, "sessions": WHOLE, "events": WHOLE}
    return [answer({**told, "unsent": listed(owed), "outdated": listed(one)})]


def _store_migrate() -> list[Schema]:
    """``found`` and ``version``: the ledger's schema, null where there is none yet. ``backup``: the folder with copies of what it was,
    which only a store in a folder has. ``refolded``: how many sessions were folded again, null where only newer tables could tell."""
    steps = listed(record({"version": WHOLE, "what": TEXT}))
    store = {"store": TEXT, "found": maybe(WHOLE), "version": maybe(WHOLE), "steps": steps, "backup": maybe(TEXT)}
    sessions = maybe(record({"found": WHOLE, "version": WHOLE, "refolded": maybe(WHOLE)}))
    return [answer({**store, "sessions": sessions, "migrated": YES_OR_NO, "dryRun": YES_OR_NO})]


#: A command without an entry here cannot be published with ``--json``.
_ANSWERS: Final = {
    "doctor": _doctor,
    "resolve": _resolve,
    "key": _key,
    "manifest diff": _manifest_diff,
    "run": _one_run,
    "resume": _one_run,
    "retry": _one_run,
    "reexecute": _one_run,
    "abandon": _one_run,
    "adjudicate": _one_run,
    "cancel": _one_run,
    "status": _status,
    "runs": _runs,
    "reconcile": _reconcile,
    "attempts": _attempts,
    "claims": _claims,
    "evidence": _evidence,
    "checkpoint inspect": _checkpoint_inspect,
    "checkpoint publish": _checkpoint_publish,
    "checkpoint prune": _checkpoint_prune,
    **WEIGHTS,
    **SESSIONS,
    "store init": _store_init,
    "store migrate": _store_migrate,
    "store prune": _store_prune,
    "store check": _store_check,
}


def text() -> str:
    """The file's text."""
    return json.dumps(schema(), ensure_ascii=False, indent=1) + "\n"


def main(argv: list[str]) -> int:
    """Write the schema into the working folder; with ``--check``, only say whether it is stale (1) or not (0)."""
    wanted = text()
    stale = not PATH.is_file() or PATH.read_text(encoding="utf-8") != wanted
    if stale:
        sys.stdout.write(f"{'stale' if '--check' in argv else 'written'}: {PATH}\n")
        if "--check" not in argv:
            PATH.parent.mkdir(parents=True, exist_ok=True)
            PATH.write_text(wanted, encoding="utf-8")
    return int(stale and "--check" in argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
