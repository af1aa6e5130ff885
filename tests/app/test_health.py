"""Care for a store and the machine."""

import importlib.util
import re
import sqlite3
import tomllib
from pathlib import Path

import pytest

from countermark.app import health
from countermark.app.health import doctor, store_check, store_init, store_migrate
from countermark.store import StoreError, opening
from countermark.store.creation import LEDGER_FILE
from countermark.store.failures import StoreMissing
from countermark.store.migrations.outcome import SessionsMigrated, StoreMigrated
from countermark.store.sessions.interface import SERVE_SINK, Aside
from countermark.store.sessions.sqlite import SESSIONS_FILE
from tests.faults import planted, proven_by
from tests.store.sessions.examples import NOW, edit, event


def test_a_store_is_made_once_and_checked(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        store_check(tmp_path / "store")
    assert [store_init(tmp_path / "store") for _ in range(2)] == [False, True]
    assert store_check(tmp_path / "store") == ()


@proven_by(planted(opening, "check_sessions", lambda url: ()))
def test_the_sessions_of_a_store_are_checked_with_it(tmp_path: Path) -> None:
    store_init(tmp_path)
    with opening.open_sessions(f"sqlite:///{tmp_path}", create=True) as store:
        store.ingest([event("e-1")])
    assert store_check(tmp_path) == ()
    with sqlite3.connect(tmp_path / SESSIONS_FILE) as connection:
        connection.execute("UPDATE feed SET ordinal = 0")
    connection.close()
    assert [finding.code for finding in store_check(tmp_path)] == ["EventNumberAhead"]
    assert [one.ok for one in doctor(tmp_path) if one.name == "store"] == [False]


def test_sessions_alone_are_a_store_that_is_checked_and_migrated(tmp_path: Path) -> None:
    for looked in (store_check, lambda folder: store_migrate(folder, None, True)):
        with pytest.raises(StoreError) as refused:
            looked(tmp_path / "none")
        assert isinstance(refused.value.failure, StoreMissing)
    with opening.open_sessions(f"sqlite:///{tmp_path}", create=True) as store:
        store.ingest([event("e-1")])
    assert [store_migrate(tmp_path, None, dry) for dry in (True, False)] == [StoreMigrated(None, SessionsMigrated(1, 1, 0))] * 2
    assert store_check(tmp_path) == () and not (tmp_path / LEDGER_FILE).exists()
    with sqlite3.connect(tmp_path / SESSIONS_FILE) as connection:
        connection.execute("UPDATE sessions SET fold_version = 0, events = 70")
    connection.close()
    assert [finding.code for finding in store_check(tmp_path)] == []
    migrated = [store_migrate(tmp_path, None, dry) for dry in (True, False, False)]
    assert migrated == [StoreMigrated(None, SessionsMigrated(1, 1, refolded)) for refolded in (1, 1, 0)]
    with sqlite3.connect(tmp_path / SESSIONS_FILE) as connection:
        connection.execute("UPDATE sessions SET events = 70")
    connection.close()
    assert [finding.code for finding in store_check(tmp_path)] == ["SessionFoldDiffers"]
    assert [one.ok for one in doctor(tmp_path) if one.name == "store"] == [False]


def test_everything_is_well_here_and_what_is_not_says_what_mends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {one.name: one for one in doctor(tmp_path / "store")}
    assert list(found) == ["machine", "process observation", "disk", "store", *(part for part, _, _ in health._PARTS)]
    assert all(one.ok == (one.remedy == "") for one in found.values())
    assert found["machine"].ok and found["process observation"].ok and found["store"].ok
    assert not (tmp_path / "store").exists(), "looking creates nothing"
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / LEDGER_FILE).write_bytes(b"no database")
    monkeypatch.setattr(health, "_FREE_BYTES_MIN", 1 << 62)
    real = importlib.util.find_spec
    monkeypatch.setattr(health.importlib.util, "find_spec", lambda name: None if name == "peft" else real(name))
    wrong = {one.name: one for one in doctor(tmp_path / "store") if not one.ok}
    assert {"disk", "store", "peft"} <= set(wrong) and all(one.remedy for one in wrong.values())
    assert wrong["peft"].remedy == "pip install 'countermark[train]'"


@proven_by(planted(health, "_PARTS", health._PARTS[:1]))
def test_every_extra_that_a_user_can_want_is_asked_about() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    brought = {extra: {re.split(r"[\[<>=]", each)[0] for each in those} for extra, those in project["optional-dependencies"].items()}
    asked = {extra: {part for part, of, _ in health._PARTS if of == extra} for extra in brought.keys() - {"demo", "dev", "fuzz"}}
    assert {extra: parts for extra, parts in asked.items() if not parts or parts - brought[extra]} == {}


@proven_by(planted(opening, "sink_of", lambda url, sink: None))
def test_how_far_sending_on_is_is_told_where_something_is_sent_on(tmp_path: Path) -> None:
    def told(forward: str = "http://collect.example") -> list[tuple[bool, str]]:
        return [(one.ok, one.found) for one in doctor(tmp_path, None, forward) if one.name == "forwarding"]

    assert told("") == []
    nothing = [(True, "nothing yet; countermark serve sends edits on to http://collect.example")]
    assert told() == nothing
    store_init(tmp_path)
    with opening.open_sessions(f"sqlite:///{tmp_path}", create=True) as store:
        store.hold_sink(SERVE_SINK, "me", NOW, NOW + 1)
        store.ingest([edit("e-1", "w"), edit("e-2", "w")])
        waiting = "waiting for http://collect.example"
        assert told() == [(True, f"2 edits {waiting}, 0 items set aside that it never takes")]
        store.sent(SERVE_SINK, "me", 1, [], [Aside("e-1", "s-main", "it answers 400")], NOW)
        store.failed(SERVE_SINK, "me", NOW, "it answers 503")
    assert told() == [(False, f"1 edit {waiting}, 1 item set aside that it never takes; it answers 503")]
