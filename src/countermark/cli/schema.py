"""The schema of every ``--json`` document, generated: ``python -m countermark.cli.schema [--check]`` writes, or compares, it.

Rules kept here:

1. Codes, arms, coordinates, components, stages and members come from the program's own rosters and types; none is listed here again.
2. Every command that takes ``--json`` has a schema of its own name under ``$defs``; the root takes a document of any of them.
3. Objects are closed: a field that the schema lacks is a fault of one of the two.
4. The same code gives the same bytes; a test refuses a stale file.
"""

import json
import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from countermark.cli.groups import load
from countermark.cli.roster import ENTRIES
from countermark.cli.settings import ROSTER as SETTINGS
from countermark.evidence.cut import STAGES
from countermark.evidence.members import EnumerationReceipt, ManifestSeen, Misfiled, OutputSeen, ProcessSeen, Terminal
from countermark.lines.defects import CODES
from countermark.lines.texts import camel
from countermark.recipe import ROSTER
from countermark.recipe.manifest import ENTRIES as COORDINATES
from countermark.run.attempts import AttemptKey, Cause, Nonce
from countermark.run.checkpoint import AdmittedCheckpoint, Component
from countermark.values import NonEmpty
from countermark.verdict.kinds import Blocked, Blocker, CompletionCandidate, Note, Verdict, WhyNot

Schema: TypeAlias = dict[str, Any]

PATH: Final = Path("contract/schema.json")
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_ID: Final = "urn:countermark:schema:1"
_TEXT: Final[Schema] = {"type": "string"}
_WHOLE: Final[Schema] = {"$ref": "#/$defs/whole"}
_NONCE: Final[Schema] = {"$ref": "#/$defs/nonce"}
_WORK_KEY: Final[Schema] = {"$ref": "#/$defs/workKey"}
_SHA256: Final[Schema] = {"$ref": "#/$defs/sha256"}
_RUN: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_NOTHING: Final[Schema] = {"type": "null"}
_YES_OR_NO: Final[Schema] = {"type": "boolean"}


def schema() -> Schema:
    """The whole document."""
    commands = {entry.name.replace(" ", "-"): _answers(entry.name) for entry in ENTRIES if takes_json(entry.name)}
    parts = (commands, {"refusal": _refusal()}, _shared(), _defects())
    definitions = {name: part for each in parts for name, part in each.items()}
    assert len(definitions) == sum(map(len, parts)), "two definitions have one name"
    return {
        "$schema": _DIALECT,
        "$id": _ID,
        "title": "What countermark prints with --json",
        "description": "Each command's documents are under $defs by the command's name; a refusal may be without the fields of an answer.",
        "anyOf": [_ref(name) for name in commands],
        "$defs": definitions,
    }


def takes_json(name: str) -> bool:
    """Whether the command of this name prints a document."""
    entry = next(entry for entry in ENTRIES if entry.name == name)
    return any("--json" in parameter.opts for parameter in load(entry).params)


def _answers(name: str) -> Schema:
    return {"anyOf": [*_ANSWERS[name](), _ref("refusal")]}


# ------------------------------------------------------------------------------------------------------------- building


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _enum(words: Iterable[str]) -> Schema:
    return {"enum": list(words)}


def _list(items: Schema, **more: int) -> Schema:
    return {"type": "array", "items": items, **more}


def _maybe(inner: Schema) -> Schema:
    return {"anyOf": [inner, _NOTHING]}


def _record(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """A closed object."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


def _answer(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """A command's own fields in the envelope that all documents have; defects and ``ok`` exclude each other."""
    told: Schema = _list(_ref("defect"))
    found = _record({"ok": _YES_OR_NO, **required, "defects": told, "warnings": told}, optional)
    return {**found, "if": {"properties": {"ok": {"const": True}}}, "then": {"properties": {"defects": {"maxItems": 0}}}}


def _refusal() -> Schema:
    return _record({"ok": {"const": False}, "defects": _list(_ref("defect"), minItems=1), "warnings": _list(_ref("defect"))})


def _of_type(kind: Any) -> Schema:
    """How ``lines.defects.document_value`` spells the values of a type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        # Kinds that are spelled alike (texts, say) are one.
        arms = [_of_type(arm) for arm in args]
        return {"anyOf": [arm for at, arm in enumerate(arms) if arm not in arms[:at]]}
    if origin is Literal:
        return _enum(args)
    if origin in (tuple, NonEmpty, frozenset):
        return _list(_of_type(args[0]), **({"minItems": 1} if origin is NonEmpty else {}))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of_type(args[1])}
    return _of_class(kind)


def _of_class(kind: type[Any]) -> Schema:
    simple: dict[type, Schema] = {
        type(None): _NOTHING, bool: _YES_OR_NO, float: {"type": "number"}, int: _WHOLE, str: _TEXT, AttemptKey: _NONCE, Nonce: _NONCE,
    }  # fmt: skip
    if kind in simple:
        return simple[kind]
    if issubclass(kind, Enum):
        return _enum(str(member.value) for member in kind)
    if CODES.get(kind.__name__) is kind:
        return _ref(kind.__name__)
    if hasattr(kind, "spell"):
        return _TEXT
    if is_dataclass(kind):
        return _record({"is": {"const": kind.__name__}, **_fields(kind)})
    raise TypeError(f"a document has no form for {kind.__name__}")


def _fields(kind: type) -> dict[str, Schema]:
    hints = get_type_hints(kind)
    return {camel(field.name): _of_type(hints[field.name]) for field in fields(kind)}


# --------------------------------------------------------------------------------------------------------------- shared


def _defects() -> dict[str, Schema]:
    """One schema for each code, and ``defect`` for any of them."""
    said = {"message": _TEXT, "remedy": _TEXT}
    each = {code: _record({"code": {"const": code}, **_fields(kind), **said}) for code, kind in CODES.items()}
    return {"defect": {"required": ["code"], "anyOf": [_ref(code) for code in each]}, **each}


def _of_kinds(union: Any) -> Schema:
    """A defect of one family."""
    return {"anyOf": [_ref(kind.__name__) for kind in get_args(union) or (union,)]}


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
        "checkpoint": _record(*_checkpoint()),
        "listedRun": _record(_run_fields()),
        **{f"verdict{arm.__name__}": _members(arm) for arm in get_args(Verdict)},
    }


def _run_fields() -> dict[str, Schema]:
    return {
        "run": _RUN, "name": _maybe(_TEXT), "requester": _maybe(_TEXT), "request": _maybe(_TEXT), "defects": _list(_ref("defect")),
        "createdMs": _WHOLE, "facts": {"type": "integer"}, "cancelled": _YES_OR_NO,
    }  # fmt: skip


def _arms() -> Schema:
    return _enum(arm.__name__ for arm in get_args(Verdict))


def _concluded() -> dict[str, Schema]:
    """What a look at one run answers."""
    return {
        "run": _RUN,
        "name": _TEXT,
        "workKey": _WORK_KEY,
        "verdict": _arms(),
        "members": {"type": "object"},
        "blockers": _list(_of_kinds(Blocker)),
        "whyNot": _list(_of_kinds(WhyNot)),
        "notes": _list(_of_kinds(Note)),
        "acted": _list(_TEXT),
        "sweep": _ref("sweep"),
    }


def _conclusion(inner: Schema) -> Schema:
    """A conclusion whose members are those of its verdict, and which has blockers where it is blocked and nowhere else."""
    arms = [
        {
            "properties": {
                "verdict": {"const": arm.__name__},
                "members": _ref(f"verdict{arm.__name__}"),
                "blockers": {"minItems": 1} if arm is Blocked else {"maxItems": 0},
            }
        }
        for arm in get_args(Verdict)
    ]
    return {**inner, "anyOf": arms}


def _members(arm: type) -> Schema:
    """The populations of a verdict's arm. A blocked run's are the attempts that its blockers, which stand beside them, are about."""
    if arm is Blocked:
        return _record({"attempts": _list(_NONCE)})
    hints = get_type_hints(arm)
    return _record({camel(field.name): _member(hints[field.name]) for field in fields(arm)})


def _member(kind: Any) -> Schema:
    if kind is CompletionCandidate:
        return _record({"attempt": _NONCE, "output": _SHA256, "path": _TEXT})
    if kind is AdmittedCheckpoint:
        return _record({"attempt": _NONCE, "step": _WHOLE, "path": _TEXT, "digest": _SHA256, "layout": _TEXT})
    if get_origin(kind) is NonEmpty:
        return _list(_member(get_args(kind)[0]), minItems=1)
    return _of_type(kind)


def _sweep() -> Schema:
    stage = _enum(STAGES)
    moment = _maybe(_WHOLE)
    return _record(
        {
            "id": {"type": "string", "minLength": 1},
            "finished": _YES_OR_NO,
            "order": _list(stage),
            "stages": _list(_record({"stage": stage, "sources": _list(_ref("source"))}), minItems=len(STAGES), maxItems=len(STAGES)),
            "freshness": _record({"beganMs": moment, "endedMs": moment}),
        }
    )


def _source() -> Schema:
    """A source by its arm: observed with members, not looked at, or refused."""
    told = {"attempt": _NONCE, "line": _TEXT}
    kinds = (Terminal, ProcessSeen, OutputSeen, ManifestSeen)
    seen = [_record({"is": {"const": kind.__name__}, **_fields(kind), **told}) for kind in kinds]
    seen.append(_record({"is": {"const": "CheckpointSeen"}, **told, "step": _WHOLE, "path": _TEXT}))
    receipt = _of_class(EnumerationReceipt)
    observed = {"members": _list({"anyOf": seen}), "misfiled": _list(_of_class(Misfiled)), "receipt": receipt, "why": _NOTHING}
    return {
        "anyOf": [
            _record({"source": _TEXT, "arm": {"const": "observed"}, **observed}),
            _record({"source": _TEXT, "arm": {"const": "notAttempted"}, "members": _NOTHING, "receipt": _NOTHING, "why": _TEXT}),
            _record({"source": _TEXT, "arm": {"const": "refused"}, "members": _NOTHING, "receipt": receipt, "why": _TEXT}),
        ]
    }


def _checkpoint() -> tuple[dict[str, Schema], dict[str, Schema]]:
    """The fields of one checkpoint: always there, and there where anything is at its path."""
    names = [component.value for component in Component]
    file = _record({"name": _TEXT}, {"sha256": _SHA256, "bytes": _WHOLE})
    found = {"state": _enum(("read", "missing", "unread")), "digest": _maybe(_SHA256), "step": _maybe(_WHOLE), "files": _list(file)}
    component = _record(found, {"told": {"type": "integer"}, "whys": _list(_TEXT)})
    admissible = {"resume": _YES_OR_NO, "weightsOnly": _YES_OR_NO, "vouched": _YES_OR_NO, "heldAgainst": _enum(("itself", "a manifest"))}
    always = {
        "path": _TEXT,
        "layout": _maybe(_TEXT),
        "step": _maybe(_WHOLE),
        "publication": _maybe(_enum(("atomic", "incomplete", "unobserved"))),
        "components": _record({}, dict.fromkeys(names, component)),
        "witnesses": _list(_record({"component": _enum(names), "source": _TEXT, "step": _WHOLE})),
        "notes": _list(_TEXT),
        "admissible": _record(admissible),
    }
    there = {
        "publicationWhy": _TEXT,
        "digest": _maybe(_SHA256),
        "attempt": _maybe(_TEXT),
        "workKey": _maybe(_TEXT),
        "microBatches": _maybe(_WHOLE),
    }
    return always, there


# ------------------------------------------------------------------------------------------------------------- commands


def _doctor() -> list[Schema]:
    setting = _record({"setting": _enum(each.name for each in SETTINGS), "value": _TEXT, "source": _TEXT})
    check = _record({"check": _TEXT, "ok": _YES_OR_NO, "found": _TEXT, "remedy": _TEXT})
    return [_answer({"settings": _list(setting), "checks": _list(check)})]


def _resolve() -> list[Schema]:
    leaves = [f"{name}.{leaf}" for name, entry in COORDINATES.items() for leaf in (entry.kind.key, *entry.kind.leaves) if leaf]
    receipt = {"axis": _enum((*ROSTER, *leaves)), "source": _TEXT, "line": _maybe({"type": "integer"}), "field": _TEXT, "tool": _TEXT}
    manifest = _record(dict.fromkeys(ROSTER, _TEXT))
    return [
        _answer(
            {
                "manifest": manifest,
                "workKey": _WORK_KEY,
                "principal": _TEXT,
                "receipts": _list(_record(receipt)),
                "pinned": _list(_TEXT),
            }
        )
    ]


def _key() -> list[Schema]:
    material = _list(_record({"name": _TEXT, "text": _TEXT}))
    return [_answer({"workKey": _WORK_KEY}), _answer({"workKey": _WORK_KEY, "principal": _TEXT, "material": material})]


def _manifest_diff() -> list[Schema]:
    return [_answer({"differing": _list(_record({"coordinate": _enum(ROSTER), "leaf": _TEXT, "a": _TEXT, "b": _TEXT}))})]


def _one_run() -> list[Schema]:
    return [_conclusion(_answer(_concluded(), {"waited": {"const": False}}))]


def _status() -> list[Schema]:
    waiting = _record({**_run_fields(), "verdict": _maybe(_arms())})
    return [_conclusion(_answer(_concluded())), _answer({"runs": _list(waiting)})]


def _reconcile() -> list[Schema]:
    """One run, or each open one; a run that could not even be looked at is there with its id. Or what a stored sweep gives now."""
    each = [_conclusion(_record({"ok": _YES_OR_NO, **_concluded()})), _record({"ok": {"const": False}, "run": _RUN})]
    compared = _record({"equal": _maybe(_YES_OR_NO), "replayed": _TEXT, "stored": _maybe(_TEXT)})
    replayed = {name: inner for name, inner in _concluded().items() if name != "acted"}
    stored = _conclusion(_answer({**replayed, "replay": compared}))
    return [_conclusion(_answer(_concluded())), _answer({"runs": _list({"anyOf": each})}), stored]


def _runs() -> list[Schema]:
    return [_answer({"runs": _list(_ref("listedRun"))})]


def _cause() -> Schema:
    """A cause's arm and what it names."""
    return {"type": "array", "prefixItems": [_enum(arm.__name__ for arm in get_args(Cause))], "items": _TEXT, "minItems": 1}


def _attempts() -> list[Schema]:
    seen = dict.fromkeys(("process", "ended", "checkpoints", "output"), _maybe(_TEXT))
    attempt = {"attempt": _NONCE, "cause": _cause(), "dispatch": _TEXT, **seen, "predecessor": _maybe(_NONCE)}
    folders: Schema = {"type": "object", "propertyNames": _NONCE, "additionalProperties": _TEXT}
    return [_answer({"run": _RUN, "attempts": _list(_record(attempt)), "folders": folders})]


def _claims() -> list[Schema]:
    fact = {"version": {"type": "integer"}, "what": _TEXT, "recordedMs": _WHOLE}
    claim = _record({**fact, "kind": {"const": "claim"}, "attempt": _NONCE, "slot": _TEXT, "cause": _cause()})
    other = _record({**fact, "kind": _enum(("intent", "outcome", "abandonment", "adjudication")), "attempt": _NONCE})
    cancelled = _record({**fact, "kind": {"const": "cancellation"}, "attempt": _NOTHING})
    return [_answer({"run": _RUN, "version": {"type": "integer"}, "claims": _list({"anyOf": [claim, other, cancelled]})})]


def _evidence() -> list[Schema]:
    return [_answer({"run": _RUN, "sweep": _maybe(_ref("sweep"))})]


def _checkpoint_inspect() -> list[Schema]:
    """Of a single checkpoint the fields stand at the top as well."""
    always, there = _checkpoint()
    one = _record({"ok": _YES_OR_NO, **always, "defects": _list(_ref("defect"))}, there)
    checkpoints = {"checkpoints": _list(one, minItems=1)}
    return [_answer(checkpoints), _answer({**always, **checkpoints}, there)]


def _checkpoint_publish() -> list[Schema]:
    return [_answer({"path": _TEXT, "step": _WHOLE, "digest": _SHA256, "bytes": _WHOLE})]


def _weights_root() -> list[Schema]:
    """Of a single measured path the fields stand at the top as well."""
    root: Schema = {"type": "string", "pattern": "^wr1:[0-9a-f]{64}$"}
    files: Schema = {"type": "string", "pattern": "^fd1:[0-9a-f]{64}$"}
    measured = {"path": _TEXT, "root": root, "files": files, "tensors": _WHOLE, "bytes": _WHOLE}
    well = _record({"ok": {"const": True}, **measured, "defects": _list(_ref("defect"), maxItems=0)})
    ill = _record({"ok": {"const": False}, "path": _TEXT, "defects": _list(_ref("defect"), minItems=1)})
    weights = {"weights": _list({"anyOf": [well, ill]}, minItems=1)}
    return [_answer(weights), _answer({**measured, **weights}), _answer({"path": _TEXT, **weights})]


def _store_init() -> list[Schema]:
    return [_answer({"store": _TEXT, "created": _YES_OR_NO})]


def _store_check() -> list[Schema]:
    return [_answer({"store": _TEXT, "findings": {"type": "integer"}})]


def _store_migrate() -> list[Schema]:
    """``backup``: the folder with copies of what the store was, which only a store in a folder has."""
    steps = _list(_record({"version": _WHOLE, "what": _TEXT}))
    store = {"store": _TEXT, "found": _WHOLE, "version": _WHOLE, "steps": steps, "backup": _maybe(_TEXT)}
    return [_answer({**store, "migrated": _YES_OR_NO, "dry_run": _YES_OR_NO})]


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
    "weights root": _weights_root,
    "store init": _store_init,
    "store migrate": _store_migrate,
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
