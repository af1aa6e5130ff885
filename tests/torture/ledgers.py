"""The ledgers over which controllers are tried, and how a process reaches one: SQLite in the store's folder, PostgreSQL by its URL."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from countermark.app.ports import Ports, opened

#: Settings of every controller under test, in seconds.
SETTINGS: Final = {"grace_s": 0.3, "stop_grace_s": 0.2, "poll_s": 0.02}


@contextmanager
def ports_at(folder: Path, url: str = "", *, create: bool = False) -> Iterator[Ports]:
    """The ports of the store in ``folder``, whose ledger is at ``url``, or there too where that is empty. Raises ``StoreError``."""
    with opened(folder, create=create, url=url or None, **SETTINGS) as ports:
        yield ports
