"""What tools answer is what the command line prints, as a document and as lines; what is wrong is a value of the answer."""

import json
import sqlite3
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.mcp import answering, runs, sessions
from countermark.mcp.desk import Desk, Told
from countermark.store.failures import NotAStore, StoreError
from tests.cli.called import Caller
from tests.cli.recipes import write_recipe
from tests.cli.test_commands import write_safetensors
from tests.faults import planted, proven_by
from tests.mcp.asking import ask, codes, desk_of, edit, said, store_events

#: A number that JavaScript would read as another one, and a name that a terminal would obey.
ODD: Final = edit(3, payload={"changed": 9007199254740993, "tensor": "w\x1b[2J\x9b\ud83e", "note": "a\x00b"})


def printed(answer: str) -> str:
    """What the command line printed, without the line that says how its page goes on."""
    return "".join(line + "\n" for line in answer.splitlines() if not line.startswith("more: "))


def shown(text: str) -> str:
    return printed(text + "\n")


@pytest.fixture
def some(here: Path) -> Path:
    talk = {"id": "m-1", "type": "message", "session": "session-1", "payload": {"role": "user", "text": "hello \x1b]0;x\x07 world"}}
    store_events(here, [edit(1), edit(2, "a/b ö?#&"), ODD, talk])
    return here


@proven_by(planted(sessions, "sessions_page", lambda page, now, idle_s, chosen: Told({"sessions": [], "next": None}, ())))
def test_sessions_are_listed_as_the_command_line_lists_them(some: Path, desk: Desk, call: Caller) -> None:
    for where in ({}, {"where": "weights.edits > 1"}, {"where": "weights.edits > 9"}):
        flags = [each for key, value in where.items() for each in (f"--{key}", value)]
        document = said(ask(desk, "sessions_list", **where))
        expected = call("list", *flags, "--json").document()
        # Whether a session is open is a matter of now, which is not the command line's here.
        assert [{**each, "state": ""} for each in document["sessions"]] == [{**each, "state": ""} for each in expected["sessions"]]
        assert document["next"] is None
    assert ask(desk, "sessions_list", where="weights.edits > 9").text == "no session"


def test_a_session_is_shown_as_the_command_line_shows_it(some: Path, desk: Desk, call: Caller) -> None:
    for session in ("session-1", "session-", "a/b ö?#&"):
        answer = ask(desk, "session_get", session=session)
        expected = call("show", session, "--json").document()
        document = said(answer)
        assert (document["events"], document["first"], document["total"]) == (expected["events"], expected["first"], expected["total"])
        assert document["session"]["stats"] == expected["session"]["stats"]
        lines, spoken = shown(answer.text).splitlines(), call("show", session).out.splitlines()
        # The first two lines say how long ago something came.
        assert lines[2:] == spoken[2:]
        assert answer.text.isprintable() or set(answer.text) - set("\n\t") == {each for each in answer.text if each.isprintable()}
    document = said(ask(desk, "session_get", session="session-1"))
    assert {event["payload"].get("changed") for event in document["events"]} == {1, "9007199254740993", None}
    assert document["uri"] == "countermark://sessions/session-1"
    assert said(ask(desk, "session_get", session="a/b ö?#&"))["uri"] == "countermark://sessions/a%2Fb%20%C3%B6%3F%23%26"


def test_words_are_found_as_the_command_line_finds_them(some: Path, desk: Desk, call: Caller) -> None:
    for words in ("layers", "hello world", "nothing has this"):
        answer = ask(desk, "search", text=words)
        assert said(answer)["events"] == call("search", words, "--json").document()["events"]
        assert shown(answer.text) == printed(call("search", words).out)


@proven_by(planted(runs, "replayed_document", lambda found: {"run": found.record.run_id}))
def test_a_run_is_told_by_its_last_look_which_is_left_as_it_is(here: Path, call: Caller) -> None:
    write_recipe(here)
    assert call("run", "recipe.toml", "--", "sh", "-c", "echo working").code == 1
    run = call("runs", "--json").document()["runs"][0]["run"]
    desk = desk_of(here)
    answer = ask(desk, "runs_list")
    assert said(answer)["runs"] == call("runs", "--json").document()["runs"]
    assert shown(answer.text) == call("runs").out
    sweep = call("evidence", run, "--json").document()["sweep"]["id"]
    answer = ask(desk, "run_status", run=run[:8])
    assert said(answer) == call("reconcile", run, "--from-sweep", sweep, "--json").document()
    assert call("reconcile", run, "--from-sweep", sweep).out.startswith(answer.text)
    # Nothing was looked at for it.
    assert call("evidence", run, "--json").document()["sweep"]["id"] == sweep
    assert codes(ask(desk, "run_status", run="0123456789")) == ["NothingNamed"]
    assert codes(ask(desk, "runs_list", where="nothing = 1")) == call("runs", "--where", "nothing = 1", "--json").codes()


def test_a_run_that_nobody_looked_at_has_no_verdict(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    write_recipe(here)
    call("run", "recipe.toml", "--", "true")
    run = call("runs", "--json").document()["runs"][0]["run"]
    monkeypatch.setattr("countermark.store.base.SqlStore.latest_sweep", lambda self, run_id: None)
    answer = ask(desk_of(here), "run_status", run=run)
    assert said(answer)["verdict"] is None
    assert answer.text.splitlines()[1:] == [f"nobody has looked at this run yet: countermark reconcile {run[:8]}"]


def test_checkpoints_are_inspected_as_the_command_line_does(here: Path, desk: Desk, call: Caller) -> None:
    for step in (1, 2, 3):
        folder = here / "outputs" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        write_safetensors(folder / "model.safetensors", {"w": b"\0\0\0\0"})
    answer = ask(desk, "checkpoint_inspect", paths=["outputs"])
    expected = call("checkpoint", "inspect", str(here / "outputs"), "--json").document()
    document = said(answer)
    assert {key: document[key] for key in ("checkpoints", "folders", "defects")} == {
        key: expected[key] for key in ("checkpoints", "folders", "defects")
    }
    assert (document["ok"], document["total"], answer.is_error) == (False, 3, False)
    one = ask(desk, "checkpoint_inspect", paths=["outputs"], step=2)
    assert said(one)["path"] == str(here / "outputs" / "checkpoint-2")
    assert one.text.startswith(call("checkpoint", "inspect", str(here / "outputs" / "checkpoint-2")).out.rstrip("\n"))
    assert codes(ask(desk, "checkpoint_inspect", paths=["outputs"], run="recipe.toml")) == ["ParameterUnfit"]


def test_weights_are_compared_as_the_command_line_does(here: Path, desk: Desk, call: Caller) -> None:
    write_safetensors(here / "a.safetensors", dict.fromkeys("uvw", b"\x00\x00\x00\x00"))
    write_safetensors(here / "b.safetensors", {"u": b"\0\0\0\0", "v": b"\0\0\x80\x3f", "w\x1b[2J": b"\0\0\x80\x3f"})
    paths = [str(here / f"{side}.safetensors") for side in "ab"]
    expected = call("weights", "diff", *paths, "--json", "--fresh").document()
    answer = ask(desk, "weights_diff", a="a.safetensors", b="b.safetensors", equal=True)
    document = said(answer)
    for key in ("a", "b", "roots", "totals", "tensors", "complete", "prefixes"):
        assert document[key] == expected[key], key
    assert shown(answer.text) == printed(call("weights", "diff", *paths, "--all", "--fresh").out)
    changed = said(ask(desk, "weights_diff", a="a.safetensors", b="b.safetensors"))
    assert changed["tensors"] == [each for each in expected["tensors"] if each["status"] != "equal"]
    assert changed["totals"] == expected["totals"]


@pytest.mark.parametrize(
    ("tool", "given", "expected"),
    [
        ("sessions_list", {"where": "edits >"}, ["FilterUnexpected"]),
        ("session_get", {}, ["ParameterUnfit"]),
        ("session_get", {"session": "nobody-has-it"}, ["SessionUnknown"]),
        ("session_get", {"session": "short"}, ["SessionPrefixShort"]),
        ("session_get", {"session": 7, "limit": 0, "cursor": "", "more": [1]}, ["ParameterUnfit"] * 4),
        ("sessions_list", {"limit": True}, ["ParameterUnfit"]),
        ("sessions_list", {"limit": 201}, ["ParameterUnfit"]),
        ("search", {"text": "x" * 1_001}, ["ParameterUnfit"]),
        ("search", {"text": "x" * 4_001}, ["ParameterUnfit"]),
        ("checkpoint_inspect", {"paths": []}, ["ParameterUnfit"]),
        ("checkpoint_inspect", {"paths": ["x"] * 21, "step": -1}, ["ParameterUnfit"] * 2),
        ("checkpoint_inspect", {"paths": ["gone"]}, ["CheckpointAbsent"]),
        ("weights_diff", {"a": "gone", "b": "gone", "partial": "yes"}, ["ParameterUnfit"]),
    ],
)
def test_what_is_wrong_with_a_call_is_told_whole(some: Path, desk: Desk, tool: str, given: dict[str, Any], expected: list[str]) -> None:
    answer = ask(desk, tool, **given)
    assert (answer.document["ok"], codes(answer)) == (False, expected)
    assert answer.text.count("\n  → ") + answer.text.startswith("  → ") == len(expected)


def test_null_is_as_if_it_was_not_said(some: Path, desk: Desk) -> None:
    assert said(ask(desk, "sessions_list", where=None, cursor=None)) == said(ask(desk, "sessions_list"))


def test_a_store_that_is_missing_is_told_and_not_made(here: Path, desk: Desk) -> None:
    for tool, given in (("sessions_list", {}), ("session_get", {"session": "session-1"}), ("search", {"text": "x"}), ("runs_list", {})):
        answer = ask(desk, tool, **given)
        assert (answer.is_error, codes(answer)) == (True, ["EnvironmentFault"])
        assert answer.text.endswith("→ go to the project's folder, or create one: countermark store init")
    assert list(here.iterdir()) == []


def test_a_store_of_another_version_or_none_at_all_is_told_and_left(some: Path, desk: Desk) -> None:
    file = some / ".countermark" / "sessions.sqlite"
    with sqlite3.connect(file) as raw:
        raw.execute("UPDATE schema_versions SET version = version + 98")
    raw.close()
    assert codes(ask(desk, "sessions_list")) == ["EnvironmentFault"]
    for each in file.parent.glob("sessions.sqlite*"):
        each.unlink()
    file.write_bytes(b"this is no database, whatever its name says" * 100)
    before = file.read_bytes()
    assert codes(ask(desk, "sessions_list")) == ["EnvironmentFault"]
    assert file.read_bytes() == before


def test_a_fault_of_this_program_tells_its_kind_alone(some: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def broken(*args: object) -> None:
        raise KeyError("what nobody is to read")

    monkeypatch.setattr(sessions, "list_sessions", broken)
    answer = ask(desk, "sessions_list")
    assert codes(answer) == ["ServerFault"]
    told = json.dumps(answer.document) + answer.text + "".join(capsys.readouterr())
    assert "what nobody is to read" not in told and "Traceback" not in told
    for error in (StoreError(NotAStore("there", "why")), PermissionError(13, "Permission denied", "/a/place")):

        def failing(*args: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(sessions, "list_sessions", failing)
        assert codes(ask(desk, "sessions_list")) == ["EnvironmentFault"]


@proven_by(planted(answering, "bounded", lambda document: dict(document)))
def test_no_token_of_ours_and_no_half_of_a_character_leaves(here: Path, desk: Desk) -> None:
    token = "cmk_" + "abcdefghijklmnopqrstuvwxyz012345"
    # Whoever writes past the server stores what it would have replaced.
    store_events(here, [edit(1, session=f"s-{token}", payload={"note": f"n {token}", "tensor": token})])
    for tool, given in (("sessions_list", {}), ("session_get", {"session": f"s-{token}"}), ("search", {"text": "n"})):
        answer = ask(desk, tool, **given)
        assert token not in json.dumps(said(answer)) + answer.text, tool
    write_safetensors(here / "a.safetensors", {"w": b"\0\0\0\0"})
    write_safetensors(here / "b.safetensors", {"\ud83e": b"\0\0\0\0"})
    answer = ask(desk, "weights_diff", a="a.safetensors", b="b.safetensors")
    json.dumps(answer.document, ensure_ascii=False).encode()
    answer.text.encode()
