"""A run's ledger and evidence as rows and documents: nothing is left out, nothing is ordered by a clock."""

import json
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from countermark.evidence.cut import STAGES
from countermark.evidence.members import Killed, Misfiled, NotAttempted, Observed, Population, Unread
from countermark.lines import runs
from countermark.lines.runs import (
    ATTEMPT_COLUMNS,
    CLAIM_COLUMNS,
    MEMBER_COLUMNS,
    SOURCE_COLUMNS,
    attempt_documents,
    attempt_rows,
    cause_text,
    claim_documents,
    claim_rows,
    evidence_document,
    freshness_line,
    member_rows,
    moment,
    run_document,
    run_row,
    source_rows,
    span,
    sweep_document,
)
from countermark.run.attempts import CheckpointIdentity, InitialAttempt, Relaunch, RequestedReexecution, Resume
from countermark.run.claims import Dispatched, DispatchRefused
from countermark.run.records import DamagedRun, LedgerEntry, RowUnreadable, RunContext, RunRecord, RunSummary
from countermark.values import NonEmpty, Sha256
from tests.faults import planted, proven_by
from tests.lines.samples import HOSTILE
from tests.run.examples import demand_id
from tests.verdict.scenes import (
    Scene,
    Try,
    changed,
    checkpoint,
    ended,
    key,
    ledger,
    manifest,
    output,
    process,
    receipt,
    sweep,
    unidentified,
)
from tests.verdict.test_join import scoped

_STEP: Any = CheckpointIdentity(8, Sha256("e" * 64))

RESUMED = Scene(
    (Try(1, Dispatched("pid 100")), Try(2, Dispatched("pid 200"), Resume(key(1), _STEP))),
    terminals={"supervisor": (ended(1, Killed(9)), ended(2))},
    processes={"local": (process(1, "dead"), unidentified(2, "settling")), "elsewhere": NotAttempted("another host's")},
    outputs={"local": (output(2),)},
    checkpoints={"local": (checkpoint(1, 4), checkpoint(1, 8))},
    manifests={"trainer": (manifest(2, seed=Unread("nobody asked")),), "artifacts": "the folder changed while it was read"},
)


ALONE = Scene((Try(1, Dispatched("started")),))


def record(scene: Scene) -> RunRecord:
    kinds = [kind for one in scene.tries for kind in ("claim", *(("intent", "outcome") if one.result != "claimed" else ()))]
    kinds += ["cancellation"] * scene.cancelled + ["abandonment"] * len(scene.abandoned)
    history = tuple(LedgerEntry(version, kind, 1000 * version) for version, kind in enumerate(kinds, start=1))  # type: ignore[arg-type]
    return RunRecord("ab" * 16, ledger(scene), RunContext("toy", {}, {}, ("true",), "/", {}, "local"), 0, history)


def test_attempts_stand_in_ledger_order_with_what_the_sweep_saw() -> None:
    rows = attempt_rows(ledger(RESUMED), sweep(RESUMED).reads)
    assert [dict(zip(ATTEMPT_COLUMNS, row, strict=True)) for row in rows] == [
        {
            "attempt": "00000001", "cause": "InitialAttempt", "dispatch": "dispatched", "process": "dead", "ended": "killed by signal 9",
            "checkpoints": "4, 8", "output": "none",
        },
        {
            "attempt": "00000002", "cause": "Resume of 00000001 from step 8", "dispatch": "dispatched", "process": "settling",
            "ended": "succeeded", "checkpoints": "none", "output": f"sha256:{'d' * 64}",
        },
    ]  # fmt: skip


def test_what_nobody_looked_at_is_unknown_and_not_none() -> None:
    assert {cell for row in attempt_rows(ledger(RESUMED), None) for cell in row[3:]} == {"?"}
    assert [each["ended"] for each in attempt_documents(ledger(RESUMED), None)] == [None, None]  # type: ignore[index, call-overload]


def nothing_is_unknown() -> AbstractContextManager[object]:
    """A source that gave no reading looks like one that saw nothing."""
    return planted(Population, "blind_about", lambda self: frozenset())()


@proven_by(nothing_is_unknown)
@pytest.mark.parametrize("silent", [NotAttempted("another host's"), "the disk failed"])
@pytest.mark.parametrize(
    ("axis", "column", "nothing", "seen", "said"),
    [
        ("processes", "process", "none", process(1, "dead"), "dead"),
        ("terminals", "ended", "no", ended(1), "succeeded"),
        ("checkpoints", "checkpoints", "none", checkpoint(1, 4), "4"),
        ("outputs", "output", "none", output(1), f"sha256:{'d' * 64}"),
    ],
)
def test_what_a_source_gave_no_reading_of_is_unknown_and_not_none(
    axis: str, column: str, nothing: str, seen: Any, said: str, silent: Any
) -> None:
    def shown(**sources: Any) -> str:
        (row,) = attempt_rows(ledger(ALONE), sweep(changed(ALONE, **{axis: sources})).reads)
        return dict(zip(ATTEMPT_COLUMNS, row, strict=True))[column]

    assert shown(local=(), other=()) == nothing
    assert shown(local=(), other=silent) == "?"
    assert shown(local=(seen,), other=silent) == said, "what one source saw stands, whatever another one cannot say"


def test_a_source_that_speaks_of_another_attempt_makes_nothing_of_this_one_unknown() -> None:
    scene = changed(ALONE, processes={"local": (), "away": NotAttempted("on n2")})
    ended_of = {number: attempt_rows(ledger(scene), scoped(scene, number).reads)[0][3] for number in (1, 2)}
    assert ended_of == {1: "?", 2: "none"}


def test_an_end_that_only_the_first_reading_shows_is_shown() -> None:
    scene = changed(ALONE, terminals={"supervisor": (ended(1),)}, again={"supervisor": "the folder is gone"})
    assert attempt_rows(ledger(scene), sweep(scene).reads)[0][4] == "succeeded"


def test_claims_stand_in_the_order_of_their_versions() -> None:
    scene = Scene((Try(1, DispatchRefused("no room")), Try(2, "claimed", InitialAttempt())), cancelled=True, abandoned=(1,))
    rows = claim_rows(record(scene))
    assert [dict(zip(CLAIM_COLUMNS, row, strict=True))["what"] for row in rows] == [
        "claimed for InitialAttempt",
        "launcher local is called on n1",
        "refused, nothing started: no room",
        "claimed for InitialAttempt",
        "cancelled by ada",
        "given up by ada",
    ]
    assert [row[:3] for row in rows] == [
        ("1", "claim", "00000001"), ("2", "intent", "00000001"), ("3", "outcome", "00000001"), ("4", "claim", "00000002"),
        ("5", "cancellation", "-"), ("6", "abandonment", "00000001"),
    ]  # fmt: skip
    documents: Any = claim_documents(record(scene))
    assert [("slot" in each, each["attempt"] is None) for each in documents] == [
        (True, False), (False, False), (False, False), (True, False), (False, True), (False, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (InitialAttempt(), "InitialAttempt"),
        (RequestedReexecution("again"), "RequestedReexecution again"),
        (Resume(key(1), _STEP), "Resume of 00000001 from step 8"),
        (Relaunch(key(1), "process", None), "Relaunch of 00000001 process"),
        (Relaunch(key(1), "process", _STEP), "Relaunch of 00000001 process from step 8"),
    ],
)
def test_a_cause_names_what_it_follows_and_where_it_begins(cause: Any, text: str) -> None:
    assert cause_text(cause) == text


def without_silence(reads: Any) -> Any:
    """The readings of the sources that gave one: a table that leaves the others out."""
    return [(stage, reading) for stage, reading in every_reading(reads) if hasattr(reading.arm, "members")]


every_reading = runs._readings  # pyright: ignore[reportPrivateUsage]


@proven_by(planted(runs, "_readings", without_silence))
def test_a_source_without_a_reading_is_a_row_of_its_own() -> None:
    rows = [dict(zip(SOURCE_COLUMNS, row, strict=True)) for row in source_rows(sweep(RESUMED).reads)]
    assert [(row["stage"], row["source"], row["reading"]) for row in rows] == [
        ("terminals", "supervisor", "observed 2 members"),
        ("processes", "local", "observed 2 members"),
        ("processes", "elsewhere", "not attempted: another host's"),
        ("outputs", "local", "observed 1 member"),
        ("checkpoints", "local", "observed 2 members"),
        ("manifests", "trainer", "observed 1 member"),
        ("manifests", "artifacts", "refused: the folder changed while it was read"),
        ("terminals again", "supervisor", "observed 2 members"),
    ]
    assert rows[2]["receipt"] == rows[2]["started"] == "-"
    assert rows[6]["host"] == "n1"


def test_every_member_is_a_row() -> None:
    rows = [dict(zip(MEMBER_COLUMNS, row, strict=True)) for row in member_rows(sweep(RESUMED).reads)]
    assert [row["what"] for row in rows if row["stage"] in ("processes", "outputs", "checkpoints", "manifests")] == [
        "dead: pid 100 on n1, started at tick 7",
        "settling: holds the lock, has no receipt yet",
        f"output sha256:{'d' * 64}, 4,096 bytes, renamed into place: /store/2/output",
        "checkpoint of step 4, atomic: /store/1/checkpoints/step-4",
        "checkpoint of step 8, atomic: /store/1/checkpoints/step-8",
        "trainer read 22 coordinates of 23",
    ]


def test_members_of_every_source_and_receipts_of_another_attempt_are_shown() -> None:
    stray = Misfiled(key(1), "f" * 32)
    seen = changed(
        ALONE, processes={"local": (process(1, "dead"),), "elsewhere": (process(1, host="n2"),)}, misfiled={"outputs": (stray, stray)}
    )
    reads = sweep(seen).reads
    assert [row[2] for row in member_rows(reads)] == [
        "dead: pid 100 on n1, started at tick 7",
        "alive: pid 100 on n2, started at tick 7",
    ]
    assert [row[2] for row in source_rows(reads) if row[0] == "outputs"] == ["observed 0 members, 2 receipts of another attempt"]
    document: Any = evidence_document(reads)
    assert [[one["attempt"] for one in source["members"]] for source in document[1]["sources"]] == [[key(1).nonce.hex]] * 2
    assert document[2]["sources"][0]["misfiled"] == [{"is": "Misfiled", "folder": key(1).nonce.hex, "names": "f" * 32}] * 2


def test_the_evidence_document_has_every_stage_in_read_order_and_tells_the_arms_apart() -> None:
    document: Any = evidence_document(sweep(RESUMED).reads)
    assert [each["stage"] for each in document] == list(STAGES)
    arms = {source["source"]: (source["arm"], source["why"], source["receipt"] is None) for source in document[1]["sources"]}
    assert arms == {"local": ("observed", None, False), "elsewhere": ("notAttempted", "another host's", True)}
    trainer, artifacts = document[4]["sources"]
    assert artifacts["members"] is None
    assert trainer["members"][0]["coordinates"]["seed"] == {"is": "Unread", "reason": "nobody asked"}
    assert json.dumps(document, allow_nan=False).isascii()


def test_a_sweep_says_how_fresh_it_is() -> None:
    seen = sweep(RESUMED)
    document: Any = sweep_document("f" * 32, seen.reads, seen.cut)
    assert document["order"] == list(STAGES)
    assert document["freshness"] == {"beganMs": 99_990, "endedMs": 100_045}
    assert freshness_line(seen.reads) == "looked from 1970-01-01 00:01:39Z to 1970-01-01 00:01:40Z"
    blind = Scene((Try(1, None),), **{axis: {"local": NotAttempted("no")} for axis in ("terminals", "processes", "outputs", "checkpoints")})  # type: ignore[arg-type]
    assert freshness_line(sweep(Scene((), **{name: {"local": NotAttempted("no")} for name in STAGES[:5]})).reads) == "looked at nothing"  # type: ignore[arg-type]
    assert freshness_line(sweep(blind).reads).startswith("looked from")


def test_a_sweep_is_as_fresh_as_the_first_and_the_last_of_all_its_sources() -> None:
    reads = sweep(changed(ALONE, processes={"local": (), "slow": ()})).reads
    readings = reads.processes.population.readings
    slow = replace(readings.more[0], arm=Observed((), replace(receipt("processes", "slow"), started_ms=5, ended_ms=500_000)))
    population = replace(reads.processes.population, readings=replace(readings, more=(slow,)))
    assert span(replace(reads, processes=replace(reads.processes, population=population))) == (5, 500_000)


def test_clock_times_are_shown_in_utc_and_never_fail() -> None:
    assert [moment(at_ms) for at_ms in (0, 1_767_225_599_999, -1)] == [
        "1970-01-01 00:00:00Z",
        "2025-12-31 23:59:59Z",
        "1969-12-31 23:59:59Z",
    ]
    assert moment(2**53) == f"{2**53} ms"


def test_hostile_names_of_members_are_escaped() -> None:
    scene = Scene((Try(1, Dispatched(HOSTILE), host=HOSTILE),), checkpoints={HOSTILE: (checkpoint(1, path=HOSTILE),)})
    tables = (source_rows(sweep(scene).reads), member_rows(sweep(scene).reads), claim_rows(record(scene)))
    cells = [cell for rows in tables for row in rows for cell in row]
    assert len(cells) > 20
    assert [cell for cell in cells if not cell.isprintable()] == []


# ------------------------------------------------------------------------------------------------------------ lists of runs

DAMAGED = DamagedRun(
    "ab" * 16,
    1_000,
    3,
    True,
    NonEmpty(RowUnreadable("runs", "ab" * 16, "of requester: it is empty"), (RowUnreadable("runs", "ab" * 16, "recipe_name is no text"),)),
)


def first_wins() -> AbstractContextManager[object]:
    """A line that names the first defect alone."""
    honest = runs.run_name
    return planted(runs, "run_name", lambda run: honest(run).partition(";")[0])()


@proven_by(first_wins)
def test_a_damaged_run_is_a_row_with_everything_that_is_wrong_in_the_place_of_its_name() -> None:
    why = "damaged: of requester: it is empty; recipe_name is no text"
    assert run_row(DAMAGED) == ("abababab", why, "-", "-", "1970-01-01 00:00:01Z", "3", "yes")


def test_a_damaged_run_is_a_document_with_its_defects_and_a_whole_one_has_none() -> None:
    document = run_document(DAMAGED)
    told = document.pop("defects")
    asked = {"name": None, "requester": None, "request": None}
    assert document == {"run": "ab" * 16, **asked, "createdMs": 1_000, "facts": 3, "cancelled": True}
    assert [each["why"] for each in told] == ["of requester: it is empty", "recipe_name is no text"]
    assert [each["code"] for each in told] == ["RowUnreadable"] * 2
    whole = run_document(RunSummary("cd" * 16, demand_id(), "topics", 1_000, 0, False))
    assert (whole["name"], whole["requester"], whole["request"], whole["defects"]) == ("topics", "ada", "nightly", [])
