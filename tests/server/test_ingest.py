"""POST /v1/ingest: what is answered as stored is stored, and everything that is sent is bounded."""

import gzip
import json
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from countermark.app import sessions as operations
from countermark.server import bodies, handlers
from countermark.server.limits import Limits
from countermark.wire import events as wire_events
from tests.faults import planted, proven_by
from tests.server.running import JSON, LINES, Running, edit, served


def outcomes(document: Any) -> list[tuple[int, str]]:
    return [(item["index"], item["outcome"]) for item in document["events"]]


@proven_by(planted(operations, "_items", lambda events, found: ()))
def test_each_event_of_a_batch_is_answered_for(server: Running) -> None:
    answered = server.ingest([edit(1), edit(2), edit(1)])
    assert (answered.status, answered.document["ok"], answered.document["defects"]) == (200, True, [])
    assert outcomes(answered.document) == [(0, "stored"), (1, "stored"), (2, "duplicate")]
    assert [answered.document[key] for key in ("stored", "duplicates", "conflicts")] == [2, 1, 0]
    assert [event.id for event in server.stored()] == ["edit-1", "edit-2"]


def test_a_batch_that_is_sent_again_changes_nothing(server: Running) -> None:
    server.ingest([edit(1), edit(2)])
    before = server.get("/v1/sessions").body
    again = server.ingest({"events": [edit(2), edit(3), edit(1)]})
    assert outcomes(again.document) == [(0, "duplicate"), (1, "stored"), (2, "duplicate")]
    server.ingest([edit(3), edit(1)])
    listed = server.get("/v1/sessions").document["sessions"]
    assert [session["stats"]["weightEdits"] for session in listed] == [{"edits": 3, "tensors": 3, "weightsChanged": 6}]
    assert server.get("/v1/sessions").body != before


def test_another_payload_under_a_known_id_is_a_conflict_and_the_first_is_kept(server: Running) -> None:
    server.ingest(edit(1))
    other = edit(1, payload={"kind": "weights.edit", "tensor": "other", "changed": 9})
    answered = server.ingest([other, edit(1), other])
    assert outcomes(answered.document) == [(0, "conflict"), (1, "duplicate"), (2, "conflict")]
    assert [warning["code"] for warning in answered.document["warnings"]] == ["EventConflicts"] * 2
    shown = server.get("/v1/sessions/s-1").document
    assert [conflict["payload"]["tensor"] for conflict in shown["conflicts"]] == ["other"]
    assert shown["session"]["stats"]["weightEdits"]["weightsChanged"] == 1


def first_defect(defects: Any) -> Any:
    return defects_of_all(defects)[:1]


defects_of_all = handlers.defect_documents


@proven_by(planted(handlers, "defect_documents", first_defect))
def test_a_bad_event_is_refused_with_all_its_defects_and_loses_none_of_its_neighbours(server: Running) -> None:
    bad = {"type": "x", "session": "s-1", "payload": {"kind": "weights.edit", "tensor": "", "changed": -1}, "id": "bad"}
    answered = server.ingest([edit(1), bad, 3, edit(2)])
    document = answered.document
    assert (answered.status, document["ok"], outcomes(document)) == (200, False, [(0, "stored"), (3, "stored")])
    assert [(item["index"], item["id"], [defect.get("field") for defect in item["defects"]]) for item in document["refused"]] == [
        (1, "bad", ["type", "payload.tensor", "payload.changed"]),
        (2, "", [None]),
    ]
    assert answered.codes == ["EventFieldInvalid"] * 3 + ["EventUnreadable"]
    assert [event.id for event in server.stored()] == ["edit-1", "edit-2"]


def test_events_one_a_line_are_taken(server: Running) -> None:
    lines = b"\n".join(json.dumps(item).encode() for item in (edit(1), edit(2))) + b"\n\nno json\n"
    answered = server.ask("POST", "/v1/ingest", lines, LINES)
    assert (outcomes(answered.document), answered.codes) == ([(0, "stored"), (1, "stored")], ["EventUnreadable"])


def test_a_body_in_chunks_and_packed_is_taken(server: Running) -> None:
    packed = gzip.compress(json.dumps([edit(1)]).encode()) + gzip.compress(b" ")
    pieces = [packed[at : at + 7] for at in range(0, len(packed), 7)]
    assert server.ask("POST", "/v1/ingest", pieces, {**JSON, "content-encoding": "gzip"}).document["stored"] == 1
    assert server.ask("POST", "/v1/ingest", [json.dumps(edit(2)).encode()], JSON).document["stored"] == 1


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"nothing", b'"text"', b'{"events": 3}', b"[" * 200_000, b'{"a":' * 100_000])
def test_a_body_that_is_no_batch_is_refused(server: Running, body: bytes) -> None:
    answered = server.ask("POST", "/v1/ingest", body, JSON)
    told = answered.document
    assert (answered.status, answered.codes) == (400, ["EventUnreadable"]) or (answered.status, told["stored"]) == (200, 0)
    assert told["ok"] is False
    assert server.stored() == []


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_of_another_kind_is_refused(server: Running, media: str) -> None:
    answered = server.ask("POST", "/v1/ingest", b"{}", {"content-type": media} if media else {})
    assert (answered.status, answered.codes) == (415, ["MediaTypeUnfit"])


# ------------------------------------------------------------------------------------------------------------ bounds


def test_1446_events_are_taken_at_once_and_too_many_are_refused_with_the_bound(tmp_path: Path) -> None:
    with served(tmp_path / "store", limits=Limits(items_max=1_446)) as server:
        assert server.ingest([edit(number) for number in range(1_446)]).document["stored"] == 1_446
        for body, headers in (
            (json.dumps([{}] * 1_447).encode(), JSON),
            (b"{}\n" * 1_447, LINES),
        ):
            answered = server.ask("POST", "/v1/ingest", body, headers)
            assert (answered.status, answered.codes, answered.document["defects"][0]["itemsMax"]) == (413, ["BatchTooLong"], 1_446)
        assert len(server.stored()) == 1_446


def test_one_note_of_5_mb_loses_none_of_its_249_neighbours(server: Running) -> None:
    note = {"type": "message", "session": "s-1", "id": "big", "payload": {"text": "x" * 5_000_000}}
    wrong = edit(0, payload={"kind": "weights.edit", "tensor": "w", "changed": 1, "note": "x" * 5_000_000})
    answered = server.ingest([*(edit(number) for number in range(1, 250)), note, wrong])
    assert (answered.document["stored"], [item["index"] for item in answered.document["refused"]]) == (250, [250])
    assert [event.replaced for event in server.stored() if event.id == "big"] == [("payload.text",)]


BOUND = 100_000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Running]:
    with served(tmp_path / "store", limits=Limits(body_bytes_max=BOUND, body_seconds_max=1, waiting_bytes_max=2 * BOUND)) as server:
        yield server


@pytest.mark.parametrize("way", ["with its length", "in chunks", "packed", "packed in chunks"])
def test_a_body_that_is_too_large_is_refused_with_the_bound(small: Running, way: str) -> None:
    for size, fits in ((BOUND, True), (BOUND + 1, False)):
        whole = json.dumps([edit(1)]).encode().ljust(size)
        body = gzip.compress(whole) if "packed" in way else whole
        headers = {**JSON, "content-encoding": "gzip"} if "packed" in way else JSON
        answered = small.ask("POST", "/v1/ingest", [body[:500], body[500:]] if "chunks" in way else body, headers)
        if fits:
            assert answered.document["ok"] is True
        else:
            assert (answered.status, answered.codes, answered.document["defects"][0]["bytesMax"]) == (413, ["BodyTooLarge"], BOUND)
            assert answered.headers["connection"] == "close"


@proven_by(planted(bodies, "_GZIP", -15))
def test_a_gigabyte_of_nothing_in_a_megabyte_is_stopped_while_it_is_unpacked(server: Running) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = b"\0" * 1_000_000
    bomb = b"".join(packer.compress(block) for _ in range(300)) + packer.flush()
    begun = time.monotonic()
    answered = server.ask("POST", "/v1/ingest", bomb, {**JSON, "content-encoding": "gzip"})
    assert (answered.status, answered.codes) == (413, ["BodyTooLarge"])
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("br", b"{}"),
        ("gzip", b"no gzip"),
        ("gzip", gzip.compress(b"{}", mtime=0)[:-5]),
        ("gzip", gzip.compress(b"{}", mtime=0) + b"tail"),
        ("deflate", b""),
    ],
)
def test_a_body_that_cannot_be_unpacked_is_refused(server: Running, encoding: str, body: bytes) -> None:
    answered = server.ask("POST", "/v1/ingest", body, {**JSON, "content-encoding": encoding})
    assert (answered.status, answered.codes) == (400, ["BodyEncodingUnfit"])


def test_a_body_that_does_not_come_is_not_waited_for(small: Running) -> None:
    head = b"POST /v1/ingest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    begun = time.monotonic()
    with small.raw(head) as connection:
        # The head and the body come in pieces of their own; after them the connection is closed.
        answered = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answered.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"BodySlow","secondsMax":1' in answered
    assert 0.9 < time.monotonic() - begun < 5


def test_a_head_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    with served(tmp_path / "store", limits=Limits(head_seconds_max=1)) as server:
        for sent in (b"", b"GET /healthz HTTP/1.1\r\nHost: lo", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /h"):
            with server.raw(sent) as connection:
                while connection.recv(65536):
                    pass
        assert server.get("/healthz").status == 200


def test_bodies_that_find_no_room_are_asked_to_come_again(small: Running) -> None:
    head = b"POST /v1/ingest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 90000\r\n\r\n"
    with small.raw(head + b" " * 89_999), small.raw(head + b" " * 89_999):
        time.sleep(0.3)
        answered = small.ask("POST", "/v1/ingest", b" " * 50_000, JSON)
        assert (answered.status, answered.codes, answered.headers["retry-after"]) == (503, ["ServerBusy"], "1")
    time.sleep(0.3)
    assert small.ingest(edit(1)).document["stored"] == 1


@proven_by(planted(wire_events, "_gathered", lambda *_: 1 / 0))
def test_nothing_that_fails_inside_takes_the_server_down(server: Running) -> None:
    answered = server.ingest(edit(1))
    assert (answered.status, server.get("/healthz").status) == (200, 200)
