"""A process that sends batches and says which were acknowledged: ``python -m tests.store.sessions.writer URL NAME COUNT``."""

import sys
from typing import Final

from countermark.store.opening import open_sessions
from tests.store.sessions.examples import edit

#: Events of one batch.
BATCH: Final = 20


def main(url: str, name: str, count: int) -> None:
    with open_sessions(url, create=True) as store:
        for number in range(count):
            batch = [edit(f"{name}-{number}-{each}", f"w{each}", session=f"s-{name}") for each in range(BATCH)]
            assert len(store.ingest(batch).stored) == BATCH
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
