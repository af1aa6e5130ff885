"""Tools, called as the server calls them, over a store in a folder."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

from countermark.app.sessions import take
from countermark.files.digest_cache import DigestCache
from countermark.mcp.answering import Answer, answered
from countermark.mcp.desk import Desk, Watch
from countermark.mcp.places import Places
from countermark.mcp.roster import BY_NAME, output_schema
from countermark.sessions.events import Batch
from countermark.store.opening import open_sessions
from countermark.wire.events import batch_of_json

NOW_NS: Final = 1_800_000_000_000_000_000


def desk_of(project: Path, *more: Path) -> Desk:
    """A desk over the store of a project."""
    return Desk(project / ".countermark", None, Places.of(project, more), lambda: DigestCache(None), 300, lambda: NOW_NS)


def ask(desk: Desk, tool: str, /, **given: Any) -> Answer:
    """A tool's answer, which is as its schema says."""
    answer = answered(BY_NAME[tool], desk, given, Watch())
    assert list(Draft202012Validator(output_schema(BY_NAME[tool])).iter_errors(answer.document)) == []
    return answer


def codes(answer: Answer) -> list[str]:
    """The codes of the defects, in their order."""
    found: Any = answer.document["defects"]
    return [each["code"] for each in found]


def said(answer: Answer) -> Any:
    """The document of a call that was answered."""
    assert not answer.is_error, answer.text
    return answer.document


def store_events(project: Path, events: Iterable[Mapping[str, Any]], received_ns: int = NOW_NS) -> None:
    batch = batch_of_json(json.dumps(list(events)).encode(), received_ns, 100_000)
    assert isinstance(batch, Batch) and not batch.refused, batch
    with open_sessions(f"sqlite:///{project / '.countermark'}", create=True) as store:
        take(store, batch)


def edit(number: int = 1, session: str = "session-1", **fields: Any) -> dict[str, Any]:
    """A weight edit as it is sent."""
    payload = {"kind": "weights.edit", "tensor": f"layers.{number}.w", "changed": number, **fields.pop("payload", {})}
    return {"id": f"edit-{number}", "type": "notification", "session": session, "payload": payload, **fields}
