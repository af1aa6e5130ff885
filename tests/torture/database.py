"""A PostgreSQL server for a storm, held by a process that no storm can reach: ``database.py DURABLE``, run as a module.

Rules kept here:

1. The server is nobody's descendant that a storm kills: its holder leaves the storm's family before it starts anything.
2. The holder ends, and the server and its folder with it, when the pipe to it closes: whatever becomes of the storm.
3. ``restart`` is a real ``pg_ctl stop -m immediate`` (the server crashes by itself, and recovers) and a start.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import PIPE, Popen
from typing import final

from tests.postgres import binaries, postgres_cluster


@final
@dataclass(frozen=True, slots=True)
class Database:
    """The holder, spoken to by lines."""

    holder: "Popen[str]"

    def _answer(self, word: str) -> str:
        assert self.holder.stdin is not None and self.holder.stdout is not None
        self.holder.stdin.write(f"{word}\n")
        self.holder.stdin.flush()
        answer = self.holder.stdout.readline()
        if not answer:
            raise RuntimeError(f"the holder of the database ended at {word!r}")
        return answer.strip()

    def url(self) -> str:
        """The address of an empty database."""
        return self._answer("url")

    def restart(self) -> None:
        """Crash the server and start it again; whoever is connected is cut off."""
        self._answer("restart")


@contextmanager
def database() -> Iterator[Database]:
    """A server of one's own. Raises ``RuntimeError`` where PostgreSQL is not installed."""
    if binaries() is None:
        raise RuntimeError("PostgreSQL is not installed: apt-get install postgresql-15 (any version from 14 on), or --ledger sqlite")
    # The program forks and its first process ends at once: the second is nobody's child here.
    holder = Popen([sys.executable, "-m", "tests.torture.database"], stdin=PIPE, stdout=PIPE, text=True)
    holder.wait(timeout=60)
    try:
        yield Database(holder)
    finally:
        assert holder.stdin is not None and holder.stdout is not None
        holder.stdin.close()
        holder.stdout.read()
        holder.stdout.close()


def hold() -> None:
    """Serve lines until there are no more."""
    with postgres_cluster() as cluster:
        for line in sys.stdin:
            match line.strip():
                case "restart":
                    cluster.restart("immediate")
                    print("restarted", flush=True)
                case "url":
                    print(cluster.new_database(), flush=True)
                case word:
                    raise ValueError(word)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    # Away from the terminal's interrupts, too: the storm's end is this one's.
    os.setsid()
    hold()
