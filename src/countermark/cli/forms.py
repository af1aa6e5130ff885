"""The forms that schemas of documents are built of: texts, lists, closed objects, and the values of the program's own types.

Rules kept here: an object is closed, so that a field that a schema lacks is a fault of one of the two; every answer has the same envelope.
"""

import types
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from countermark.lines.defects import CODES
from countermark.lines.texts import camel
from countermark.run.attempts import AttemptKey, Nonce
from countermark.values import NonEmpty

Schema: TypeAlias = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
WHOLE: Final[Schema] = {"$ref": "#/$defs/whole"}
NONCE: Final[Schema] = {"$ref": "#/$defs/nonce"}
WORK_KEY: Final[Schema] = {"$ref": "#/$defs/workKey"}
SHA256: Final[Schema] = {"$ref": "#/$defs/sha256"}
RUN: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
NOTHING: Final[Schema] = {"type": "null"}
YES_OR_NO: Final[Schema] = {"type": "boolean"}


def ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def one_of(words: Iterable[str]) -> Schema:
    return {"enum": list(words)}


def listed(items: Schema, **more: int) -> Schema:
    return {"type": "array", "items": items, **more}


def maybe(inner: Schema) -> Schema:
    return {"anyOf": [inner, NOTHING]}


def record(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """A closed object."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


def answer(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """A command's own fields in the envelope that all documents have; defects and ``ok`` exclude each other."""
    told: Schema = listed(ref("defect"))
    found = record({"ok": YES_OR_NO, **required, "defects": told, "warnings": told}, optional)
    return {**found, "if": {"properties": {"ok": {"const": True}}}, "then": {"properties": {"defects": {"maxItems": 0}}}}


def refusal() -> Schema:
    return record({"ok": {"const": False}, "defects": listed(ref("defect"), minItems=1), "warnings": listed(ref("defect"))})


def of_type(kind: Any) -> Schema:
    """How ``lines.defects.document_value`` spells the values of a type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        # Kinds that are spelled alike (texts, say) are one.
        arms = [of_type(arm) for arm in args]
        return {"anyOf": [arm for at, arm in enumerate(arms) if arm not in arms[:at]]}
    if origin is Literal:
        return one_of(args)
    if origin in (tuple, NonEmpty, frozenset):
        return listed(of_type(args[0]), **({"minItems": 1} if origin is NonEmpty else {}))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": of_type(args[1])}
    return of_class(kind)


def of_class(kind: type[Any]) -> Schema:
    simple: dict[type, Schema] = {
        type(None): NOTHING, bool: YES_OR_NO, float: {"type": "number"}, int: WHOLE, str: TEXT, AttemptKey: NONCE, Nonce: NONCE,
    }  # fmt: skip
    if kind in simple:
        return simple[kind]
    if issubclass(kind, Enum):
        return one_of(str(member.value) for member in kind)
    if CODES.get(kind.__name__) is kind:
        return ref(kind.__name__)
    if hasattr(kind, "spell"):
        return TEXT
    if is_dataclass(kind):
        return record({"is": {"const": kind.__name__}, **fields_of(kind)})
    raise TypeError(f"a document has no form for {kind.__name__}")


def fields_of(kind: type) -> dict[str, Schema]:
    hints = get_type_hints(kind)
    return {camel(field.name): of_type(hints[field.name]) for field in fields(kind)}
