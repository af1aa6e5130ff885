"""``reconcile --all`` as a person calls it: what it answers, how much it prints, and what a failing environment leaves them with."""

import io
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from countermark.app import patience, ports
from countermark.cli import every, watching
from countermark.cli.every import Progress
from countermark.store import Store, opening
from countermark.store.failures import ServerUnreachable, StoreError, StoreFull
from countermark.store.sqlite import SqliteStore
from tests.cli.called import Caller
from tests.cli.recipes import write_recipe
from tests.faults import planted, proven_by


def recorded(call: Caller, here: Path, *codes: int) -> list[str]:
    """Runs that were demanded and not started; each command ends with its code."""
    write_recipe(here)
    found = []
    for number, code in enumerate(codes):
        args = ("run", "recipe.toml", "--request", f"r{number}", "--no-wait", "--json", "--", "sh", "-c", f"exit {code}")
        found.append(str(call(*args).document()["run"]))
    return found


def test_every_run_is_watched_to_its_end_with_its_verdict_and_what_is_next(here: Path, call: Caller) -> None:
    runs = recorded(call, here, 3, 4)
    document = call("reconcile", "--all", "--act", "--watch", "--retries", "1", "--json").document()
    assert {each["run"]: each["verdict"] for each in document["runs"]} == dict.fromkeys(runs, "RetryRequired")
    assert document["ok"] is False and {each["code"] for each in document["defects"]} == {"RetriesUsedUp"}
    assert [sum("InfrastructureRetry" in line for line in each["acted"]) for each in document["runs"]] == [1, 1]
    called = call("reconcile", "--all")
    header, *rows, counted = called.out.splitlines()
    assert header == "run\tname\tverdict\tnext" and counted == "2 runs, of which 0 closed now"
    assert {tuple(row.split("\t")[:3]) for row in rows} == {(run[:8], "toy", "RetryRequired") for run in runs}
    assert all(f"countermark attempts {row[:8]}" in row for row in rows)


def test_where_nothing_is_open_that_is_said(here: Path, call: Caller) -> None:
    (run,) = recorded(call, here, 3)
    call("cancel", run)
    for flags in ((), ("--watch",), ("--act", "--watch")):
        assert call("reconcile", "--all", *flags).out == "no run is open\n"
        assert call("reconcile", "--all", *flags, "--json").document()["runs"] == []


def test_a_controller_stays_only_where_there_is_something_to_stay_for(here: Path, call: Caller) -> None:
    for args in (("RUN", "--watch"), ("--all",), ("--all", "--act")):
        called = call("reconcile", *args, "--stay", "--json")
        assert (called.code, called.codes()) == (2, ["WrongUsage"])


def every_call_fails_once(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The opening of a store, and the first call of each kind to it, find it out of reach; gives the names of those that were made."""
    called: set[str] = set()

    def failing(name: str, honest: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            if name not in called:
                called.add(name)
                raise StoreError(ServerUnreachable("here", "it is just starting"))
            return honest(*arguments, **named)

        return call

    for name in dir(Store):
        if not name.startswith("_") and name not in ("location", "close"):
            monkeypatch.setattr(SqliteStore, name, failing(name, getattr(SqliteStore, name)))
    monkeypatch.setattr(opening, "open_store", failing("open_store", opening.open_store))
    monkeypatch.setattr(patience, "_BETWEEN_S", 0.001)
    return called


def the_door_is_not_waited_at() -> AbstractContextManager[object]:
    return planted(ports, "patiently", lambda act, told, patience_s: act())()


@pytest.mark.parametrize("every", [True, False])
@proven_by(the_door_is_not_waited_at)
def test_a_watching_controller_waits_for_a_store_at_every_call_to_it(
    here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch, every: bool
) -> None:
    (run,) = recorded(call, here, 3)
    with monkeypatch.context() as patch:
        called = every_call_fails_once(patch)
        answer = call("reconcile", "--all" if every else run, "--act", "--watch", "--retries", "2")
    expected = {"open_store", "load_run", "claim_start", "record_dispatch_intent", "record_dispatch_outcome", "record_sweep", "look_again"}
    assert called >= expected | ({"take_due", "next_due", "list_runs"} if every else {"find_runs"})
    assert answer.code == 1 and "it is just starting (here): trying again for 60 s\nthe store answers again\n" in answer.err
    assert len(call("attempts", run, "--json").document()["attempts"]) == 3


def test_who_does_not_watch_is_told_at_once(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(call, here, 3)
    every_call_fails_once(monkeypatch)
    assert call("reconcile", "--all").code == 3


def every_run_is_kept() -> AbstractContextManager[object]:
    plain = every._Found.add

    def kept(self: Any, turn: Any) -> None:
        plain(self, turn)
        self.latest[turn.run.run_id] = turn

    return planted(every._Found, "add", kept)()


@proven_by(every_run_is_kept)
def test_a_controller_that_stays_forgets_what_it_closed_and_keeps_what_is_open() -> None:
    """It may stay for months: what it holds must not grow with the runs that came and went."""

    def turn(run: str, closed: bool) -> Any:
        return SimpleNamespace(run=SimpleNamespace(run_id=run), closed=closed, done=(f"saw to {run}",))

    for keeps, left in ((False, {"b" * 32}), (True, {"a" * 32, "b" * 32})):
        found = every._Found(keeps_closed=keeps)
        for each in (turn("a" * 32, False), turn("b" * 32, False), turn("a" * 32, True)):
            found.add(each)
            found.news(each)
        assert (set(found.latest), found.done, found.looks) == (left, 1, 3)


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def each_look_is_a_line() -> AbstractContextManager[object]:
    return planted(every.Progress, "draw", lambda self, line, *rest, **more: sys.stderr.write(line + "\n"))()


@proven_by(each_look_is_a_line)
def test_progress_is_one_line_on_a_terminal_and_nothing_elsewhere(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(call, here, 3, 4, 5)
    acted = [line for line in call("reconcile", "--all", "--act", "--watch", "--retries", "1").err.splitlines() if line.startswith("run ")]
    assert acted and all("claimed" in line or "dispatched" in line for line in acted)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    call("reconcile", "--all", "--act", "--watch", "--retries", "2")
    drawn = screen.getvalue()
    progress = drawn.partition("refused:")[0]
    assert "\n" not in progress and progress.endswith("\r\x1b[K")
    assert "done, 3 left" in progress


def test_a_line_of_progress_is_drawn_again_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    drawing = Progress()
    for number in range(1000):
        drawing.draw(f"{number} done", at_once=number % 500 == 0)
    drawing.act("an act is not told of here")
    drawing.say("the store is waited for")
    drawing.clear()
    assert screen.getvalue() == "\r\x1b[K0 done\r\x1b[K500 done\r\x1b[Kthe store is waited for\n\r\x1b[K"


def nobody_says_which_run() -> AbstractContextManager[object]:
    return planted(watching, "OfRun", lambda error, run: error)()


@proven_by(nobody_says_which_run)
@pytest.mark.parametrize("after", [1, 2])
def test_a_disk_that_fills_up_after_the_start_leaves_the_run_and_how_to_go_on(
    here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """The sweep before the start is recorded, and the ones after it are not."""
    write_recipe(here)
    real = SqliteStore.record_sweep
    sweeps = 0

    def record(self: Any, *arguments: Any) -> Any:
        nonlocal sweeps
        sweeps += 1
        if sweeps > after:
            raise StoreError(StoreFull(str(here)))
        return real(self, *arguments)

    monkeypatch.setattr(SqliteStore, "record_sweep", record)
    called = call("run", "recipe.toml", "--json", "--", "sh", "-c", f"sleep {after}; exit 3")
    assert (called.code, called.codes()) == (3, ["EnvironmentFault"])
    (defect,) = called.document()["defects"]
    (listed,) = call("runs", "--json").document()["runs"]
    name = str(listed["run"])[:8]
    assert (defect["fault"], defect["what"]) == ("StoreFull", "the disk is full")
    assert defect["remedy"].endswith(f"; then go on with run {name}: countermark reconcile {name} --watch")
    monkeypatch.setattr(SqliteStore, "record_sweep", real)
    assert call("reconcile", name, "--watch", "--json").document()["verdict"] == "RetryRequired"
    assert len(call("attempts", name, "--json").document()["attempts"]) == 1
