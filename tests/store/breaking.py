"""Breaking a store's transaction off at one of its steps: before a statement, before a commit, or behind one, whose answer is then lost.

Rule kept here: what breaks is a call of the driver, and what it raises is a failure or an interrupt, which nothing of ours expects. The
store knows of neither.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, final
from unittest.mock import patch

from sqlalchemy import Connection

from countermark.store import transaction
from countermark.store.statements import Statement


@final
class Failed(Exception):
    """Something between two statements fails."""


@final
class Interrupted(BaseException):
    """As Ctrl-C comes: past everything that handles failures."""


Broke = Failed | Interrupted


@final
class Breaking:
    """Counts the steps of a call, and breaks it off at one of them (the first is 1; 0 breaks nothing)."""

    def __init__(self, at: int, how: type[Broke]) -> None:
        self.at = at
        self.how = how
        self.steps: list[str] = []
        self.committed = 0

    def step(self, name: str) -> None:
        self.steps.append(name)
        if len(self.steps) == self.at:
            raise self.how(name)


@contextmanager
def breaking(at: int, how: type[Broke] = Failed) -> Iterator[Breaking]:
    """While it lasts, the ``at``-th step of any store's call is where it breaks."""
    breaks = Breaking(at, how)
    commit = transaction.commit

    def stepped(name: str, honest: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            breaks.step(name)
            return honest(*arguments, **named)

        return call

    def committing(connection: Connection) -> None:
        breaks.step("before the commit")
        commit(connection)
        breaks.committed += 1
        breaks.step("after the commit")

    with ExitStack() as planted:
        for owner, name in ((Statement, "run"), (Statement, "rows"), (Statement, "together"), (Connection, "execute")):
            planted.enter_context(patch.object(owner, name, stepped("a statement", getattr(owner, name))))
        planted.enter_context(patch.object(transaction, "commit", committing))
        yield breaks
