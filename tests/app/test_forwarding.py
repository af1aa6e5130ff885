"""Sending on, turn by turn, over a store and a receiver that are real: in order, at least once, and nothing for ever."""

from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTracePartialSuccess, ExportTraceServiceResponse

from countermark.app import otlp_sink
from countermark.app.forwarding import FIRST_S, LAST_S, Forward, Forwarder, delay_s
from countermark.app.otlp_sink import RETRY_AFTER_MAX_S, Away, Delivered, OtlpSink, Unfit, outcome_of
from countermark.store.opening import open_sessions
from countermark.store.sessions.interface import SERVE_SINK, SessionStore, SinkState
from countermark.wire.otlp_out import event_out
from tests.faults import planted, proven_by
from tests.server.receiving import TAKEN, Receiver, attributes, receiving, statuses
from tests.store.sessions.examples import NOW, SECOND, edit, event

IDLE_S: Final = 300


@pytest.fixture
def store(tmp_path: Path) -> Generator[SessionStore, None, None]:
    with open_sessions(f"sqlite:///{tmp_path}", create=True) as store:
        yield store


@pytest.fixture
def receiver() -> Generator[Receiver, None, None]:
    with receiving() as receiver:
        yield receiver


def forwarder(store: SessionStore, receiver: Receiver, now_ns: int = NOW, **said: Any) -> Forwarder:
    sink = OtlpSink(receiver.url, said.pop("headers", ()))
    made = Forwarder(store, sink, said.pop("mode", "metadata"), IDLE_S, lambda: now_ns, lambda: 0.0)
    assert made.hold()
    return made


def sent_as(*ids: str) -> list[str]:
    return [event_out(each) for each in ids]


def test_edits_are_sent_in_order_and_their_session_once(store: SessionStore, receiver: Receiver) -> None:
    one = forwarder(store, receiver)
    store.ingest([edit("a", "w"), event("said"), edit("b", "w", changed=4)])
    one.turn()
    assert (receiver.edits, receiver.named("invoke_agent"), set(receiver.paths)) == (sent_as("a", "b"), [], {"/v1/traces"})
    store.ingest([event("end", {}, "end")])
    for _ in range(3):
        one.turn()
    (agent,) = receiver.named("invoke_agent")
    assert {span.parent_span_id for span in receiver.named("countermark.weights.edit")} == {agent.span_id}
    assert [attributes(agent)[f"countermark.stats.{name}"] for name in ("weight_edits", "weights_changed")] == [2, 7]
    store.ingest([edit("c", "w"), event("again", {}, "end")])
    one.turn()
    assert (receiver.edits, len(receiver.named("invoke_agent"))) == (sent_as("a", "b", "c"), 1)


def test_a_session_is_told_of_when_it_falls_silent(store: SessionStore, receiver: Receiver) -> None:
    clock = [NOW]
    one = Forwarder(store, OtlpSink(receiver.url), "metadata", IDLE_S, lambda: clock[0])
    one.hold()
    store.ingest([edit("a", "w")])
    one.turn()
    told: list[int] = []
    for later in (0, 1, 2):
        clock[0] = NOW + IDLE_S * SECOND + later
        one.turn()
        told.append(len(receiver.named("invoke_agent")))
    assert told == [0, 1, 1]


def test_what_was_sent_and_not_noted_is_sent_again_under_the_same_ids(store: SessionStore, receiver: Receiver) -> None:
    one = forwarder(store, receiver)
    store.ingest([edit("a", "w")])
    with pytest.raises(KeyboardInterrupt), planted(type(store), "sent", _killed)():
        one.turn()
    forwarder(store, receiver, NOW + 60 * SECOND).turn()
    first, again = receiver.taken
    assert first == again


def _killed(*args: object, **named: object) -> bool:
    raise KeyboardInterrupt


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 401, 404, 302])
@proven_by(planted(otlp_sink, "UNFIT", frozenset(range(300, 600))))
def test_what_is_not_taken_now_is_sent_until_it_is(store: SessionStore, receiver: Receiver, status: int) -> None:
    one = forwarder(store, receiver)
    receiver.reply = statuses(status, status, headers={"Retry-After": "7"})
    store.ingest([edit("a", "w"), edit("b", "w")])
    assert [one.turn(), one.turn()] == [7.0, 7.0]
    assert store.sink_state(SERVE_SINK) == SinkState(2, 0, 0, NOW, f"it answers {status}")
    one.turn()
    assert receiver.edits == sent_as("a", "b")
    assert store.sink_state(SERVE_SINK) == SinkState(0, 1, 0, 0, "")
    assert (one.edits, one.failures) == (2, 2)


def test_a_receiver_that_is_not_there_is_asked_ever_more_rarely(store: SessionStore) -> None:
    with receiving() as gone:
        pass
    one = forwarder(store, gone)
    store.ingest([edit("a", "w")])
    assert [one.turn() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    found = store.sink_state(SERVE_SINK)
    assert found is not None and (found.waiting, found.why) == (1, "it cannot be reached: Connection refused")
    with receiving(gone.port) as back:
        one.turn()
        assert back.edits == sent_as("a")


@pytest.mark.parametrize("status", sorted(otlp_sink.UNFIT))
def test_an_edit_that_is_never_taken_is_set_aside_and_the_others_go_on(store: SessionStore, receiver: Receiver, status: int) -> None:
    one = forwarder(store, receiver)
    names = [f"e-{number}" for number in range(9)]
    (poison,) = sent_as("e-4")
    receiver.reply = lambda spans: (status, {}, b"") if any(attributes(span)["countermark.event.id"] == poison for span in spans) else TAKEN
    store.ingest([edit(name, "w") for name in names])
    one.turn()
    one.turn()
    assert receiver.edits == sent_as(*(name for name in names if name != "e-4"))
    assert store.sink_state(SERVE_SINK) == SinkState(0, 1, 1, 0, "")
    assert sum(any(attributes(span)["countermark.event.id"] == poison for span in spans) for spans in receiver.asked) <= 5


def test_a_session_that_is_never_taken_is_set_aside(store: SessionStore, receiver: Receiver) -> None:
    one = forwarder(store, receiver)
    receiver.reply = lambda spans: (400, {}, b"") if spans[0].name == "invoke_agent" else TAKEN
    store.ingest([edit("a", "w"), event("end", {}, "end")])
    for _ in range(3):
        one.turn()
    assert (len(receiver.asked), store.sink_state(SERVE_SINK)) == (2, SinkState(0, 0, 1, 0, ""))


def test_what_a_receiver_takes_and_rejects_is_set_aside(store: SessionStore, receiver: Receiver) -> None:
    one = forwarder(store, receiver)
    partial = ExportTraceServiceResponse(partial_success=ExportTracePartialSuccess(rejected_spans=1, error_message="a secret"))
    receiver.reply = lambda spans: (200, {}, partial.SerializeToString())
    store.ingest([edit("a", "w")])
    one.turn()
    assert (one.rejected, one.edits, store.sink_state(SERVE_SINK)) == (1, 0, SinkState(0, 0, 1, 0, ""))


def test_while_another_sends_nothing_is_sent(store: SessionStore, receiver: Receiver) -> None:
    forwarder(store, receiver)
    other = Forwarder(store, OtlpSink(receiver.url), "metadata", IDLE_S, lambda: NOW)
    store.ingest([edit("a", "w")])
    other.turn()
    assert (other.hold(), receiver.asked) == (False, [])


def test_headers_go_with_every_request(store: SessionStore, receiver: Receiver) -> None:
    store_headers = (("authorization", "Bearer secret"),)
    one = forwarder(store, receiver, headers=store_headers)
    store.ingest([edit("a", "w")])
    one.turn()
    (headers,) = receiver.headers
    assert (headers["authorization"], headers["content-type"]) == ("Bearer secret", "application/x-protobuf")
    assert Forward(receiver.url, headers=store_headers).mode == "metadata"


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_a_delay_stays_within_its_bounds(chance: float) -> None:
    for failures in (*range(1, 30), 10**6):
        longest = min(LAST_S, FIRST_S * 2 ** min(failures - 1, 30))
        assert longest / 2 <= delay_s(failures, 0.0, chance) <= longest
        assert delay_s(failures, 900.0, chance) == 900.0


@pytest.mark.parametrize(
    ("status", "said", "outcome"),
    [
        (200, "", Delivered(0)),
        (204, "9", Delivered(0)),
        (400, "9", Unfit("it answers 400")),
        (503, "", Away("it answers 503", 0.0)),
        (503, "120", Away("it answers 503", 120.0)),
        (503, "99999999999", Away("it answers 503", RETRY_AFTER_MAX_S)),
        (503, "-1", Away("it answers 503", 0.0)),
        (503, "soon", Away("it answers 503", 0.0)),
        (503, "Wed, 21 Oct 2015 07:28:00 GMT", Away("it answers 503", 0.0)),
        (503, "Wed, 21 Oct 2099 07:28:00 GMT", Away("it answers 503", RETRY_AFTER_MAX_S)),
    ],
)
def test_an_answer_means_one_thing(status: int, said: str, outcome: object) -> None:
    assert outcome_of(status, said, b"<html>") == outcome
