"""The command line, held by SIGSTOP inside its first transaction of a kind: ``held.py [impatient] FACT FLAG ARGS…``.

``FACT`` is ``claim``, ``intent`` or ``outcome``: its rows are written and not committed. The file ``FLAG`` is made before the stop, so that
a process that is woken, and begins anew, goes on, and a second process is not held. ``impatient``: a database server that went away is not
waited for.
"""

import os
import signal
import sys
from typing import Any, Final

from countermark.app import patience
from countermark.cli.main import main
from countermark.store import ledger

APPENDS: Final = {"claim": "append_claim", "intent": "append_intent", "outcome": "append_outcome"}


def hold(name: str, flag: str) -> None:
    honest = getattr(ledger, name)

    def append(*arguments: Any, **named: Any) -> None:
        honest(*arguments, **named)
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGSTOP)

    setattr(ledger, name, append)


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[0] == "impatient":
        words.pop(0)
        patience.mends_itself = lambda error: False
    fact, where, *args = words
    hold(APPENDS[fact], where)
    sys.exit(main(args))
