"""A trainer without torch that does as it is told: what an honest, a lying, a dying or a careless trainer leaves behind.

    trainer.py PLACE ACTS

``ACTS`` is JSON: one list of acts for each execution, in the order of the executions; the last list stands for all further ones. The
trainer counts its executions in ``PLACE/count`` (one line each: the path that it was told to resume from) and takes checkpoints and the
output from the folders in ``PLACE/fixtures``.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from countermark.evidence.members import Read, Unread
from countermark.files.attempt_folder import read_start
from countermark.files.desired import EFFECTIVE, decode_desired
from countermark.files.durable import replace
from countermark.files.publishing import publish_checkpoint, publish_output
from countermark.recipe import spellings
from countermark.wire.effective import encode_effective

PLACE = Path(sys.argv[1])
ATTEMPT = Path(os.environ["COUNTERMARK_ATTEMPT"])
NONCE = ATTEMPT.name


def begun() -> int:
    """How many executions there were before this one."""
    descriptor = os.open(PLACE / "count", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(descriptor, os.environ["COUNTERMARK_RESUME"].encode() + b"\n")
    lines = (PLACE / "count").read_text(encoding="utf-8").splitlines()
    os.close(descriptor)
    return len(lines) - 1


def desired() -> Any:
    read = decode_desired(Path(os.environ["COUNTERMARK_MANIFEST"]).read_bytes())
    assert hasattr(read, "manifest"), read
    return read


def effective(*lies: str) -> None:
    """The effective manifest; ``coordinate=spelling`` says otherwise, ``coordinate`` alone is left unread."""
    said: dict[str, Read | Unread] = {name: Read(value, "live_object") for name, value in spellings(desired().manifest).items()}
    for lie in lies:
        name, equals, value = lie.partition("=")
        said[name] = Read(value, "live_object") if equals else Unread("the trainer has no such object")
    replace(ATTEMPT / EFFECTIVE, encode_effective(NONCE, said))


def save(step: str) -> None:
    """Publish a checkpoint as a trainer's callback does."""
    wanted = desired()
    published = publish_checkpoint(
        PLACE / "fixtures" / f"checkpoint-{step}",
        ATTEMPT / "checkpoints",
        step=int(step),
        attempt=NONCE,
        work_key=wanted.work_key,
        manifest=spellings(wanted.manifest),
        micro_batches=2 * int(step),
    )
    assert hasattr(published, "identity"), published


def tear(step: str) -> None:
    """A checkpoint that was being copied when the machine went: weights, and nothing else."""
    folder = ATTEMPT / "checkpoints" / f"step-{step}"
    folder.mkdir(parents=True)
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        shutil.copy(PLACE / "fixtures" / f"checkpoint-{step}" / name, folder)


def output(name: str = "output") -> None:
    published = publish_output(PLACE / "fixtures" / name, Path(os.environ["COUNTERMARK_OUTPUT"]))
    assert isinstance(published, Path), published


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_all() -> None:
    """The machine's own killer takes the supervisor too."""
    start = read_start(ATTEMPT)
    assert hasattr(start, "receipt"), start
    os.kill(start.receipt.supervisor.pid, signal.SIGKILL)
    kill()


def hang(seconds: str = "60") -> None:
    """Work on, until somebody says otherwise."""
    (PLACE / "hanging").touch()
    deadline = time.monotonic() + float(seconds)
    while time.monotonic() < deadline and not (PLACE / "go on").exists():
        time.sleep(0.02)


def fork() -> None:
    """The main process ends at once with 0; a descendant goes on."""
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    time.sleep(0.3)


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def leave(code: str) -> None:
    sys.exit(int(code))


ACTS: dict[str, Callable[..., None]] = {
    act.__name__: act for act in (effective, save, tear, output, kill, kill_all, hang, fork, ignore_sigterm, leave)
}


def main() -> None:
    scripts = json.loads(sys.argv[2])
    for words in scripts[min(begun(), len(scripts) - 1)]:
        name, *arguments = words.split(" ")
        ACTS[name](*arguments)


if __name__ == "__main__":
    main()
