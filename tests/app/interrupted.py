"""The command line, which gets a signal at a point of its work: ``interrupted.py SIGNAL CLASS.METHOD before|after ARGS…``.

The signal comes when the method is called for the first time, from this process to itself.
"""

import os
import signal
import sys
from typing import Any

from countermark.app import rounds
from countermark.cli.main import main
from countermark.launch.local import LocalLauncher
from countermark.observe.local import LocalObserver
from countermark.store.base import SqlStore

OWNERS: dict[str, Any] = {each.__name__: each for each in (SqlStore, LocalLauncher, LocalObserver, rounds.Rounds)}


def plant(owner: Any, name: str, when: str, number: signal.Signals) -> None:
    real = getattr(owner, name)
    sent = False

    def send() -> None:
        nonlocal sent
        if not sent:
            sent = True
            os.kill(os.getpid(), number)

    def call(*arguments: Any, **options: Any) -> Any:
        if when == "before":
            send()
        answer = real(*arguments, **options)
        if when == "after":
            send()
        return answer

    setattr(owner, name, call)


if __name__ == "__main__":
    number, where, when, *args = sys.argv[1:]
    owner, _, method = where.partition(".")
    plant(OWNERS[owner], method, when, signal.Signals[number])
    sys.exit(main(args))
