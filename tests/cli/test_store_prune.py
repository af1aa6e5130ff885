"""Sessions that are too old, from the command line: what would go first, and only --yes takes it out."""

import time
from pathlib import Path

from countermark.store.sessions.sqlite import SqliteSessions
from tests.cli.called import Caller
from tests.store.sessions.examples import DAY, edit, event


def filled(here: Path) -> None:
    now_ns = time.time_ns()
    with SqliteSessions.open(here / ".countermark", create=True) as store:
        store.hold_sink("otlp", "me", 0, 1)
        store.ingest([event("e-1", session="s-old", received_ns=now_ns - 40 * DAY), event("e-2", session="s-new", received_ns=now_ns)])
        store.ingest([edit("e-3", "w", session="s-owed", received_ns=now_ns - 40 * DAY)])


def sessions(call: Caller) -> list[str]:
    return sorted(each["id"] for each in call("list", "--json").document()["sessions"])


def test_only_yes_takes_out_what_was_shown(here: Path, call: Caller) -> None:
    filled(here)
    shown = call("store", "prune", "--keep-days", "30")
    assert shown.code == 0 and "1 session with 1 event, in which nothing happened since " in shown.out
    assert [line.split("\t")[::3] for line in shown.out.splitlines()[1:3]] == [["s-old", "would go"], ["s-owed", "stays for otlp"]]
    assert shown.out.splitlines()[-1] == "1 older session stays: otlp has not sent everything of them yet"
    dry = call("store", "prune", "--keep-days", "30", "--yes", "--dry-run", "--json").document()
    assert (dry["dryRun"], dry["keepDays"], dry["sessions"], dry["events"]) == (True, 30, 1, 1)
    assert (dry["unsent"], [each["session"] for each in dry["outdated"]]) == ([{"sink": "otlp", "sessions": 1}], ["s-old", "s-owed"])
    assert sessions(call) == ["s-new", "s-old", "s-owed"]
    assert call("store", "prune", "--keep-days", "30", "--yes").out.splitlines()[-2].endswith(", went")
    assert sessions(call) == ["s-new", "s-owed"]
    assert call("store", "prune", "--keep-days", "30", "--yes", "--unsent", "--json").document()["sessions"] == 1
    assert (sessions(call), call("store", "check").code) == (["s-new"], 0)


def test_the_setting_says_for_how_long_where_the_call_does_not(here: Path, call: Caller) -> None:
    filled(here)
    asked = call("store", "prune", "--yes", "--json")
    assert (asked.code, asked.codes(), sessions(call)) == (2, ["WrongUsage"], ["s-new", "s-old", "s-owed"])
    (here / "countermark.toml").write_text("[session]\nkeep_days = 30\n")
    assert call("store", "prune", "--yes", "--json").document()["sessions"] == 1
    assert call("store", "prune", "--keep-days", "50", "--unsent", "--json").document()["sessions"] == 0


def test_without_sessions_there_is_nothing_to_take_out(here: Path, call: Caller) -> None:
    assert call("store", "prune", "--keep-days", "30", "--json").code == 3
