"""What PostgreSQL and its driver say, as the failures of a store. No text that leaves here holds a password."""

from contextlib import AbstractContextManager
from typing import Final
from urllib.parse import quote, quote_plus

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from countermark.store.failures import (
    DatabaseMissing,
    LoginRefused,
    PrivilegeMissing,
    ServerTakesNoWrites,
    ServerUnreachable,
    StoreAddressUnknown,
    StoreBroken,
    StoreDamaged,
    StoreError,
    StoreFailure,
    StoreFull,
    StoreLocked,
)
from countermark.store.rows import BadCell
from countermark.store.transaction import translated_by
from countermark.values import shown

_WHY_MAX: Final = 300
#: States of the class "operator intervention" and others that say: not now.
_AWAY: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "53300", "25P03"})
#: What the driver says of an address before it goes anywhere.
_UNUSABLE: Final = ("invalid connection option", "connection is bad: invalid ", "connection is bad: definition of service")
#: The server begins or ends: it will answer soon, or a new one will.
STARTING: Final = "57P03"


def place_of(url: URL) -> str:
    """Where a database is, as a person may be shown it: no password, and nothing else that a query could carry."""
    kept = {name: value for name, value in url.query.items() if name in ("host", "port", "dbname")}
    return url.set(drivername="postgresql", query=kept)._replace(password=None).render_as_string(hide_password=True)


def state_of(error: BaseException) -> str:
    """The five characters of an error's SQLSTATE; empty where the server said nothing."""
    state = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else ""


def _why(error: BaseException, url: URL) -> str:
    text = " ".join(str(error).split())
    given = url.query.get("sslpassword", ())
    secrets = {str(url.password or ""), *((given,) if isinstance(given, str) else given)} - {""}
    spelled = {form for each in secrets for form in (each, quote(each, safe=""), quote_plus(each))}
    for secret in sorted(spelled, key=len, reverse=True):
        text = text.replace(secret, "***")
    return shown(text, _WHY_MAX)


def postgres_failure(error: BaseException, url: URL, wait_s: float) -> StoreFailure | None:
    """What an error of the driver means, or None when it speaks of a mistake of ours and not of the environment."""
    where, why, state = place_of(url), _why(error, url), state_of(error)
    exact: dict[str, StoreFailure] = {
        "3D000": DatabaseMissing(where, url.database or ""),
        "42501": PrivilegeMissing(where, why),
        "25006": ServerTakesNoWrites(where),
        "53100": StoreFull(where),
        "55P03": StoreLocked(where, round(wait_s * 1000), ""),
        "53200": StoreBroken(where, "the server is out of memory"),
        "57014": StoreBroken(where, "the server cancelled the statement"),
        "58030": StoreBroken(where, why),
        "XX001": StoreDamaged(where, why),
        "XX002": StoreDamaged(where, why),
        "42P01": StoreDamaged(where, why),
        "42703": StoreDamaged(where, why),
        "3F000": StoreDamaged(where, why),
    }
    if state in exact:
        return exact[state]
    if state.startswith("28"):
        return LoginRefused(where, url.username or "", why)
    if state.startswith("08") or state in _AWAY:
        return ServerUnreachable(where, why)
    return _without_state(error, url) if not state else None


def _without_state(error: BaseException, url: URL) -> StoreFailure | None:
    """What the driver found out by itself: while it connects, the server's answer comes as a text."""
    import psycopg

    where, why, text = place_of(url), _why(error, url), str(error)
    if any(each in text for each in _UNUSABLE):
        return StoreAddressUnknown(where, why)
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return None
    if 'database "' in text and "does not exist" in text:
        return DatabaseMissing(where, url.database or "")
    if any(each in text for each in ("authentication failed", "pg_hba.conf", "no password supplied", 'role "')):
        return LoginRefused(where, url.username or "", why)
    if "permission denied for database" in text:
        return PrivilegeMissing(where, why)
    return ServerUnreachable(where, why)


def translation(error: BaseException | None, url: URL, wait_s: float) -> StoreError | None:
    """A failure of the environment as ours, its cause named where showing it is safe; None for mistakes of ours."""
    match error:
        case DBAPIError():
            failure = None if error.orig is None else postgres_failure(error.orig, url, wait_s)
            return None if failure is None else _silent(StoreError(failure))
        case NoConnectionFree():
            return _silent(StoreError(StoreLocked(place_of(url), round(wait_s * 1000), "")))
        case BadCell():
            told = StoreError(StoreDamaged(place_of(url), str(error)))
            told.__cause__ = error
            return told
        case BaseException() | None:
            return None


def _silent(told: StoreError) -> StoreError:
    """As ``raise … from None``: what the driver says may hold a password."""
    told.__cause__ = None
    return told


def translated(url: URL, wait_s: float) -> AbstractContextManager[None]:
    """Turns failures of the environment inside the block into ``StoreError``; mistakes of ours go through as they are."""
    return translated_by(lambda error: translation(error, url, wait_s))
