"""Keeping the sessions' rows beside their events, in the transaction that stores these.

Rules kept here:

1. Adding to a row gives what folding all events from scratch gives, so events are added wherever they only come. A session that they leave,
   or whose row another version of the fold made, is folded from scratch.
2. What counts once in a session is asked for once for all that is added.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, cast, final

from sqlalchemy import Connection

from countermark.sessions.events import Event
from countermark.sessions.fold import SESSION_FOLD_VERSION, Share, share_of
from countermark.sessions.genai import NO_USAGE, Usage
from countermark.sessions.records import StoredEvent
from countermark.store.sessions import statements as said
from countermark.store.sessions.rows import Account, account, key_of, stored_event

Key = tuple[str, str]
#: So many events are read at once where a session is read whole.
_PAGE: Final = 1_000


def events_of(connection: Connection, session: str) -> Iterator[StoredEvent]:
    """Every event of a session in its order, a page at a time."""
    when_ns, ordinal = -1, 0
    while True:
        rows = said.OF_SESSION.rows(connection, session=session, when_ns=when_ns, ordinal=ordinal, limit=_PAGE)
        for row in rows:
            stored = stored_event(row)
            when_ns, ordinal = stored.when_ns, stored.ordinal
            yield stored
        if len(rows) < _PAGE:
            return


@final
class Counting:
    """Accounts of sessions, and what counts once in them, while events are added."""

    def __init__(self) -> None:
        self.accounts: Final[dict[str, Account]] = {}
        self.keys: Final[dict[Key, Usage]] = {}
        self._changed: Final[set[Key]] = set()

    def add(self, session: str, event: Event, share: Share) -> None:
        counted = self.accounts.get(session)
        if counted is None:
            counted = self.accounts[session] = Account(session)
        counted.add(event, share)
        if share.tensor is not None and (key := (session, key_of("t", share.tensor))) not in self.keys:
            counted.tensors += 1
            self._keep(key, NO_USAGE)
        if share.response is not None:
            key = (session, key_of("r", share.response))
            known = self.keys.get(key)
            before = NO_USAGE if known is None else known
            after = before.most(share.response_usage)
            if known is None or after != before:
                counted.keyed = counted.keyed.plus(_difference(after, before))
                self._keep(key, after)

    def _keep(self, key: Key, usage: Usage) -> None:
        self.keys[key] = usage
        self._changed.add(key)

    def key_rows(self) -> list[Mapping[str, object]]:
        """The rows of what counts once and is new, or counts more now."""
        return [_key_row(key, self.keys[key]) for key in sorted(self._changed)]

    def write(self, connection: Connection) -> None:
        """The accounts as rows, and what counts once in them that is new."""
        said.PUT_SESSION.many(connection, [each.row() for each in self.accounts.values()])
        said.PUT_KEY.many(connection, self.key_rows())
        told = [(each.id, tag) for each in self.accounts.values() for tag in each.session.tags if tag not in each.tags]
        said.PUT_TAG.many(connection, [{"session_id": session, "tag": tag} for session, tag in told])
        digests = [(each.id, *checkpoint) for each in self.accounts.values() for checkpoint in sorted(each.checkpoints)]
        said.PUT_CHECKPOINT.many(connection, [{"session_id": session, "side": side, "digest": digest} for session, side, digest in digests])


def _difference(after: Usage, before: Usage) -> Usage:
    return Usage(after.input_tokens - before.input_tokens, after.output_tokens - before.output_tokens, after.cost_pico - before.cost_pico)


def _key_row(key: Key, usage: Usage) -> Mapping[str, object]:
    session, name = key
    return {
        "session_id": session,
        "key": name,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_pico": usage.cost_pico,
    }


def counted_from_scratch(session: str, events: Iterable[Event]) -> Counting:
    """A session's account, and what counts once in it, of all its events."""
    counting = Counting()
    for event in events:
        counting.add(session, event, share_of(event))
    return counting


def refold(connection: Connection, session: str) -> None:
    """A session's rows anew from its events; none where it has none."""
    counting = counted_from_scratch(session, (stored.event for stored in events_of(connection, session)))
    for statement in said.UNFOLD:
        statement.run(connection, session=session)
    for each in counting.accounts.values():
        each.conflicts = conflict_count(connection, session)
    counting.write(connection)


def conflict_count(connection: Connection, session: str) -> int:
    """How many other payloads came under ids of a session's events."""
    (row,) = said.CONFLICT_COUNT.rows(connection, session=session)
    return cast(int, row["conflicts"])


def add(connection: Connection, added: Mapping[str, Sequence[Event]], left: Iterable[str], recounted: Iterable[str]) -> None:
    """Add to each session the events that came to it, which are stored by now; fold those anew that some left, and count anew the conflicts
    of ``recounted``."""
    left, recounted = set(left), set(recounted)
    rows = said.SESSIONS_OF.rows(connection, sessions=said.listed({*added, *recounted} - left))
    left |= {cast(str, row["session_id"]) for row in rows if row["fold_version"] != SESSION_FOLD_VERSION}
    counting = Counting()
    counting.accounts.update({found.id: found for found in map(account, rows) if found.id not in left})
    shares = [(session, event, share_of(event)) for session, events in added.items() if session not in left for event in events]
    named = {key for session, _, share in shares if session in counting.accounts for key in _keys(session, share)}
    if named:
        for row in said.KEYS_OF.rows(connection, pairs=said.listed(named)):
            key = (cast(str, row["session_id"]), cast(str, row["key"]))
            counting.keys[key] = Usage(*(cast(int, row[name]) for name in ("input_tokens", "output_tokens", "cost_pico")))
    for session, event, share in shares:
        counting.add(session, event, share)
    for session in recounted & counting.accounts.keys():
        counting.accounts[session].conflicts = conflict_count(connection, session)
    counting.write(connection)
    for session in left:
        refold(connection, session)


def _keys(session: str, share: Share) -> Iterator[Key]:
    for kind, name in (("t", share.tensor), ("r", share.response)):
        if name is not None:
            yield session, key_of(kind, name)
