"""Claims per second, against the same statements run bare: ``python bench/claims.py [--quick] [--keep] [--only KIND] [--dbos FOLDER]``.

Ours is ``Store.claim_start``, called by controllers that have loaded their runs before, as controllers do. Bare is what the drivers
(``sqlite3``, ``psycopg``) were given by one such call, statement by statement and value by value as heard at the driver, with another run's
values put in beforehand, under the same settings of the connection and, on SQLite, the same ticket; nothing is derived, checked or decided.
The two take turns in the same processes and threads, with as many connections each, on the same data in one run; a turn of either kind
before is not counted. On PostgreSQL 8 connections are 8 processes, 32 are 8 processes of 4 threads. Beside them stands DBOS's
``start_workflow`` with an id of the caller's, by 8 processes on the same server (``bench/peer_dbos.py``).
"""

import argparse
import json
import multiprocessing
import os
import queue
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from bench.ground import EXAMPLE, filled, first_of, ground  # noqa: E402
from bench.heard import Heard, bare_runner, hearing  # noqa: E402
from bench.report import Report  # noqa: E402
from countermark.run.attempts import AttemptKey, Nonce  # noqa: E402
from countermark.run.claims import Committed, Transition  # noqa: E402
from countermark.run.records import RunRecord  # noqa: E402
from countermark.store import Store  # noqa: E402
from countermark.store.opening import open_store  # noqa: E402

#: The peer, as pip is asked for it; it lives in an environment of its own, which this names.
DBOS: Final = "dbos==3.4.0"
DBOS_FOLDER: Final = "COUNTERMARK_BENCH_DBOS"


@dataclass(frozen=True)
class Plan:
    """How many processes of how many threads, how often, and how many claims each thread makes in a round of either kind."""

    processes: int
    threads: int
    rounds: int
    claims: int

    def requests(self, process: int, thread: int, turn: str) -> list[str]:
        """The runs that a thread claims in one turn: nobody else's."""
        return [f"{turn}-{process}-{thread}-{number}" for number in range(self.claims)]

    def turns(self) -> list[tuple[str, str]]:
        """The turns of ours and of the bare statements, each kind first every second time; those of round 0 are not counted."""
        pairs = [[("ours", f"ours{at}"), ("bare", f"bare{at}")] for at in range(self.rounds + 1)]
        return [turn for at, pair in enumerate(pairs) for turn in (pair if at % 2 else pair[::-1])]

    def everything(self) -> list[str]:
        return [
            request
            for _, turn in self.turns()
            for process in range(self.processes)
            for thread in range(self.threads)
            for request in self.requests(process, thread, turn)
        ]


def new_attempt() -> AttemptKey:
    return AttemptKey(EXAMPLE.demand.work, Nonce(secrets.token_hex(16)))


def claim(store: Store, run_id: str, transition: Transition, candidate: AttemptKey) -> None:
    """One claim as a controller makes it on the version that it concluded from."""
    answer = store.claim_start(run_id, 0, transition, candidate, 2_000)
    assert isinstance(answer, Committed), answer


def heard_of(url: str) -> Heard:
    """What the driver is given when one run is claimed by a controller that has loaded it."""
    with hearing() as heard, open_store(url, create=False) as store:
        (run_id,) = filled(store, ["heard"])
        assert isinstance(store.load_run(run_id), RunRecord)
        heard.begin()
        candidate = new_attempt()
        claim(store, run_id, first_of("heard"), candidate)
        return heard.end({"run": run_id, "nonce": candidate.nonce.hex, "slot": first_of("heard").slot().hex})


def work(url: str, heard: Heard, plan: Plan, process: int, meeting: Any, spent: Any) -> None:
    """One process: its threads claim turn by turn and meet before each."""
    store = open_store(url, create=False)
    threads = [threading.Thread(target=_thread, args=(store, url, heard, plan, process, at, meeting, spent)) for at in range(plan.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()


def _thread(*given: Any) -> None:
    """A thread that fails lets nobody wait for it."""
    try:
        _claims(*given)
    except BaseException:
        given[-2].abort()
        raise


def _claims(store: Store, url: str, heard: Heard, plan: Plan, process: int, thread: int, meeting: Any, spent: Any) -> None:
    with bare_runner(url, heard) as bare:
        for kind, turn in plan.turns():
            due = [(first_of(request), new_attempt()) for request in plan.requests(process, thread, turn)]
            given = [(transition.demand.run_id(), transition, candidate) for transition, candidate in due]
            for run_id, _, _ in given:
                assert isinstance(store.load_run(run_id), RunRecord)
            # Of a slot that is asked for before the clock runs, ours has nothing: it is worked out for the bare statements alone.
            values = [{"run": run_id, "nonce": key.nonce.hex, "slot": asked.slot().hex} for run_id, asked, key in given if kind == "bare"]
            sayings = [heard.again(each) for each in values]
            meeting.wait()
            began = time.monotonic()
            if kind == "ours":
                for each in given:
                    claim(store, *each)
            else:
                for saying in sayings:
                    bare(saying)
            spent.put((turn, began, time.monotonic()))
            meeting.wait()


def measured(url: str, heard: Heard, plan: Plan) -> dict[str, list[float]]:
    """Claims per second of each kind, round by round."""
    with open_store(url, create=False) as store:
        filled(store, plan.everything())
    context = multiprocessing.get_context("spawn")
    meeting, spent = context.Barrier(plan.processes * plan.threads), context.Queue()
    processes = [context.Process(target=work, args=(url, heard, plan, at, meeting, spent)) for at in range(plan.processes)]
    for process in processes:
        process.start()
    times: list[tuple[str, float, float]] = []
    while len(times) < len(plan.turns()) * plan.processes * plan.threads:
        try:
            times.append(spent.get(timeout=2))
        except queue.Empty:
            assert any(process.is_alive() for process in processes), "every process ended before its turns were over"
    for process in processes:
        process.join()
        assert process.exitcode == 0, f"a process ended with {process.exitcode}"
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    for kind, turn in plan.turns()[2:]:
        of_turn = [(began, ended) for named, began, ended in times if named == turn]
        elapsed = max(ended for _, ended in of_turn) - min(began for began, _ in of_turn)
        rates[kind].append(len(of_turn) * plan.claims / elapsed)
    return rates


def against_peer(report: Report, ours: float, url: str, folder: Path | None, quick: bool) -> None:
    """Say how many workflows DBOS starts in a second under ids of the caller's, on the same server, by as many processes."""
    if folder is None or not (folder / "bin" / "python").exists():
        report.say(f"  without DBOS: python3 -m venv FOLDER && FOLDER/bin/pip install {DBOS}, then --dbos FOLDER or {DBOS_FOLDER}=FOLDER")
        return
    counts = ["2", "2", "1"] if quick else ["8", "40", "5"]
    command = [str(folder / "bin" / "python"), str(ROOT / "bench" / "peer_dbos.py"), url, *counts]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
    if ran.returncode:
        report.say(f"  DBOS failed: {ran.stderr[-2_000:]}")
        return
    rates = json.loads(ran.stdout.splitlines()[-1])
    report.ratio("PostgreSQL at 8, claims/s", ours, f"{DBOS} start_workflow with an id, starts/s", max(rates), "≥ 1.50×")
    report.say(f"    round by round: {', '.join(f'{rate:,.0f}' for rate in rates)}")


def compared(report: Report, ledger: str, url: str, plan: Plan) -> float:
    """Say how claims compare with their bare statements; our claims per second."""
    heard = heard_of(url)
    rates = measured(url, heard, plan)
    ours, bare = max(rates["ours"]), max(rates["bare"])
    who = f"{ledger}, {plan.processes} × {plan.threads} (processes × threads), {len(heard.statements)} statements a claim"
    report.ratio(f"{who}, claims/s", ours, "the bare statements", bare, "≥ 0.80×")
    middle = statistics.median(rates["ours"]) / statistics.median(rates["bare"])
    report.say(f"    by the round in the middle of each: {middle:.2f}×")
    for kind, each in rates.items():
        report.say(f"    {kind}, round by round: {', '.join(f'{rate:,.0f}' for rate in each)}")
    return ours


def plans(quick: bool) -> Iterator[tuple[str, Plan]]:
    """The ledgers and how many claim at once."""
    rounds, claims = (1, 3) if quick else (5, 1_200)
    for processes in (1, 2) if quick else (1, 4):
        yield "SQLite", Plan(processes, 1, rounds, claims // processes or 1)
    for processes, threads in ((1, 1), (2, 1), (2, 2)) if quick else ((1, 1), (8, 1), (8, 4)):
        yield "PostgreSQL", Plan(processes, threads, rounds, claims // (processes * threads) or 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few claims of each kind: does it run at all?")
    parser.add_argument("--keep", action="store_true", help="write the report under bench/results")
    parser.add_argument("--only", choices=("SQLite", "PostgreSQL"), help="one kind of ledger")
    named = os.environ.get(DBOS_FOLDER)
    parser.add_argument("--dbos", type=Path, default=Path(named) if named else None, help=f"an environment with {DBOS}, else {DBOS_FOLDER}")
    options = parser.parse_args()
    report = Report("claims")
    with tempfile.TemporaryDirectory(prefix="countermark-bench-") as folder, ground(Path(folder), options.only != "SQLite") as made:
        for ledger, plan in plans(options.quick):
            if options.only in (None, ledger):
                rate = compared(report, ledger, made.new(ledger), plan)
                if ledger == "PostgreSQL" and plan.processes > 1 and plan.threads == 1:
                    against_peer(report, rate, made.database(), options.dbos, options.quick)
    if options.keep:
        report.keep()


if __name__ == "__main__":
    main()
