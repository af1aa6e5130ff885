"""Care for a store and the machine."""

import importlib.util
from pathlib import Path

import pytest

from countermark.app import health
from countermark.app.health import doctor, store_check, store_init
from countermark.store import StoreError
from countermark.store.creation import LEDGER_FILE


def test_a_store_is_made_once_and_checked(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        store_check(tmp_path / "store")
    assert [store_init(tmp_path / "store") for _ in range(2)] == [False, True]
    assert store_check(tmp_path / "store") == ()


def test_everything_is_well_here_and_what_is_not_says_what_mends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {one.name: one for one in doctor(tmp_path / "store")}
    assert list(found) == ["machine", "process observation", "disk", "store", "torch", "transformers", "peft", "psycopg", "numpy", "trl"]
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
