"""The tools, each once: what a client is told of them, what they take and answer, and the function behind each.

Rules kept here:

1. A schema names what a client builds on; it is open, because the documents are those of ``contract/schema.json``, where they are closed.
2. What a tool says of itself costs whoever reads it: the whole list has at most ``LIST_BYTES_MAX`` bytes, its prose ``PROSE_BYTES_MAX``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, final, get_args

from countermark.lines.sessions import State
from countermark.lines.texts import Document
from countermark.mcp import runs, sessions, weights
from countermark.mcp.arguments import CURSOR, Argument, Given, limit
from countermark.mcp.desk import Desk, Told, Watch
from countermark.values import Refused

LIST_BYTES_MAX: Final = 16_000
PROSE_BYTES_MAX: Final = 6_000
TOOLS_MAX: Final = 12

Call: TypeAlias = Callable[[Desk, Given, Watch], Told | Refused[object]]


@final
@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. ``answers`` are the fields that its documents have beside those of all answers; ``reads_disk``: it may take long."""

    name: str
    title: str
    doc: str
    arguments: tuple[Argument, ...]
    answers: Mapping[str, Document]
    call: Call
    reads_disk: bool = False


_TEXT: Final[Document] = {"type": "string"}
_FLAG: Final[Document] = {"type": "boolean"}
_OBJECT: Final[Document] = {"type": "object"}
_MAYBE_TEXT: Final[Document] = {"type": ["string", "null"]}
#: Beyond 2^53 a whole number is a text.
_WHOLE: Final[Document] = {"type": ["integer", "string"]}
_NUMBER: Final[Document] = {"type": ["number", "null"]}
_MAYBE_WHOLE: Final[Document] = {"type": ["integer", "string", "null"]}


def _list(items: Document) -> Document:
    return {"type": "array", "items": items}


def _table(fields: Mapping[str, Document]) -> Document:
    return {"type": "object", "properties": dict(fields)}


_LISTED: Final = _list({"type": "object", "required": ["code", "message", "remedy"]})
_SESSION: Final = _table(
    {"id": _TEXT, "state": {"enum": list(get_args(State))}, "updated": _TEXT, "stats": _OBJECT, "tags": _list(_TEXT), "conflicts": _WHOLE}
)
_EVENT: Final = _table(
    {
        "id": _TEXT, "ordinal": _WHOLE, "session": _TEXT, "type": _TEXT, "time": _MAYBE_TEXT, "line": _TEXT,
        "payload": {"type": ["object", "null"]}, "payloadUri": _TEXT, "payloadBytes": _WHOLE,
    }
)  # fmt: skip
_PAGE: Final[Mapping[str, Document]] = {"first": _WHOLE, "total": _WHOLE, "next": _MAYBE_TEXT}


def output_schema(tool: Tool) -> Document:
    """An answer: its own fields, absent from one that was refused, and those that all have."""
    shared: Document = {"ok": _FLAG, "defects": _LISTED, "warnings": _LISTED, "cut": _list(_OBJECT)}
    return {"type": "object", "properties": {**tool.answers, **shared}, "required": ["ok", "defects", "warnings"]}


ROSTER: Final = (
    Tool(
        "sessions_list",
        "List sessions",
        "Recorded sessions, last changed first. where filters, e.g. weights.edits > 0 and tag = 'weights:edited'.",
        (Argument("where", "text", "filter"), limit(20), CURSOR),
        {"sessions": _list(_SESSION), "next": _MAYBE_TEXT},
        sessions.sessions_list,
    ),
    Tool(
        "session_get",
        "Show a session",
        "What a session comes to, and a page of its events in order, each as one line and as data. A long payload has a "
        "payloadUri: read that resource.",
        (Argument("session", "text", "id, or its first 8 or more characters", required=True), limit(50), CURSOR),
        {"session": _SESSION, "uri": _TEXT, "events": _list(_EVENT), "conflicting": _list(_OBJECT), **_PAGE},
        sessions.session_get,
    ),
    Tool(
        "search",
        "Search events",
        "Events that hold every word of a text, last received first.",
        (Argument("text", "text", "words", required=True), limit(20), CURSOR),
        {"events": _list(_EVENT), "next": _MAYBE_TEXT},
        sessions.search,
    ),
    Tool(
        "runs_list",
        "List runs",
        "Recorded training runs, newest first. where filters, e.g. closed = false.",
        (Argument("where", "text", "filter"), limit(20), CURSOR),
        {
            "runs": _list(_table({"run": _TEXT, "name": _MAYBE_TEXT, "createdMs": _WHOLE, "cancelled": _FLAG, "defects": _LISTED})),
            "total": _WHOLE,
            "next": _MAYBE_TEXT,
        },
        runs.runs_list,
    ),
    Tool(
        "run_status",
        "Show a run's verdict",
        "The verdict that follows from the last recorded look at a run, with blockers and what it lacks. Nothing is looked at anew; "
        "verdict is null before the first look.",
        (Argument("run", "text", "id, or its first 8 or more digits", required=True),),
        {
            "run": _TEXT, "name": _TEXT, "workKey": _TEXT, "verdict": _MAYBE_TEXT, "members": _OBJECT, "blockers": _list(_OBJECT),
            "whyNot": _list(_OBJECT), "sweep": _OBJECT, "replay": _OBJECT,
        },
        runs.run_status,
    ),
    Tool(
        "checkpoint_inspect",
        "Inspect checkpoints",
        "Components, digests and step witnesses of checkpoints on this disk, and every defect that speaks against resuming. Hashes files: "
        "may take minutes.",
        (
            Argument("paths", "texts", "checkpoints, or folders of them", required=True),
            Argument("run", "text", "id of the run that is to go on"),
            Argument("step", "number", "of a folder, only this step"),
            limit(20),
            CURSOR,
        ),
        {
            "checkpoints": _list(
                _table(
                    {
                        "path": _TEXT, "layout": _MAYBE_TEXT, "step": _MAYBE_WHOLE, "publication": _MAYBE_TEXT, "components": _OBJECT,
                        "admissible": _table({"resume": _FLAG, "weightsOnly": _FLAG}), "defects": _LISTED,
                    }
                )
            ),
            "folders": _list(_OBJECT),
            **_PAGE,
        },
        weights.checkpoint_inspect,
        reads_disk=True,
    ),
    Tool(
        "weights_diff",
        "Compare weights",
        "What changed between two weights on this disk, tensor by tensor, with both roots. Equal tensors only with equal. Reads both: may "
        "take minutes.",
        (
            Argument("a", "text", "folder or file", required=True),
            Argument("b", "text", "folder or file", required=True),
            Argument("partial", "flag", "compare what exists of an incomplete folder"),
            Argument("equal", "flag", "list equal tensors too"),
            limit(50),
            CURSOR,
        ),
        {
            "a": _TEXT, "b": _TEXT, "complete": _FLAG, "roots": _table({"a": _MAYBE_TEXT, "b": _MAYBE_TEXT}), "totals": _OBJECT,
            "tensors": _list(
                _table(
                    {
                        "name": _TEXT, "status": _TEXT, "dtype": _TEXT, "shape": _list(_WHOLE), "changed": _MAYBE_WHOLE, "l2": _NUMBER,
                        "maxAbs": _NUMBER, "relative": _NUMBER,
                    }
                )
            ),
            **_PAGE,
        },
        weights.weights_diff,
        reads_disk=True,
    ),
)  # fmt: skip
BY_NAME: Final = {tool.name: tool for tool in ROSTER}

#: How a session and an event are addressed.
SESSION_TEMPLATE: Final = "countermark://sessions/{session}{?cursor}"
EVENT_TEMPLATE: Final = "countermark://events/{ordinal}{?from}"
