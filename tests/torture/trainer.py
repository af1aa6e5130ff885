"""The trainer of a storm: as cheap as a process can be, and the one who counts launches. Runs under ``python -I -S``: no package is there.

    trainer.py PLACE RUN LIFE

Rules kept here:

1. The first thing that it does is to say, by one append each, that it began: in the history, and with its run and its fate in the count.
2. It holds the run's own lock while anything of it lives. A second trainer of the run finds it held and says so: the kernel judges whether
   two live at once, no clock and no order of lines does.
3. What it does then (its fate) follows from the seed and the attempt's name alone; once the storm is over everybody is honest.
4. It lives ``LIFE`` seconds at most, a moment for its acts aside.
"""

import fcntl
import json
import os
import signal
import sys
import time
import zlib

PLACE, RUN, LIFE = sys.argv[1], sys.argv[2], float(sys.argv[3])
ATTEMPT_FOLDER = os.environ["COUNTERMARK_ATTEMPT"]
ATTEMPT = os.path.basename(ATTEMPT_FOLDER)

#: Fates by their share in a hundred; what is left over is honest.
SHARES = {
    "slow": 22,
    "exit 1": 8,
    "killed": 6,
    "killed with its supervisor": 7,
    "leaves a descendant": 5,
    "deaf to SIGTERM": 3,
    "closes descriptors": 4,
    "exit 0 without output": 2,
    "lies": 1,
}


def append(name: str, line: str) -> None:
    descriptor = os.open(os.path.join(PLACE, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, line.encode() + b"\n")
    os.close(descriptor)


def fate() -> str:
    if os.path.exists(os.path.join(PLACE, "calm")):
        return "honest"
    with open(os.path.join(PLACE, "seed"), encoding="ascii") as file:
        drawn = zlib.crc32(f"{file.read()}/{ATTEMPT}".encode()) % 100
    for name, share in SHARES.items():
        if drawn < share:
            return name
        drawn -= share
    return "honest"


def begin(mine: str) -> None:
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        ticks = file.read().rpartition(")")[2].split()[19]
    append("history", json.dumps({"event": "began", "attempt": ATTEMPT, "process": f"{os.getpid()} {ticks}"}))
    append("count", f"began {RUN} {ATTEMPT} {os.getpid()} {ticks} {mine}")
    if os.path.exists(os.path.join(ATTEMPT_FOLDER, "fenced")):
        append("count", f"fenced {RUN} {ATTEMPT}")
    alone = os.open(os.path.join(PLACE, "live", RUN), os.O_RDWR | os.O_CREAT, 0o644)
    os.set_inheritable(alone, True)
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        append("count", f"overlap {RUN} {ATTEMPT}")


def put(source: str, destination: str) -> None:
    """A fixture in its place under a name of its own, whole."""
    with open(os.path.join(PLACE, "fixtures", source), "rb") as file:
        data = file.read().replace(b"0" * 32, ATTEMPT.encode())
    temporary = f"{destination}.{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(data)
    os.rename(temporary, destination)


def publish(effective: str = "effective.json") -> None:
    put(effective, os.path.join(ATTEMPT_FOLDER, "effective.json"))
    making = os.path.join(ATTEMPT_FOLDER, f"making-{os.getpid()}")
    os.mkdir(making)
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        put(os.path.join("output", name), os.path.join(making, name))
    os.rename(making, os.environ["COUNTERMARK_OUTPUT"])


def kill_supervisor() -> None:
    with open(os.path.join(ATTEMPT_FOLDER, "start.json"), encoding="utf-8") as file:
        supervisor = json.load(file)["supervisor"]["pid"]
    if supervisor == os.getppid():
        append("history", json.dumps({"event": "killed", "what": "supervisor", "point": "while its trainer runs"}))
        os.kill(supervisor, signal.SIGKILL)
    append("history", json.dumps({"event": "killed", "what": "trainer", "point": "after its supervisor"}))
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    mine = fate()
    begin(mine)
    if mine == "leaves a descendant" and os.fork() != 0:
        return 0
    if mine == "closes descriptors":
        os.closerange(500, 600)
    if mine == "deaf to SIGTERM":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(LIFE if mine in ("slow", "deaf to SIGTERM", "leaves a descendant") else LIFE / 10)
    if mine == "killed":
        append("history", json.dumps({"event": "killed", "what": "trainer", "point": "by itself"}))
        os.kill(os.getpid(), signal.SIGKILL)
    if mine == "killed with its supervisor":
        kill_supervisor()
    if mine == "exit 1":
        return 1
    if mine != "exit 0 without output":
        publish("lying.json" if mine == "lies" else "effective.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
