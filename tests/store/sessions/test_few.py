"""How SQLite, which keeps no statistics, is asked for what few sessions have, and for what many have."""

from pathlib import Path
from typing import Any, Final

from sqlalchemy import event as listening

from countermark.sessions.filters.binding import read_where
from countermark.sessions.filters.condition import Where
from countermark.store.sessions import base
from countermark.store.sessions.sqlite import SqliteSessions
from tests.faults import planted, proven_by
from tests.store.sessions.examples import edit

MADE: Final = "wr1:" + "a" * 64


@proven_by(planted(base, "_are_few", lambda connection, ids: False), planted(base, "_are_few", lambda connection, ids: True))
def test_what_few_sessions_have_is_looked_up_first_and_what_many_have_is_asked_of_each(tmp_path: Path) -> None:
    with planted(base, "_FEW", 3)(), SqliteSessions.open(tmp_path, create=True) as store:
        made = [edit(f"e{at}", "w", said={"checkpoint_after": MADE} if at < 2 else None, session=f"s-{at}") for at in range(4)]
        store.ingest(made)
        asked: list[str] = []

        @listening.listens_for(store._file.engine, "before_cursor_execute")
        def heard(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
            asked.append(" ".join(statement.split()))

        def answered(text: str) -> tuple[set[str], bool, bool]:
            where = read_where(text, "sessions")
            assert isinstance(where, Where)
            found = {listed.id for listed in store.sessions(where).items}
            return found, "IN (SELECT" in asked[-1], "EXISTS (SELECT" in asked[-1]

        every = {f"s-{at}" for at in range(4)}
        assert answered(f"checkpoint.after = '{MADE}'") == ({"s-0", "s-1"}, True, False)
        assert answered(f"checkpoint.after != '{MADE}'") == ({"s-2", "s-3"}, True, False)
        assert answered("tag = 'weights:edited'") == (every, False, True)
        assert answered("tag IS NULL") == (set(), False, True)
        assert answered(f"tag = 'weights:edited' AND checkpoint.after = '{MADE}'") == ({"s-0", "s-1"}, True, True)
