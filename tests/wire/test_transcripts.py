"""A transcript is imported once, whole, and without its secrets."""

import json
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from countermark.sessions.canonical import ValueUnspellable
from countermark.sessions.edits import EventFieldInvalid
from countermark.sessions.events import Batch, EventRefused, EventUnreadable
from countermark.sessions.fold import folded
from countermark.sessions.genai import Usage
from countermark.sessions.secrets import Redacted
from countermark.values import NonEmpty
from countermark.wire import transcripts
from countermark.wire.events import event_line
from countermark.wire.transcripts import read_transcript
from tests.faults import planted, proven_by
from tests.sessions.test_events import NOW
from tests.wire.test_events import WHOLE, taken

AT: Final = "2026-12-03T08:00:00.000Z"
AT_NS: Final = 1796284800000000000


def lines(*records: object) -> bytes:
    return b"\n".join(json.dumps(record).encode() for record in records) + b"\n"


def said(data: bytes) -> list[tuple[str, str, str | None, int, object]]:
    found = read_transcript(data, "file", NOW)
    assert found.refused == ()
    return [(event.id, event.type, event.session, event.start_ns, event.payload.value) for _, event in found.events]


def record(kind: str, uuid: str, content: object, **more: object) -> dict[str, object]:
    return {"type": kind, "sessionId": "abc", "uuid": uuid, "timestamp": AT, "message": {"role": kind, "content": content, **more}}


USED: Final = {"input_tokens": 3, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 100, "output_tokens": 7}
CALL: Final = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
NESTED: Final = lines(
    record("user", "u1", "make it smaller"),
    record("assistant", "u2", [{"type": "thinking", "thinking": "hm"}], model="m", id="r1", usage=USED),
    record("assistant", "u3", [{"type": "text", "text": "so"}, CALL], model="m", id="r1", usage=USED),
    record("user", "u4", [{"type": "tool_result", "tool_use_id": "t1", "content": "no such file", "is_error": True}]),
    {"type": "summary", "summary": "smaller", "leafUuid": "u4"},
)  # fmt: skip
R1: Final = {"model": "m", "responseId": "r1", "usage": {"inputTokens": 113, "outputTokens": 7}}


def test_records_with_a_message_become_messages_calls_and_results() -> None:
    assert said(NESTED) == [
        ("u1", "message", "abc", AT_NS, {"role": "user", "text": "make it smaller"}),
        ("u2", "message", "abc", AT_NS, {**R1, "kind": "thinking", "role": "assistant", "text": "hm"}),
        ("u3:0", "message", "abc", AT_NS, {**R1, "role": "assistant", "text": "so"}),
        ("u3:1", "tool_call", "abc", AT_NS, {**R1, "tool": "Bash", "arguments": {"command": "ls"}, "callId": "t1"}),
        ("u4", "tool_result", "abc", AT_NS, {"callId": "t1", "result": "no such file", "error": True}),
        # Without a session of its own it stays with the record before it.
        ("abc:4", "notification", "abc", 0, {"kind": "transcript", "type": "summary", "summary": "smaller", "leafUuid": "u4"}),
    ]


def rolled(kind: str, **payload: object) -> dict[str, object]:
    return {"timestamp": AT, "type": kind, "payload": payload}


def count(total: int) -> dict[str, object]:
    last = {"input_tokens": 5, "output_tokens": 2}
    return rolled("event_msg", type="token_count", info={"last_token_usage": last, "total_token_usage": {"total_tokens": total}})


ROLLOUT: Final = lines(
    rolled("session_meta", id="xyz", cwd="/w"),
    rolled("response_item", type="message", role="user", content=[{"type": "input_text", "text": "hi"}]),
    rolled("response_item", type="function_call", name="shell", arguments="{}", call_id="c1"),
    rolled("response_item", type="function_call_output", call_id="c1", output="done"),
    *map(count, (7, 7, 14)),
    rolled("event_msg", type="token_count", info=None),
)


def test_records_of_a_rollout_become_messages_calls_and_results() -> None:
    tokens = {"kind": "tokens", "usage": {"inputTokens": 5, "outputTokens": 2}}
    assert said(ROLLOUT) == [
        ("xyz:0", "notification", "xyz", AT_NS, {"kind": "transcript", "type": "session_meta", "payload": {"id": "xyz", "cwd": "/w"}}),
        ("xyz:1", "message", "xyz", AT_NS, {"role": "user", "text": "hi"}),
        ("xyz:2", "tool_call", "xyz", AT_NS, {"tool": "shell", "arguments": "{}", "callId": "c1"}),
        ("xyz:3", "tool_result", "xyz", AT_NS, {"callId": "c1", "result": "done"}),
        ("xyz:4", "notification", "xyz", AT_NS, {**tokens, "responseId": "xyz:7"}),
        ("xyz:5", "notification", "xyz", AT_NS, {**tokens, "responseId": "xyz:7"}),
        ("xyz:6", "notification", "xyz", AT_NS, {**tokens, "responseId": "xyz:14"}),
        (
            "xyz:7", "notification", "xyz", AT_NS,
            {"kind": "transcript", "type": "event_msg", "payload": {"type": "token_count", "info": None}},
        ),
    ]  # fmt: skip


def test_messages_of_a_chat_are_read_with_their_calls_and_belong_to_the_file() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert said(lines({"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "user", "content": "hi"})) == [
        ("file:0", "message", "file", 0, {"role": "assistant"}),
        ("file:0:call:0", "tool_call", "file", 0, {"tool": "f", "arguments": "{}", "callId": "c1"}),
        ("file:1", "message", "file", 0, {"role": "user", "text": "hi"}),
    ]


def test_events_of_ours_come_back_as_they_went() -> None:
    assert read_transcript(event_line(taken(WHOLE)), "file", NOW).events == ((0, taken(WHOLE)),)
    bare = {"type": "message", "payload": {"text": "hi"}}
    assert said(lines(bare))[0][1:] == ("message", "file", 0, {"text": "hi"})
    assert read_transcript(lines({"type": "message", "id": "e", "payload": 5}), "file", NOW).refused == (
        EventRefused(0, "e", NonEmpty(EventFieldInvalid("payload", "5", "a JSON object"))),
    )


@proven_by(planted(transcripts, "_sum", lambda counts: None))
def test_the_tokens_of_a_response_count_once() -> None:
    for data, usage, counts in ((NESTED, Usage(113, 7), (3, 1, 1)), (ROLLOUT, Usage(10, 4), (1, 1, 0))):
        found = folded("s", [event for _, event in read_transcript(data, "file", NOW).events])
        assert ((found.sums.messages, found.sums.tools, found.sums.errors), found.usage) == (counts, usage)


@proven_by(planted(transcripts, "redacted", lambda value, place, named: Redacted(value, ())))
def test_no_secret_of_a_line_stays() -> None:
    secret, ours = "sk-ant-api03-" + "x" * 40, "a-token-of-ours-0123456789"
    data = lines(
        record("user", "u1", f"use {secret} and {ours}"),
        record("assistant", "u2", [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"env": {"API_KEY": "zzz"}}}]),
        {"type": "other", "x": [secret]},
    )
    found = read_transcript(data, "file", NOW, (ours,))
    told = b"".join(event_line(event) for _, event in found.events)
    assert [secret.encode() in told, ours.encode() in told, b"zzz" in told] == [False] * 3
    assert [event.sanitized for _, event in found.events] == [
        ("payload.message.content (secret)",), ("payload.message.content[0].input.env.API_KEY (secret)",), ("payload.x[0] (secret)",),
    ]  # fmt: skip


def test_a_bad_line_is_named_and_loses_none_of_its_neighbours() -> None:
    unspellable = record("user", "u9", [{"type": "x", "v": [1e999]}])
    found = read_transcript(b"{\n" + NESTED + b"\n5\n" + lines(unspellable), "file", NOW)
    assert [item.index for item in found.refused] == [0, 7, 8]
    assert [item.defects for item in found.refused[1:]] == [
        NonEmpty(EventUnreadable("5 is no JSON object")),
        NonEmpty(ValueUnspellable("payload.content.v[0]", "inf is not a finite number")),
    ]
    assert [event.payload for _, event in found.events] == [event.payload for _, event in read_transcript(NESTED, "file", NOW).events]


@proven_by(planted(transcripts, "kept_text", lambda text, length_max=0: text))
def test_what_no_database_keeps_is_replaced_and_told_wherever_it_stands() -> None:
    odd = [
        {"type": "su\0mmary", "uuid": "u\0", "sessionId": "s\ud800"},
        {"type": "event_msg", "payload": {"type": "tok\0en", "info": None}},
        {"role": "user", "id": "i\udfff", "content": "x\0"},
    ]
    found = read_transcript(lines(*odd), "file", NOW)
    assert found.refused == ()
    assert [(event.id, event.session, event.name, event.replaced) for _, event in found.events] == [
        ("u\ufffd", "s\ufffd", "su\ufffdmmary", ("id", "session", "name", "payload.sessionId", "payload.type", "payload.uuid")),
        ("s\ufffd:1", "s\ufffd", "tok\ufffden", ("id", "session", "name", "payload.payload.type")),
        ("i\ufffd", "s\ufffd", "", ("id", "session", "payload.text")),
    ]
    (refused,) = read_transcript(lines({"role": "user", "id": "i\0", "content": [{"type": "x", "v": 1e999}]}), "file", NOW).refused
    assert refused.id == "i\ufffd"


def test_importing_again_or_a_grown_one_gives_the_same_ids() -> None:
    for data in (NESTED, ROLLOUT):
        first, grown = (
            read_transcript(text, "file", NOW + later) for later, text in enumerate((data, data + lines({"role": "user", "content": "x"})))
        )
        ids = [[event.id for _, event in batch.events] for batch in (first, grown)]
        assert ids[1][: len(ids[0])] == ids[0]
        assert len(set(ids[1])) == len(ids[1])


@given(st.dictionaries(st.sampled_from(["type", "message", "role", "content", "payload", "sessionId", "uuid", "timestamp", "tool_calls"]),
    st.none() | st.integers() | st.text(max_size=5) | st.lists(st.dictionaries(st.sampled_from(["type", "text", "input", "function"]),
    st.sampled_from(["text", "tool_use", "tool_result", 5, None, []]), max_size=3), max_size=3)))  # fmt: skip
def test_no_record_raises(found: dict[str, Any]) -> None:
    assert isinstance(read_transcript(lines(found), "file", NOW), Batch)
