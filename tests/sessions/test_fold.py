"""What events come to depends neither on their order nor on how they were grouped."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import permutations
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from countermark.sessions import fold
from countermark.sessions.events import Event
from countermark.sessions.fold import Fold, Session, Sums, folded, share_of
from countermark.sessions.genai import Usage
from countermark.sessions.times import AHEAD_MAX_NS
from tests.faults import planted, proven_by
from tests.sessions.test_events import NOW, event, spelling

CHAT: Final = {
    "gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5, "gen_ai.usage.cost": 0.1,
}  # fmt: skip


def span(attributes: dict[str, Any], **said: Any) -> Event:
    status = said.pop("status", {"code": "unset"})
    return event(type="span", payload=spelling({"attributes": attributes, "status": status}), start_ns=NOW, end_ns=NOW + 5, **said)


def edit(tensor: str, changed: int, at: int = NOW) -> Event:
    return event(payload=spelling({"kind": "weights.edit", "tensor": tensor, "changed": changed}), start_ns=at)


def sums(**said: Any) -> Sums:
    return Sums(**{"events": 1, "first_ns": NOW, "last_ns": NOW, **said})


#: Events, and what each alone comes to.
ALONE: Final[tuple[tuple[Event, Session], ...]] = (
    (edit("w", 3), Session("s", sums(edits=1, weights_changed=3), 1, Usage())),
    (event(payload=spelling({"kind": "note"}), start_ns=NOW), Session("s", sums(), 0, Usage())),
    (event(type="message", payload=spelling({"role": "user"}), start_ns=NOW), Session("s", sums(messages=1), 0, Usage())),
    (event(type="message", payload=spelling({"responseId": "r", "usage": {"inputTokens": 2, "outputTokens": 3.0, "cost": 1e-12}})),
     Session("s", Sums(1, messages=1), 0, Usage(2, 3, 1))),
    (event(type="tool_call", start_ns=NOW), Session("s", sums(tools=1), 0, Usage())),
    (event(type="tool_result", payload=spelling({"error": "no such file"}), start_ns=NOW), Session("s", sums(errors=1), 0, Usage())),
    (event(type="tool_result", payload=spelling({"error": None}), start_ns=NOW), Session("s", sums(), 0, Usage())),
    (event(type="end", start_ns=NOW), Session("s", sums(ended_ns=NOW), 0, Usage())),
    (span(CHAT), Session("s", sums(messages=1, usage=Usage(10, 5, 10**11), last_ns=NOW + 5), 0, Usage(10, 5, 10**11))),
    (span({**CHAT, "gen_ai.response.id": "r"}), Session("s", sums(messages=1, last_ns=NOW + 5), 0, Usage(10, 5, 10**11))),
    (span({"gen_ai.operation.name": "text_completion", "gen_ai.usage.prompt_tokens": 7}),
     Session("s", sums(messages=1, usage=Usage(7, 0, 0), last_ns=NOW + 5), 0, Usage(7, 0, 0))),
    # An agent's span says the sums of the spans below it, which count by themselves.
    (span({**CHAT, "gen_ai.operation.name": "invoke_agent"}), Session("s", sums(ended_ns=NOW + 5, last_ns=NOW + 5), 0, Usage())),
    (span({"gen_ai.operation.name": "invoke_agent"}, parent="1" * 16), Session("s", sums(last_ns=NOW + 5), 0, Usage())),
    (span({"gen_ai.operation.name": "execute_tool"}, status={"code": "error"}),
     Session("s", sums(tools=1, errors=1, last_ns=NOW + 5), 0, Usage())),
    (span({}), Session("s", sums(last_ns=NOW + 5), 0, Usage())),
    # Times that cannot be used: none, an end before its start, one far ahead.
    (event(), Session("s", Sums(1), 0, Usage())),
    (event(start_ns=NOW, end_ns=NOW - 1), Session("s", sums(odd_times=1), 0, Usage())),
    (event(start_ns=NOW + AHEAD_MAX_NS + 1), Session("s", Sums(1, odd_times=1), 0, Usage())),
    (event(payload=spelling({"a": "\0"}), start_ns=NOW), Session("s", sums(sanitized=1), 0, Usage())),
    # What is no count says nothing.
    (span({**CHAT, "gen_ai.usage.input_tokens": -1, "gen_ai.usage.output_tokens": "5", "gen_ai.usage.cost": 10**9}),
     Session("s", sums(messages=1, last_ns=NOW + 5), 0, Usage())),
)  # fmt: skip


@proven_by(
    planted(fold, "is_edit", lambda payload: True),
    planted(fold, "operation_of", lambda attributes: "chat"),
    planted(fold, "span_usage", lambda attributes: Usage()),
)
def test_each_event_adds_what_it_says() -> None:
    for one, expected in ALONE:
        assert folded("s", [one]) == expected


def test_a_sum_is_exact_beyond_what_databases_add() -> None:
    found = folded("s", [edit("w", 2**63 - 1), edit("w", 2**63 - 1), edit("v", 1)])
    assert (found.sums.weights_changed, found.sums.edits, found.tensors) == (2**64 - 1, 3, 2)


def last_wins() -> AbstractContextManager[object]:
    """The last report of a response counts, whatever it says."""
    return planted(Usage, "most", lambda self, other: other)()


def first_wins() -> AbstractContextManager[object]:
    """A session begins with the event that came first."""
    return planted(fold, "_earlier", lambda one, other: other if one is None else one)()


#: Six events of which every two say something of one thing.
TOGETHER: Final = (
    span({**CHAT, "gen_ai.response.id": "r"}, id="1"),
    span({**CHAT, "gen_ai.response.id": "r", "gen_ai.usage.output_tokens": 50, "gen_ai.usage.input_tokens": 1}, id="2"),
    edit("w", 3, NOW - 50),
    edit("w", 4, NOW + 90),
    span({"gen_ai.operation.name": "invoke_agent"}, id="5"),
    event(type="message", payload=spelling({"usage": {"inputTokens": 1, "cost": 0.1}}), start_ns=NOW - 7, end_ns=NOW - 8),
)


@proven_by(last_wins, first_wins)
def test_in_all_orders_six_events_come_to_the_same() -> None:
    expected = Session("s", Sums(6, 3, 0, 0, 2, 7, Usage(1, 0, 10**11), 1, 0, NOW - 50, NOW + 90, NOW + 5), 1, Usage(11, 50, 2 * 10**11))
    for order in permutations(TOGETHER):
        assert folded("s", order) == expected


@given(st.lists(st.sampled_from([*(one for one, _ in ALONE), *TOGETHER]), max_size=20), st.data())
def test_the_sums_of_groups_add_up_to_the_sums_of_all(chosen: Sequence[Event], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(chosen)))
    parts = [Fold(), Fold(), Fold()]
    for part, group in zip(parts, (chosen[:cut], chosen[cut:], chosen), strict=True):
        for one in group:
            part.add(share_of(one))
    assert parts[0].sums.plus(parts[1].sums) == parts[1].sums.plus(parts[0].sums) == parts[2].sums
    assert parts[0].tensors | parts[1].tensors == parts[2].tensors


CLOSED: Final[tuple[tuple[Callable[[], list[Event]], bool], ...]] = (
    (lambda: [event(type="end", start_ns=NOW)], True),
    (lambda: [event(type="end", start_ns=NOW), edit("w", 1, NOW - 1)], True),
    (lambda: [event(type="end", start_ns=NOW), edit("w", 1, NOW + 1)], False),
    (lambda: [edit("w", 1)], False),
    (list, False),
)


@proven_by(planted(fold, "_later", lambda one, other: one))
def test_a_session_is_closed_where_its_end_is_the_last_that_was_heard_of_it() -> None:
    assert [folded("s", make()).closed for make, _ in CLOSED] == [closed for _, closed in CLOSED]


def test_tags_say_what_some_event_was() -> None:
    found = folded("s", [edit("w", 1), event(start_ns=NOW, end_ns=1), event(sanitized=("name",))])
    assert found.tags == ("weights:edited", "time:odd", "text:sanitized")
    assert folded("s", [event()]).tags == ()
