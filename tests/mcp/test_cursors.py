"""Where a client goes on: only with what this server handed out, to the tool and the question that it was handed out for."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest

from countermark.lines.serving import ParameterUnfit
from countermark.mcp import cursors as room
from countermark.mcp.cursors import Cursors
from countermark.mcp.desk import Desk
from tests.cli.test_commands import write_safetensors
from tests.faults import planted, proven_by
from tests.mcp.asking import ask, codes, desk_of, edit, said, store_events

KEY = b"k" * 32


def test_a_place_comes_back_as_it_was() -> None:
    cursors = Cursors(KEY)
    for place in ((1, "a"), (2**63 - 1, "ö\ud83e\x00/é"), ("x" * 900,), (0, 0, 0), ()):
        assert cursors.read("tool", {"a": 1}, cursors.spell("tool", {"a": 1}, place)) == place


@proven_by(planted(room.hmac, "compare_digest", lambda a, b: True))
def test_what_was_changed_or_comes_from_elsewhere_is_no_cursor() -> None:
    cursors = Cursors(KEY)
    good = cursors.spell("tool", {}, (7, "session"))
    raw = urlsafe_b64decode(good + "=" * (-len(good) % 4))
    changed = [urlsafe_b64encode(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]).decode().rstrip("=") for at in range(len(raw))]
    foreign = Cursors(b"o" * 32).spell("tool", {}, (7, "session"))
    assert isinstance(cursors.read("tool", {}, foreign), ParameterUnfit)
    for text in (*changed, foreign, good[:-1], good + "=", good + "A", good + "\n", " " + good, "", "ö", "\x00", "x" * 10**6, "7.session"):
        assert isinstance(cursors.read("tool", {}, text), ParameterUnfit), text[:50]
    assert cursors.read("tool", {}, good) == (7, "session")


def test_a_cursor_is_of_one_tool_and_one_question() -> None:
    cursors = Cursors(KEY)
    good = cursors.spell("search", {"text": "x"}, (7,))
    for tool, asked in (("sessions_list", {"text": "x"}), ("search", {"text": "y"}), ("search", {})):
        found = cursors.read(tool, asked, good)
        assert isinstance(found, ParameterUnfit)
        assert found.wanted == f"a cursor that {tool} handed out for the same other arguments; ask again without a cursor"


def test_a_server_that_was_started_again_says_so(here: Path) -> None:
    store_events(here, [edit(number, f"session-{number}") for number in range(5)])
    for tool, given in (("sessions_list", {}), ("search", {"text": "layers"})):
        cursor = said(ask(desk_of(here), tool, limit=2, **given))["next"]
        answer = ask(desk_of(here), tool, limit=2, cursor=cursor, **given)
        assert codes(answer) == ["ParameterUnfit"]
        assert "since it was started; ask again without a cursor" in answer.text


def test_nothing_of_the_store_can_be_read_off_a_cursor_and_pages_may_change_their_size(here: Path, desk: Desk) -> None:
    store_events(here, [edit(number, f"session-{number}") for number in range(5)])
    first = said(ask(desk, "sessions_list", limit=2))
    second = said(ask(desk, "sessions_list", limit=200, cursor=first["next"]))
    assert len(first["sessions"] + second["sessions"]) == 5
    assert second["next"] is None


def test_what_was_measured_is_held_for_its_pages_and_for_a_few_answers(here: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for side in "ab":
        write_safetensors(here / f"{side}.safetensors", {f"w{at}": side.encode() * 4 for at in range(5)})
    given: dict[str, Any] = {"a": "a.safetensors", "b": "b.safetensors", "limit": 2}
    first = said(ask(desk, "weights_diff", **given))
    # What lies there now is not what was compared.
    (here / "b.safetensors").unlink()
    second = said(ask(desk, "weights_diff", **given, cursor=first["next"]))
    third = said(ask(desk, "weights_diff", **given, cursor=second["next"]))
    assert [row["name"] for page in (first, second, third) for row in page["tensors"]] == [f"w{at}" for at in range(5)]
    assert [(page["first"], page["total"], page["next"] is None) for page in (first, second, third)] == [
        (1, 5, False), (3, 5, False), (5, 5, True)
    ]  # fmt: skip
    assert {str(page["totals"]) for page in (first, second, third)} == {str(first["totals"])}
    for _ in range(8):
        desk.cursors.hold(None)
    late = ask(desk, "weights_diff", **given, cursor=second["next"])
    assert (codes(late), "one of the last 8 long answers; ask again without a cursor" in late.text) == (["ParameterUnfit"], True)
