"""DBOS's ``start_workflow`` with an id of the caller's, timed; run by ``bench/claims.py`` with the Python of an environment that has DBOS.

    python bench/peer_dbos.py URL PROCESSES STARTS ROUNDS

Each of the processes launches DBOS over the database and starts workflows with an empty body, one after another, each under an id that was
made before. The id is what a claim's slot is there: a second start under it attaches. Only the starting is timed, and the bodies run in the
background, as DBOS has it. Prints a JSON list: starts per second of all processes together, round by round.
"""

import json
import multiprocessing
import sys
import time
import uuid
from typing import Any


def work(url: str, starts: int, rounds: int, number: int, meeting: Any, spent: Any) -> None:
    """One process."""
    from dbos import DBOS, SetWorkflowID

    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "executor_id": f"bench-{number}",
            "application_version": "1",
            "log_level": "ERROR",
            "run_migrations": number < 0,
        }
    )

    @DBOS.workflow()
    def empty(text: str) -> str:
        return text

    DBOS.launch()
    if number < 0:
        DBOS.destroy()
        return
    with SetWorkflowID(str(uuid.uuid4())):
        DBOS.start_workflow(empty, "warm").get_result()
    for turn in range(rounds):
        names = [str(uuid.uuid4()) for _ in range(starts)]
        meeting.wait()
        began = time.monotonic()
        handles = []
        for name in names:
            with SetWorkflowID(name):
                handles.append(DBOS.start_workflow(empty, name))
        spent.put((turn, began, time.monotonic()))
        for handle, name in zip(handles, names, strict=True):
            assert handle.get_result() == name
        meeting.wait()
    DBOS.destroy()


def main() -> None:
    url, processes, starts, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    context = multiprocessing.get_context("spawn")
    meeting, spent = context.Barrier(processes), context.Queue()
    first = context.Process(target=work, args=(url, 0, 0, -1, None, None))
    first.start()
    first.join()
    everybody = [context.Process(target=work, args=(url, starts, rounds, number, meeting, spent)) for number in range(processes)]
    for process in everybody:
        process.start()
    times = [spent.get(timeout=600) for _ in range(processes * rounds)]
    for process in everybody:
        process.join()
    rates = []
    for turn in range(rounds):
        of_turn = [(began, ended) for at, began, ended in times if at == turn]
        rates.append(processes * starts / (max(ended for _, ended in of_turn) - min(began for began, _ in of_turn)))
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
