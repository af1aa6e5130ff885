"""A transaction as a ``with`` block, on either ledger: committed when the block ends without an exception, else undone.

Rules kept here:

1. A commit that fails is undone as well, and its connection is not kept.
2. A failure of the environment, at whatever step, is told as ``StoreError``; mistakes of ours go through as they are.
3. It is one object and no generator for each of its parts: who claims holds the ledger meanwhile.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Generic, TypeVar

from sqlalchemy import Connection

from countermark.store.failures import StoreError
from countermark.store.statements import commit

Given = TypeVar("Given")


class Transaction(ABC, Generic[Given]):
    """What a store does differently at each step is below; ``begin`` sets ``connection``."""

    __slots__ = ("connection",)

    connection: Connection

    @abstractmethod
    def begin(self) -> Given:
        """Begin, and do what comes first; gives what the block is given. What it took it gives back where it fails."""

    @abstractmethod
    def keep(self) -> None:
        """The connection served well: it is kept for the next transaction."""

    @abstractmethod
    def undo(self) -> None:
        """Nothing of it lasts, and the connection is not kept."""

    @abstractmethod
    def translation(self, error: BaseException | None) -> StoreError | None:
        """A failure of the environment as ours; None for mistakes of ours."""

    def __enter__(self) -> Given:
        try:
            return self.begin()
        except Exception as error:
            if (told := self.translation(error)) is None:
                raise
            raise told  # noqa: B904 - the translation says what caused it

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                self._commit()
                return
            self.undo()
        except Exception as failed:
            if (told := self.translation(failed)) is None:
                raise
            raise told  # noqa: B904 - the translation says what caused it
        if (told := self.translation(error)) is not None:
            raise told

    def _commit(self) -> None:
        try:
            commit(self.connection)
        except BaseException:
            self.undo()
            raise
        self.keep()


def itself(connection: Connection) -> Connection:
    """For a transaction in which nothing comes first: its block is given the connection."""
    return connection


@contextmanager
def translated_by(translation: Callable[[BaseException], StoreError | None]) -> Generator[None, None, None]:
    """Turns failures of the environment inside the block into ``StoreError``; mistakes of ours go through as they are."""
    try:
        yield
    except Exception as error:
        if (told := translation(error)) is None:
            raise
        raise told  # noqa: B904 - the translation says what caused it
