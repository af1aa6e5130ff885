"""What is exported is whole, exact, and comes back: JSON lines, CSV and Parquet, to files that get their names when they are whole."""

import csv
import json
from pathlib import Path
from typing import Final

import pytest

from countermark.app import exporting
from countermark.files import durable
from tests.cli.called import Caller, spawn
from tests.faults import planted, proven_by

_HUGE: Final = 2**63 - 1


@pytest.fixture
def kept(here: Path, call: Caller) -> Path:
    """Two sessions, one of several pages."""
    (here / "long.jsonl").write_text("\n".join(json.dumps({"role": "user", "content": str(number)}) for number in range(1200)))
    call("import", "transcript", "long.jsonl", "--session", "long-session")
    call("weights", "record", "w", "--changed", str(_HUGE), "--l2", "0.5", "--session", "edit-session", "--event-id", "e-1")
    return here


def test_json_lines_go_into_another_store_as_the_same_events(kept: Path, call: Caller) -> None:
    out = spawn("export", "edit-session", cwd=kept)
    assert (out.code, json.loads(out.out)["payload"]["changed"]) == (0, _HUGE)
    assert call("export", "--to", "all.jsonl", "--json").document()["events"] == 1201
    other = ("--store", f"sqlite:///{kept / 'other'}")
    assert call("import", "transcript", "all.jsonl", *other, "--json").document()["stored"] == 1201
    for session in ("long-session", "edit-session"):
        ours, theirs = (call("show", session, *store, "--json").document()["events"] for store in ((), other))
        assert [(event["id"], event["payload"], event["time"]) for event in ours] == [
            (event["id"], event["payload"], event["time"]) for event in theirs
        ]


def test_tables_hold_every_event_and_exact_counts(kept: Path, call: Caller) -> None:
    assert call("export", "--where", "weights.edits > 0", "--to", "edits.csv").out == "1 event in edits.csv\n"
    with (kept / "edits.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["session"], row["tensor"], row["changed"], row["l2"]) == ("edit-session", "w", str(_HUGE), "0.5")
    parquet = pytest.importorskip("pyarrow.parquet")
    assert call("export", "--to", "all.parquet", "--json").document() == {
        "ok": True, "file": "all.parquet", "format": "parquet", "events": 1201, "defects": [], "warnings": [],
    }  # fmt: skip
    table = parquet.read_table(kept / "all.parquet")
    assert table.num_rows == 1201
    assert [count for count in table["changed"].to_pylist() if count is not None] == [_HUGE]


@proven_by(planted(durable.os, "unlink", lambda path, **more: None))
def test_an_export_that_is_broken_off_leaves_nothing(kept: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(stored: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "event_line", broken)
    called = call("export", "--to", "all.jsonl")
    assert (called.code, "No space left on device" in called.err) == (3, True)
    assert [path.name for path in kept.iterdir() if "all.jsonl" in path.name] == []


def test_an_export_writes_over_nothing_and_says_what_it_does_not_know(kept: Path, call: Caller) -> None:
    (kept / "there.csv").write_text("mine")
    assert call("export", "--to", "there.csv").code == 2
    assert (kept / "there.csv").read_text() == "mine"
    for words in (("--format", "xml"), ("--format", "parquet"), ("edit-session", "--where", "events > 0"), ("--json",)):
        assert call("export", *words).code == 2
    assert call("export", "no-such-session", "--to", "x.csv", "--json").codes() == ["SessionUnknown"]
    assert call("export", "--where", "event > 0 and tags = 'x'", "--to", "x.csv", "--json").codes() == ["FilterKeyUnknown"] * 2
    assert not (kept / "x.csv").exists()
