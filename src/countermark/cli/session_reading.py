"""What the commands on sessions share: opening the store, finding a session, and the words for what it does not hold."""

import sys
from time import sleep
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, TypeAlias, TypeVar, cast

import typer

from countermark.cli.answers import Answer, give
from countermark.cli.failures import CallRefused, WrongCall
from countermark.values import Refused

if TYPE_CHECKING:
    from countermark.cli.settings import Settings
    from countermark.store.sessions.interface import SessionStore

T = TypeVar("T")

LimitOption: TypeAlias = Annotated[int, typer.Option("--limit", "-n", min=1, max=500, metavar="N", help="So many at most.")]
CursorOption: TypeAlias = Annotated[str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on where a page ended.")]
FollowOption: TypeAlias = Annotated[
    bool, typer.Option("--follow", "-f", help="Then show what comes in, until Ctrl-C; not together with --json.")
]
#: Between two looks of a command that follows, in seconds.
FOLLOW_EVERY_S: Final = 0.5


def opened(chosen: "Settings", create: bool = False) -> "SessionStore":
    """The sessions of the store. A command that records makes the store, any other only what a store of an earlier release lacks. Raises
    ``StoreError``."""
    from countermark.store.opening import SQLITE, open_sessions

    there = chosen.database is None and chosen.store.is_dir()
    return open_sessions(chosen.database or f"{SQLITE}{chosen.store}", create=create or there)


def of(read: "T | Refused[object]") -> T:
    """What was asked for; a refusal ends the call with all of its defects."""
    if isinstance(read, Refused):
        # Imported only where there is a refusal: sentences take a tenth of a second.
        from countermark.lines.defects import known

        raise CallRefused(known(cast("Refused[object]", read).defects))
    return read


def not_as_json(follow: bool, as_json: bool) -> None:
    """What follows has no end, and a document has one."""
    if follow and as_json:
        raise WrongCall("--follow has no end, and --json prints one document", "leave out one of the two")


def following(store: "SessionStore", shown: Answer, after: int, session: str | None = None) -> NoReturn:
    """Print what was found, then a line for every event that comes in after the one with this ordinal, until the call is interrupted."""
    from countermark.lines.sessions import event_row

    give(shown, as_json=False)
    while True:
        for stored in store.tail(after, session=session):
            sys.stdout.write("\t".join(event_row(stored)) + "\n")
            after = stored.ordinal
        sys.stdout.flush()
        sleep(FOLLOW_EVERY_S)
