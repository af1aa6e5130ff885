"""No answer is longer than is said, whatever a store or a disk holds; what is left out is named, and can be read."""

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.shared.exceptions import MCPError

from countermark.mcp import bounds, sessions
from countermark.mcp.bounds import DOCUMENT_BYTES_MAX, PAYLOAD_BYTES_MAX, PIECE_LENGTH_MAX, TEXT_BYTES_MAX, bounded, fitting
from countermark.mcp.desk import Desk, Watch
from countermark.mcp.serving import read
from tests.cli.test_commands import write_safetensors
from tests.faults import planted, proven_by
from tests.mcp.asking import Answer, ask, desk_of, edit, said, store_events

#: Texts that become longer when they are written: letters of three bytes, signs that JSON escapes, and what a terminal would obey.
HOSTILE: Final = ('… "\\\x1b[31m\x9b\u202e' * 4_000)[:30_000]


def sizes(answer: Answer) -> tuple[int, int]:
    text = json.dumps(answer.document, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode()), len(answer.text.encode())


def every(desk: Desk, tool: str, rows: str, **given: Any) -> list[Any]:
    """The rows of all pages, each of which is within the bounds."""
    found: list[Any] = []
    cursor = None
    while True:
        answer = ask(desk, tool, **given, cursor=cursor)
        document = said(answer)
        assert sizes(answer) <= (DOCUMENT_BYTES_MAX, TEXT_BYTES_MAX) and sizes(answer)[1] <= TEXT_BYTES_MAX
        assert "cut" not in document
        found += document[rows]
        if (cursor := document["next"]) is None:
            return found


def message(number: int, text: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"m-{number}", "type": "message", "session": "session-1", "payload": {"role": "user", "text": text}, **fields}


@proven_by(planted(sessions, "taken", lambda rows, document_of: (tuple(rows), tuple(map(document_of, rows)))))
def test_pages_end_before_they_are_too_long_and_leave_nothing_out(here: Path, desk: Desk) -> None:
    store_events(here, [message(number, "word " * 300, time=1_700_000_000_000_000_000 + number // 3) for number in range(300)])
    events = every(desk, "session_get", "events", session="session-1", limit=200)
    assert [event["id"] for event in events] == [f"m-{number}" for number in range(300)]
    found = every(desk, "search", "events", text="word", limit=200)
    assert sorted(event["id"] for event in found) == sorted(f"m-{number}" for number in range(300))
    assert len({event["ordinal"] for event in found}) == 300


def test_sessions_are_listed_in_pages(here: Path, desk: Desk) -> None:
    store_events(here, [edit(number, session=f"{number:03} {HOSTILE[:400]}") for number in range(120)])
    listed = every(desk, "sessions_list", "sessions", limit=200)
    assert len(listed) == len({session["id"] for session in listed}) == 120


@proven_by(planted(sessions, "PAYLOAD_BYTES_MAX", 10**9))
def test_a_long_payload_is_named_and_read_in_pieces(here: Path, desk: Desk) -> None:
    text = "".join(chr(0x4E00 + at % 5_000) for at in range(3 * PIECE_LENGTH_MAX))
    store_events(here, [message(1, text), message(2, "x" * (PAYLOAD_BYTES_MAX - 40))])
    events = said(ask(desk, "session_get", session="session-1"))["events"]
    assert len(events) == 2
    long, short = events
    assert (long["payload"], short["payload"]["role"], "payloadUri" in short) == (None, "user", False)
    assert long["line"].startswith("user: 一")
    pieces: list[str] = []
    uri: Any = long["payloadUri"]
    while uri is not None:
        contents: Any = read(desk, uri, Watch()).contents[0]
        assert (contents.uri, len(contents.text) <= PIECE_LENGTH_MAX) == (uri, True)
        pieces.append(contents.text)
        uri = contents.meta["countermark/next"]
    assert json.loads("".join(pieces)) == {"role": "user", "text": text}
    assert len("".join(pieces).encode()) == long["payloadBytes"]


def test_a_session_that_is_nothing_but_hostile_is_answered(here: Path, desk: Desk) -> None:
    payload = {HOSTILE[at : at + 100]: HOSTILE[:5_000] for at in range(0, 3_000, 100)}
    store_events(here, [{"id": HOSTILE[:500], "type": "notification", "session": HOSTILE[:500], "name": HOSTILE[:500], "payload": payload}])
    for tool, given in (("sessions_list", {}), ("session_get", {"session": HOSTILE[:500]}), ("search", {"text": "31m"})):
        answer = ask(desk, tool, **given)
        assert said(answer)["ok"]
        assert sizes(answer) <= (DOCUMENT_BYTES_MAX, TEXT_BYTES_MAX) and sizes(answer)[1] <= TEXT_BYTES_MAX
        assert [each for each in answer.text if not each.isprintable() and each not in "\n\t"] == []


def test_what_speaks_against_many_checkpoints_is_cut_and_said_to_be(here: Path, desk: Desk) -> None:
    for step in range(1, 60):
        folder = here / "outputs" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        write_safetensors(folder / "model.safetensors", {"w": b"\0\0\0\0"})
    checkpoints = every(desk, "checkpoint_inspect", "checkpoints", paths=["outputs"])
    assert [each["step"] for each in checkpoints] == list(range(1, 60))
    many = [{f"layers.{at}.{'x' * 300}": os.urandom(4) for at in range(400)} for _ in range(2)]
    for side, tensors in zip("ab", many, strict=True):
        write_safetensors(here / f"{side}.safetensors", tensors)
    rows = every(desk, "weights_diff", "tensors", a="a.safetensors", b="b.safetensors", limit=200)
    # A row beyond those of both sides would be one of another name.
    assert len(rows) == len({row["name"] for row in rows}) == 400


_WIDE: Final[dict[str, Any]] = {
    "a list": {"ok": True, "items": list(range(100_000))},
    "a text": {"ok": True, "text": HOSTILE * 10},
    "lists in lists": {"ok": True, "rows": [[["x" * 100] * 50] * 50] * 50},
    "a table": {"ok": True, "table": {f"key {number} {HOSTILE[:50]}": HOSTILE[:500] for number in range(5_000)}},
    "long keys": {"ok": True, "table": {f"{number}{HOSTILE}": 1 for number in range(50)}},
    "deep": {"ok": True, "deep": json.loads('{"a":[' * 400 + '"' + "x" * 70_000 + '"' + "]}" * 400)},
    "many": {"ok": True, **{f"key {number}": ["x" * 300] * 300 for number in range(60)}},
    "beyond everything": {"ok": False, **{f"key {number}" + "x" * 300: "y" for number in range(3_000)}},
}


@proven_by(planted(bounds, "_STEPS", ()))
@pytest.mark.parametrize("name", [name for name in _WIDE if name != "beyond everything"])
def test_a_document_that_is_too_long_keeps_its_beginnings_and_says_what_went(name: str) -> None:
    document: Any = bounded({**_WIDE[name], "defects": [], "warnings": []})
    assert len(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()) <= DOCUMENT_BYTES_MAX
    assert document["ok"] and document["cut"] and document.keys() > {"ok", "cut", "defects", "warnings"}


def test_a_document_beyond_everything_says_so() -> None:
    document: Any = bounded({**_WIDE["beyond everything"], "defects": [], "warnings": []})
    assert (document["ok"], [each["at"] for each in document["cut"]]) == (False, [""])


def test_one_row_is_given_however_long_it_is() -> None:
    assert [fitting([]), fitting([{"x": "y" * 10**6}]), fitting([{"x": "y"}] * 3, 20), fitting([{"x": "y"}] * 3)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "uri",
    [
        "countermark://sessions/nobody-has-it", "countermark://sessions/", "countermark://sessions/a/b", "countermark://events/0",
        "countermark://events/99", "countermark://events/1?from=99999", "countermark://events/1?from=-1", "countermark://events/x",
        "countermark://events/9999999999999999999", "countermark://sessions/session-1?limit=3", "countermark://sessions/session-1?cursor=x",
        "countermark://sessions/session-1#x", "countermark://runs/1", "file:///etc/passwd", "http://[", "", "\x1b[2J", "x" * 100_000,
    ],
)  # fmt: skip
def test_an_address_of_nothing_is_refused_by_its_sentence(here: Path, uri: str) -> None:
    store_events(here, [edit()])
    with pytest.raises(MCPError) as refused:
        read(desk_of(here), uri, Watch())
    error = refused.value.error
    assert (error.code, len(error.data["defects"])) == (-32602, 1)
    assert len(error.message) <= 2_000 and error.message.replace("\n", " ").isprintable()


def test_a_session_is_read_by_its_address_as_by_its_tool(here: Path, desk: Desk) -> None:
    store_events(here, [edit(number, "a/b ö?#&") for number in range(120)])
    uri: Any = said(ask(desk, "session_get", session="a/b ö?#&"))["uri"]
    events: list[Any] = []
    while uri is not None:
        contents: Any = read(desk, uri, Watch()).contents[0]
        events += json.loads(contents.text)["events"]
        uri = contents.meta["countermark/next"]
    assert events == every(desk, "session_get", "events", session="a/b ö?#&")
    assert len(events) == 120


@pytest.mark.slow
def test_a_session_of_fifty_thousand_events_is_read_from_end_to_end(here: Path, desk: Desk) -> None:
    for first in range(0, 50_000, 5_000):
        store_events(here, [message(number, f"word {number}") for number in range(first, first + 5_000)])
    events = every(desk, "session_get", "events", session="session-1", limit=200)
    assert [event["id"] for event in events] == [f"m-{number}" for number in range(50_000)]
