"""A small share of ``make torture``: the product keeps its promise in a storm, and every mutant breaks it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from countermark.files import procfs
from countermark.run.claims import SnapshotStale
from tests.faults import planted, proven_by
from tests.postgres import binaries, runs, without_postgresql
from tests.simulation.checker import CallRepeated, check
from tests.simulation.history import read
from tests.torture.controller import Controller, Watched
from tests.torture.database import database
from tests.torture.mutants import MUTANTS
from tests.torture.scene import RACE, Scene
from tests.torture.tally import Count, Figures

ROOT: Final = Path(__file__).parents[2]
DOUBLING: Final = tuple(name for name, mutant in MUTANTS.items() if not mutant.held_by)
#: What each ledger must see red itself; the others are wrong beside it, and are seen over both in ``make torture``.
LEDGER_MUTANTS: Final = ("key on the attempt", "launch first")
LEDGERS: Final = ("sqlite", "postgresql")
SEED: Final = 20260


def begin(*options: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.torture", "--quiet", "--seed", str(SEED), *map(str, options)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def storm(folder: Path, ledger: str, *options: object) -> dict[str, Any]:
    """The figures of one storm, which are printed, too."""
    if ledger == "postgresql" and binaries() is None:
        without_postgresql()
    process = begin("--json", folder / "figures.json", "--ledger", ledger, *options)
    try:
        said, _ = process.communicate(timeout=400)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
    print(said)
    assert (folder / "figures.json").exists() and "\nnot covered:\n" in said, said
    (figures,) = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    return dict(figures)


@pytest.mark.parametrize("ledger", LEDGERS)
def test_nothing_is_started_twice_in_a_storm(tmp_path: Path, ledger: str) -> None:
    """The server of the shared ledger crashes twice meanwhile."""
    figures = storm(tmp_path, ledger, "--launches", 35, "--kills", 25, "--mutant", "", "--restarts", 2)
    assert figures["findings"] == []
    assert figures["restarts"] == (2 if ledger == "postgresql" else 0)
    assert (figures["doubled"], figures["broken_off"]) == (0, False)
    assert figures["launches"] >= 35 and sum(figures["kills"].values()) >= 25 and figures["stops"] > 0
    # Whether a kill finds a child before or after it became the trainer is chance, and 25 kills are too few to see both each time.
    struck = {point.split(" ")[0] for point in figures["kills"]}
    assert struck >= {"controller", "supervisor"} and struck & {"child", "trainer"}
    assert set(figures["verdicts"]) <= {"Converged", "Cancelled", "SeveralCandidates", "Blocked"} and figures["verdicts"]["Converged"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("weather", "ledger"), [("race", "sqlite"), ("race", "postgresql"), ("sleepers", "sqlite")])
def test_nothing_is_started_twice_in_the_weather_in_which_mutants_double(tmp_path: Path, weather: str, ledger: str) -> None:
    """The other half of each pair below: what doubles there does not here."""
    figures = storm(tmp_path, ledger, "--restarts", 0, "--launches", 12, "--kills", 0, "--mutant", "", "--weather", weather)
    assert (figures["doubled"], figures["findings"]) == (0, [])
    assert figures["launches"] >= 12
    assert figures["answers"]["already"] > 0 if weather == "race" else figures["stops"] > 0


@pytest.mark.slow
def test_nothing_is_started_twice_while_persons_decide_and_clocks_step(tmp_path: Path) -> None:
    figures = storm(tmp_path, "sqlite", "--launches", 60, "--mutant", "none, but persons decide and clocks step")
    assert (figures["doubled"], figures["findings"], figures["broken_off"]) == (0, [], False)
    assert figures["launches"] >= 60 and sum(figures["decisions"].values()) > 0


@pytest.mark.parametrize(
    ("mutant", "ledger"), [*((name, "sqlite") for name in DOUBLING), *((name, "postgresql") for name in LEDGER_MUTANTS)]
)
def test_a_mutant_doubles(tmp_path: Path, mutant: str, ledger: str) -> None:
    figures = storm(tmp_path, ledger, "--launches", 60, "--kills", 0, "--mutant", mutant)
    assert figures["doubled"] > 0


@pytest.mark.slow
def test_the_start_receipt_is_not_the_only_guard(tmp_path: Path) -> None:
    """Taken away alone it is missed by nobody: the process receipt is exclusive, too, and written under the lock."""
    figures = storm(tmp_path, "sqlite", "--launches", 8, "--kills", 0, "--mutant", "start receipt not exclusive")
    assert figures["doubled"] == 0


def interrupted(process: "subprocess.Popen[str]") -> str:
    """Press Ctrl-C as a person does: once more where nothing happens. (Python drops one that comes while it prepares a fork.)"""
    for _ in range(6):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=15)[0]
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    raise AssertionError("six interrupts end nothing")


@pytest.mark.slow
def test_an_interrupt_says_what_was_done_and_leaves_no_process(tmp_path: Path) -> None:
    process = begin("--launches", 100_000, "--ledger", "sqlite", "--mutant", "", "--json", tmp_path / "figures.json")
    deadline = time.monotonic() + 60
    below: tuple[procfs.ProcessStat, ...] = ()
    while time.monotonic() < deadline and len(below) < 8:
        time.sleep(0.1)
        below = procfs.descendants(process.pid, procfs.processes())
    said = interrupted(process)
    assert process.returncode == 1 and "broken off" in said and "doubles: 0" in said, said
    named = {(row.pid, row.start_ticks) for row in below}
    assert len(named) >= 8
    assert [row for row in procfs.processes() if (row.pid, row.start_ticks) in named and not row.ended] == []
    assert f"seed {SEED}" in said
    (figures,) = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert figures["broken_off"] is True


@pytest.mark.slow
def test_what_was_brought_to_its_end_is_kept_and_the_rest_is_done_with_the_same_seed(tmp_path: Path) -> None:
    whole = ("--launches", 2, "--kills", 0, "--weather", "race", "--mutant", "", "--json", tmp_path / "figures.json", "--ledger", "sqlite")
    first, _ = begin(*whole).communicate(timeout=120)
    assert "(kept)" not in first
    again, _ = begin(*whole, "--mutant", "launch first", "--resume", "--seed", 1).communicate(timeout=120)
    assert "(kept)" in again and f"seed {SEED}\n" in again and "seed 1\n" not in again
    done = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert [(figures["mutant"], figures["seed"]) for figures in done] == [("", SEED), ("launch first", SEED)]


@pytest.mark.slow
def test_a_storms_server_is_out_of_its_reach_and_ends_with_it() -> None:
    if binaries() is None:
        without_postgresql()
    with database() as held:
        folder = Path(held.url().partition("?host=")[2].replace("%2F", "/"))
        before = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        held.restart()
        after = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        below = {row.pid for row in procfs.descendants(os.getpid(), procfs.processes())}
        assert (before == after, runs(before), runs(after), after in below) == (False, False, True, False)
    assert (runs(after), folder.exists()) == (False, False)


@pytest.mark.slow
def test_two_lives_under_one_pid_are_two_in_the_history(tmp_path: Path) -> None:
    """In a storm of half an hour pids come back."""
    scene = Scene(tmp_path, SEED, replace(RACE, meeting=0))
    transition = SimpleNamespace(slot=lambda: SimpleNamespace(hex="5" * 64))
    store = SimpleNamespace(claim_start=lambda *arguments: SnapshotStale(4))
    for life in (1, 2):
        watched = Watched(store, Controller(scene, scene.chance(life), life))
        for candidate in ("a", "b"):
            watched.claim_start("run", 3, transition, SimpleNamespace(nonce=SimpleNamespace(hex=candidate)), 0)
    seen = tuple(read(scene.history))
    assert len(seen) == 8 and not [each for each in check(seen) if isinstance(each, CallRepeated)]


def lines(*words: str) -> Count:
    count = Count()
    for word in words:
        count.take(word)
    return count


def test_each_kind_of_double_is_counted_and_a_clean_count_has_none() -> None:
    clean = ("began r0 a1 10 1 honest", "began r0 a2 11 2 slow", "began r1 b1 12 3 exit 1")
    known = {"a1": "", "a2": "a1", "b1": ""}
    assert sum(lines(*clean).doubles(known).values()) == 0
    breaks = {
        "attempts executed twice": lines(*clean, "began r0 a1 13 4 honest").doubles(known),
        "trainers beside a live one of their run": lines(*clean, "overlap r0 a2").doubles(known),
        "trainers behind a fence": lines(*clean, "fenced r0 a1").doubles(known),
        "trainers without a claim": lines(*clean).doubles({"a1": "", "a2": "a1"}),
        "trainers after their successor": lines(*clean).doubles(known | {"a1": "a2", "a2": ""}),
    }
    assert {name: {kind for kind, number in found.items() if number} for name, found in breaks.items()} == {name: {name} for name in breaks}
    assert Figures("SQLite", "", 1, doubles=breaks["attempts executed twice"]).doubled == 1


def nobody_counts_kills_by_point() -> AbstractContextManager[object]:
    honest = Figures.lines
    return planted(Figures, "lines", lambda self: [line for line in honest(self) if not line.startswith("    controller ")])()


@proven_by(nobody_counts_kills_by_point)
def test_launches_kills_by_point_and_doubles_are_printed() -> None:
    kills = Counter({"controller after claim_start": 2, "supervisor after forked": 3})
    doubles = Counter({"attempts executed twice": 1})
    told = "\n".join(Figures("SQLite", "key on the attempt", 7, launches=11, kills=kills, doubles=doubles).lines())
    for line in (
        "SQLite, mutant: key on the attempt (seed 7,",
        "launches, counted by the trainers: 11",
        "doubles: 1 (attempts executed twice 1)",
        "kills: 5;",
        "    controller after claim_start: 2\n    supervisor after forked: 3",
    ):
        assert line in told, told
