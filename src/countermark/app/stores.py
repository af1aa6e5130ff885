"""Where a store's ledger is: in the store's own folder, or in a database that several hosts share."""

from pathlib import Path


def ledger_of(folder: Path, url: str | None) -> str:
    """The address of the ledger of the store in ``folder``: ``url``, or the folder itself."""
    return f"sqlite:///{folder}" if url is None else url
