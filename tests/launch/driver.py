"""A supervisor that dies, freezes or is broken on purpose; started as a program by the launcher under test.

The product has no switch for this: its steps take a hook, and this program hands one in. ``--plant`` puts a known fault into this process
before the supervisor starts, so that a control over real processes can be shown to fail.
"""

import argparse
import errno
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from countermark.files import durable
from countermark.launch import log, patience, supervisor, trainer
from countermark.launch.steps import SUPERVISOR_STEPS, SupervisorStep
from countermark.wire.receipts import Failed, Succeeded


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_parent() -> None:
    os.kill(os.getppid(), signal.SIGKILL)


def kill_both() -> None:
    kill_parent()
    kill_self()


def freeze_self() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def kill_parent_and_freeze() -> None:
    kill_parent()
    freeze_self()


def nothing() -> None:
    return


ACTS: dict[str, Callable[[], None]] = {
    act.__name__: act for act in (kill_self, kill_parent, kill_both, freeze_self, kill_parent_and_freeze)
}


def start_is_not_exclusive() -> None:
    def write_new(path: Path, data: bytes) -> None:
        (durable.replace if path.name == "start.json" else create)(path, data)

    create = durable.write_new
    _put(durable, "write_new", write_new)


def fence_is_not_checked() -> None:
    seen = trainer.present
    _put(trainer, "present", lambda folder, name: name != "fenced" and seen(folder, name))
    _put(supervisor, "present", lambda folder, name: name != "fenced" and seen(folder, name))


def stop_is_not_seen() -> None:
    seen = supervisor.present
    _put(supervisor, "present", lambda folder, name: name != "stop.json" and seen(folder, name))


def process_is_not_exclusive() -> None:
    def write_new(path: Path, data: bytes) -> None:
        (durable.replace if path.name == "process.json" else create)(path, data)

    create = durable.write_new
    _put(durable, "write_new", write_new)


def receipts_are_looked_for_first() -> None:
    """Look whether the receipt is there, and then put it there: what lies between is another's chance."""

    def write_new(path: Path, data: bytes) -> None:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        time.sleep(0.15)
        durable.replace(path, data)

    _put(durable, "write_new", write_new)


def lock_is_not_inherited() -> None:
    _put(trainer.os, "set_inheritable", lambda descriptor, inheritable: None)


def lock_is_not_taken() -> None:
    _put(trainer.locks, "take_lock", lambda descriptor: True)


def lock_is_not_waited_for() -> None:
    _put(trainer, "_LOCK_WAIT_S", -1.0)


def no_subreaper() -> None:
    # The number of PR_GET_KEEPCAPS, which does nothing and succeeds.
    _put(supervisor, "_PR_SET_CHILD_SUBREAPER", 7)


def no_kill_after_grace() -> None:
    _put(supervisor.signal, "SIGKILL", signal.SIGCONT)


def log_is_not_bounded() -> None:
    _put(log.BoundedLog, "bound", lambda self: None)


def nothing_is_tried_again() -> None:
    _put(patience, "PASSING", frozenset[int]())


def own_receipt_is_anothers() -> None:
    _put(patience, "read_bounded", lambda path, bytes_max: None)


def signals_stay_ignored() -> None:
    _put(trainer.signal, "valid_signals", lambda: set[signal.Signals]())


def every_end_is_a_success() -> None:
    _put(supervisor, "outcome_of", lambda main, stopped: Succeeded())


def every_end_is_a_failure() -> None:
    _put(supervisor, "outcome_of", lambda main, stopped: Failed(1))


def receipts_are_just_written() -> None:
    _put(durable, "write_new", _noting().just_written)


def folders_are_not_synced() -> None:
    _put(durable, "sync_folder", lambda path: None)


def outputs_are_one() -> None:
    """Every attempt is told the same place for its output."""
    environment = trainer.command_environment

    def told(folder: Path, *asked: Any) -> dict[str, str]:
        return {**environment(folder, *asked), "COUNTERMARK_OUTPUT": str(folder.parent / "output")}

    _put(trainer, "command_environment", told)


def nothing_happens_at_steps() -> None:
    ACTS.update(dict.fromkeys(ACTS, nothing))


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__: fault
    for fault in (
        start_is_not_exclusive,
        process_is_not_exclusive,
        receipts_are_looked_for_first,
        fence_is_not_checked,
        stop_is_not_seen,
        lock_is_not_inherited,
        lock_is_not_taken,
        lock_is_not_waited_for,
        no_subreaper,
        no_kill_after_grace,
        log_is_not_bounded,
        nothing_is_tried_again,
        own_receipt_is_anothers,
        signals_stay_ignored,
        every_end_is_a_success,
        every_end_is_a_failure,
        receipts_are_just_written,
        folders_are_not_synced,
        outputs_are_one,
        nothing_happens_at_steps,
    )
}


def _noting() -> Any:
    """``tests.launch.noting``, from a program that has nothing of the tests on its path."""
    sys.path.append(str(Path(__file__).parents[2]))
    return importlib.import_module("tests.launch.noting")


def _put(target: Any, attribute: str, replacement: object) -> None:
    getattr(target, attribute)
    setattr(target, attribute, replacement)


def fill_disk(name: str, times: int, *, late: bool) -> None:
    """The first ``times`` writes of a receipt find no space on the disk; ``late``: none to confirm the name that they gave it."""
    write = durable.write_new
    left = [times]

    def write_new(path: Path, data: bytes) -> None:
        if path.name == name and left[0] > 0:
            left[0] -= 1
            if late:
                write(path, data)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, data)

    _put(durable, "write_new", write_new)


#: Whom an act kills where it is done by the supervisor, and where by its child.
VICTIMS: dict[str, tuple[str, str]] = {
    "kill_self": ("supervisor", "child before exec"),
    "kill_parent": ("", "supervisor"),
    "kill_both": ("", "supervisor and child before exec"),
}
CHILD_STEPS: tuple[SupervisorStep, ...] = ("child begun", "locked", "process written", "fence checked")


def say_who_dies(history: str, step: SupervisorStep, act: str) -> None:
    """A line in a storm's history (``tests.simulation.history``), written before the act: nobody can say it after."""
    victims = VICTIMS.get(act, ("", ""))[step in CHILD_STEPS]
    lines = [json.dumps({"event": "killed", "what": what, "point": f"after {step}"}) + "\n" for what in victims.split(" and ") if what]
    descriptor = os.open(history, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, "".join(lines).encode())
    os.close(descriptor)


def meet(place: Path, count: int) -> None:
    """Wait until ``count`` supervisors are there, so that they begin together however a busy machine starts them; half a minute at most."""
    place.mkdir(exist_ok=True)
    (place / str(os.getpid())).touch()
    deadline = time.monotonic() + 30
    while len(os.listdir(place)) < count and time.monotonic() < deadline:
        time.sleep(0.005)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at", choices=SUPERVISOR_STEPS)
    parser.add_argument("--act", choices=tuple(ACTS), default="kill_self")
    parser.add_argument("--plant", choices=tuple(FAULTS), action="append", default=[])
    parser.add_argument("--full", metavar="RECEIPT")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--meet", type=int, default=0, metavar="COUNT")
    parser.add_argument("--history")
    parser.add_argument("--note", type=Path, metavar="FILE")
    options, rest = parser.parse_known_args()
    for name in options.plant:
        FAULTS[name]()
    if options.note:
        for name, call in _noting().noting(options.note).items():
            _put(os, name, call)
    if options.full:
        _put(supervisor, "_START_WAIT_S", 1.0)
        fill_disk(options.full, options.times, late=options.late)

    if options.meet:
        meet(Path(rest[-1]).parent.parent / "meeting", options.meet)

    def after(step: SupervisorStep) -> None:
        if step == options.at:
            if options.history:
                say_who_dies(options.history, step, options.act)
            ACTS[options.act]()

    return supervisor.main(rest, after)


if __name__ == "__main__":
    sys.exit(main())
