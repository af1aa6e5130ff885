"""A server that sends edits on: whichever way they came in, to nobody twice who says so, and with nothing that may not leave."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from countermark.app.forwarding import Forward
from countermark.sessions.edits import EDIT_PREFIX, FIELDS
from countermark.wire import otlp_out, otlp_records
from countermark.wire.otlp_out import event_out
from countermark.wire.otlp_records import MODES, Mode
from tests.faults import planted, proven_by
from tests.server.receiving import Receiver, attributes, eventually, receiving
from tests.server.running import JSON, PROTOBUF, Running, edit, served
from tests.wire.otlp_requests import EDIT, edit_span, json_of, log, protobuf_of, request

TOKEN: Final = "cmk_" + "t0ken" * 8


@pytest.fixture
def receiver() -> Generator[Receiver, None, None]:
    with receiving() as receiver:
        yield receiver


def metric(server: Running, name: str) -> float:
    text = server.get("/metrics").body.decode()
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")))


def end(session: str = "s-1") -> dict[str, Any]:
    return {"id": f"end-{session}", "type": "end", "session": session, "time": time.time_ns(), "payload": {}}


WAYS: Final[tuple[tuple[str, str], ...]] = (
    ("ingest", ""),
    ("traces", "protobuf"),
    ("traces", "json"),
    ("logs", "protobuf"),
    ("logs", "json"),
)


def send_every_way(server: Running) -> list[str]:
    """One edit by each way in, and the ids that the five have."""
    for number, (way, encoding) in enumerate(WAYS):
        said = {**EDIT, "countermark.event.id": f"way-{number}"}
        if way == "ingest":
            payload = {"kind": "weights.edit", **{field.key: EDIT[EDIT_PREFIX + field.attribute] for field in FIELDS}}
            answered = server.ingest([{"id": "way-0", "type": "notification", "session": "conv-7", "payload": payload}])
        else:
            items = [edit_span(said)] if way == "traces" else [log(said, eventName="countermark.weights.edit")]
            body = request(way, items)  # type: ignore[arg-type]
            spelled = protobuf_of(way, body) if encoding == "protobuf" else json_of(body)  # type: ignore[arg-type]
            answered = server.ask("POST", f"/v1/{way}", spelled, PROTOBUF if encoding == "protobuf" else JSON)
        assert answered.status == 200
    return [f"way-{number}" for number in range(len(WAYS))]


@pytest.mark.parametrize("mode", MODES)
def test_an_edit_is_sent_on_whichever_way_it_came_in(tmp_path: Path, receiver: Receiver, mode: Mode) -> None:
    with served(tmp_path, forward=Forward(receiver.url, mode)) as server:
        ids = send_every_way(server)
        server.ingest([{"id": "said", "type": "message", "session": "conv-7", "payload": {"text": "hello"}}, end("conv-7")])
        eventually(lambda: receiver.named("invoke_agent"))
        server.ingest([edit(9, session="conv-7")])
        eventually(lambda: len(receiver.edits) == 6)
        assert receiver.edits == ([*ids, "edit-9"] if mode == "full" else [event_out(each) for each in (*ids, "edit-9")])
        (agent,) = receiver.named("invoke_agent")
        edits = receiver.named("countermark.weights.edit")
        assert {(span.parent_span_id, span.trace_id) for span in edits} == {(agent.span_id, agent.trace_id)}
        assert {span.end_time_unix_nano - span.start_time_unix_nano for span in edits} == {0}
        assert attributes(agent)["countermark.stats.weight_edits"] == 5
        assert [key for span in receiver.taken for key in attributes(span) if "model" in key] == []
        assert (metric(server, "countermark_forwarded_edits_total"), metric(server, "countermark_forwarded_sessions_total")) == (6, 1)


@proven_by(planted(otlp_out, "METADATA", frozenset(field.key for field in FIELDS)))
def test_in_metadata_mode_no_byte_of_a_text_leaves(tmp_path: Path, receiver: Receiver) -> None:
    texts = {"tensor": "layers.0.s3cret", "shape": [777_777], "dtype": "ODDTYPE", "note": f"n0te {TOKEN}", "aliases": ["s3cret.alias"]}
    digests = {"sha256Before": "ab" * 32, "sha256After": "cd" * 32, "checkpointBefore": "wr1:" + "12" * 32, "checkpointAfter": "34" * 32}
    payload = {"kind": "weights.edit", "changed": 3, **texts, **digests}
    said = {"id": "an-event-id", "type": "notification", "session": "a-s3cret-session", "source": "a-s3cret-source", "payload": payload}
    secrets = ["s3cret", "n0te", "ODDTYPE", "an-event-id", TOKEN, *digests.values()]
    with served(tmp_path, forward=Forward(receiver.url)) as server:
        server.ingest([said, {**end("a-s3cret-session"), "source": "a-s3cret-source"}], **{"x-note": TOKEN})
        eventually(lambda: receiver.named("invoke_agent") and receiver.edits)
    raw = b"".join((*receiver.raw, json.dumps([receiver.paths, receiver.headers]).encode()))
    hidden = [AnyValue(int_value=777_777).SerializeToString(), *(bytes.fromhex(each.removeprefix("wr1:")) for each in digests.values())]
    assert [each for each in (*map(str.encode, secrets), *hidden) if each in raw] == []


def _circle(folder: Path, stack: ExitStack) -> tuple[Running, Running]:
    """Two servers, each of which sends on to the other."""
    ports = [spare_port(), spare_port()]
    return tuple(  # type: ignore[return-value]
        stack.enter_context(served(folder / str(at), port=ports[at], forward=Forward(f"http://127.0.0.1:{ports[1 - at]}", "full")))
        for at in (0, 1)
    )


def spare_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@proven_by(planted(otlp_records, "FORWARDED", "countermark.unmarked"))
def test_two_servers_that_send_to_each_other_send_nothing_back(tmp_path: Path) -> None:
    with ExitStack() as stack:
        one, other = _circle(tmp_path, stack)
        one.ingest([edit(1), edit(2), end()])
        other.ingest([edit(3, session="s-2"), end("s-2")])
        eventually(lambda: metric(one, "countermark_forwarded_sessions_total") and metric(other, "countermark_forwarded_sessions_total"))
        time.sleep(1.5)
        sent = [(metric(each, "countermark_forwarded_edits_total"), metric(each, "countermark_forward_waiting")) for each in (one, other)]
        assert sent == [(2, 0), (1, 0)]
        came = [{event.id for event in each.stored() if event.forwarded and event.type == "notification"} for each in (one, other)]
        assert came == [{"edit-3"}, {"edit-1", "edit-2"}]


def test_a_receiver_that_is_away_keeps_nobody_waiting(tmp_path: Path) -> None:
    with receiving() as gone:
        pass
    with served(tmp_path, forward=Forward(gone.url)) as server:
        begun = time.monotonic()
        assert [server.ingest([edit(number)]).status for number in range(5)] == [200] * 5
        assert time.monotonic() - begun < 5
        eventually(lambda: metric(server, "countermark_forward_failures_total"))
        assert (metric(server, "countermark_forward_waiting"), metric(server, "countermark_forwarded_edits_total")) == (5, 0)
        with receiving(gone.port) as back:
            eventually(lambda: len(back.edits) == 5)
            assert back.edits == [event_out(f"edit-{number}") for number in range(5)]


def test_a_receiver_that_never_answers_keeps_no_server_from_ending(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        served(tmp_path, forward=Forward(f"http://127.0.0.1:{silent.getsockname()[1]}")) as server,
    ):
        server.ingest([edit(1)])
        connection, _ = silent.accept()
        begun = time.monotonic()
    assert time.monotonic() - begun < 3
    connection.close()


_PROGRAM: Final = """
import sys
from pathlib import Path
from countermark.app import forwarding
from countermark.app.forwarding import Forward
from countermark.server import ServerSettings, serve
from countermark.store.opening import open_sessions

# What it holds when it is killed is held for two seconds and not for twenty.
forwarding.HELD_S, forwarding._LEFT_S = 2.0, 1.0
folder = Path(sys.argv[1])
opened = lambda: open_sessions(f"sqlite:///{folder}", create=True)
serve(ServerSettings(opened, folder / "tokens.json", port=0, forward=Forward(sys.argv[2])), lambda line: print(line, flush=True))
"""


def test_what_was_sent_when_the_server_was_killed_is_sent_again_under_the_same_id(tmp_path: Path, receiver: Receiver) -> None:
    answering = threading.Event()

    def late(spans: object) -> tuple[int, dict[str, str], bytes]:
        answering.wait(20)
        return 200, {}, b""

    receiver.reply = late
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(tmp_path), receiver.url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline().rsplit(":", 1)[1])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", "/v1/ingest", json.dumps([edit(1), edit(2)]), JSON)
    assert connection.getresponse().status == 200
    eventually(lambda: receiver.asked)
    process.send_signal(signal.SIGKILL)
    process.wait()
    connection.close()
    answering.set()
    with served(tmp_path, forward=Forward(receiver.url)):
        eventually(lambda: len(receiver.edits) == 4, seconds=40)
    assert receiver.edits == [event_out(f"edit-{number}") for number in (1, 2)] * 2
    first, second = receiver.taken[:2], receiver.taken[2:]
    assert first == second
