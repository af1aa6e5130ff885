"""Sessions at the command line: what is recorded is listed, shown, found and composes, and what is wrong is told with what to do."""

import json
from pathlib import Path
from typing import Final

import pytest

from countermark.app import recording
from countermark.cli import session_reading
from countermark.lines.pages import NO_SESSION
from tests.cli.called import Caller, spawn
from tests.cli.test_commands import write_safetensors
from tests.faults import planted, proven_by

#: A session that holds nothing but a weight edit is a session like any other.
EDIT: Final = ("weights", "record", "layers.0.w", "--changed", "3", "--shape", "1024,4096", "--l2", "0.012", "--session", "by-hand-1")
LINE: Final = "layers.0.w: 3 of 4,194,304 weights changed, ‖Δ‖ 0.0120"


def test_an_edit_by_hand_is_listed_shown_found_and_filtered_as_one_line(here: Path, call: Caller) -> None:
    assert call(*EDIT).out.splitlines() == [LINE, "recorded in session by-hand-1"]
    for words in (("show", "by-hand-1"), ("show", "by-hand-"), ("search", "LAYERS w 0"), ("tail",)):
        called = call(*words)
        assert (called.code, called.out.splitlines()[-1].split("\t")[-1]) == (0, LINE), words
    listed = call("list", "--where", "weights.edits > 0 and tag = 'weights:edited'", "--json").document()["sessions"]
    assert [session["id"] for session in listed] == ["by-hand-1"]
    assert listed[0]["stats"]["weightEdits"] == {"edits": 1, "tensors": 1, "weightsChanged": 3}
    assert call("list", "--where", "weights.edits > 1").out == "no session\n"
    shown = call("show", "by-hand-1", "--json").document()
    assert (shown["first"], shown["total"], shown["next"], [event["line"] for event in shown["events"]]) == (1, 1, None, [LINE])


def test_every_field_of_an_edit_can_be_told_and_comes_back(here: Path, call: Caller) -> None:
    digest = "ab" * 32
    told = (
        *EDIT, "--dtype", "F32", "--value-changed", "2", "--non-finite-created", "1", "--non-finite-cleared", "0", "--max-abs", "0.5",
        "--sha256-before", digest.upper(), "--sha256-after", digest, "--checkpoint-before", f"wr1:{digest}", "--checkpoint-after", digest,
        "--alias", "head.w", "--alias", "b", "--note", "n", "--event-id", "e-1",
    )  # fmt: skip
    assert call(*told, "--json").document() == {
        "ok": True, "id": "e-1", "session": "by-hand-1", "outcome": "stored", "defects": [], "warnings": [],
        "line": f"{LINE.replace('changed', 'changed (2 in value)')}, max 0.500, 1 became NaN or infinite, note: n",
    }  # fmt: skip
    (event,) = call("show", "by-hand-1", "--json").document()["events"]
    assert event["payload"] == {
        "kind": "weights.edit", "tensor": "layers.0.w", "shape": [1024, 4096], "dtype": "F32", "changed": 3, "valueChanged": 2,
        "nonFiniteCreated": 1, "nonFiniteCleared": 0, "l2": 0.012, "maxAbs": 0.5, "sha256Before": digest, "sha256After": digest,
        "checkpointBefore": f"wr1:{digest}", "checkpointAfter": digest, "aliases": ["head.w", "b"], "note": "n",
    }  # fmt: skip


@proven_by(planted(recording, "new_id", lambda: "always"))
def test_an_edit_without_a_session_has_one_of_its_own(here: Path, call: Caller) -> None:
    first, second = (call("weights", "record", "w", "--changed", str(count), "--json").document() for count in (1, 2))
    assert first["session"] != second["session"]


def test_an_edit_that_is_told_again_changes_nothing_and_another_under_its_id_is_a_conflict(here: Path, call: Caller) -> None:
    once = (*EDIT, "--event-id", "e-1")
    assert [call(*once, "--json").document()["outcome"] for _ in range(2)] == ["stored", "duplicate"]
    other = call(*once, "--note", "another", "--json")
    assert (other.code, other.codes(), other.document()["outcome"]) == (1, ["EventConflicts"], "conflict")
    shown = call("show", "by-hand-1", "--json").document()
    assert (shown["total"], shown["session"]["conflicts"], [each["event"] for each in shown["conflicting"]]) == (1, 1, ["e-1"])
    assert "1 other payload came under ids that were known; the first of each id is kept" in call("show", "by-hand-1").out


def test_an_edit_with_several_wrong_fields_names_each_and_records_nothing(here: Path, call: Caller) -> None:
    called = call("weights", "record", "", "--changed", "-1", "--shape", "3,x", "--l2", "nan", "--sha256-after", "ab", "--json")
    assert called.code == 1
    assert [(defect["code"], defect["field"]) for defect in called.document()["defects"]] == [
        ("EventFieldInvalid", f"payload.{field}") for field in ("tensor", "changed", "shape", "l2", "sha256After")
    ]
    assert not (here / ".countermark").exists()


def test_a_difference_is_recorded_in_the_store_and_composes_from_its_session(here: Path, call: Caller) -> None:
    write_safetensors(here / "a.safetensors", {"w": b"\0\0\x80\x3f", "v": b"\0\0\0\0"})
    write_safetensors(here / "b.safetensors", {"w": b"\0\0\0\x40", "v": b"\0\0\0\0"})
    document = call("weights", "diff", "a.safetensors", "b.safetensors", "--record", "--record-to", "edits.jsonl", "--json").document()
    session = document["recorded"]["session"]
    assert document["recorded"] == {"session": session, "file": "edits.jsonl", "events": 1}
    shown = call("show", session, "--json").document()
    assert [event["line"] for event in shown["events"]] == ["w: 1 of 1 weight changed, ‖Δ‖ 1.00, max 1.00"]
    assert json.loads((here / "edits.jsonl").read_text())["payload"] == shown["events"][0]["payload"]
    roots = [call("weights", "apply-root", "a.safetensors", source, "--json").document()["root"] for source in (session, "edits.jsonl")]
    assert roots == [call("weights", "root", "b.safetensors", "--json").document()["root"]] * 2
    assert call("weights", "diff", "a.safetensors", "b.safetensors", "--edits", session).code == 0
    broken = call("weights", "diff", "b.safetensors", "a.safetensors", "--edits", session, "--json")
    assert (broken.code, broken.codes()) == (1, ["EditNotInArtifact"])
    unknown = call("weights", "apply-root", "a.safetensors", session, "no-such-session", "--json")
    assert unknown.codes() == ["SessionUnknown"]
    # Nothing changed, and no session without an event is made up.
    same = call("weights", "diff", "a.safetensors", "a.safetensors", "--record", "--session", "nothing", "--json").document()
    assert same["recorded"] == {"session": None, "file": None, "events": 0}
    assert len(call("list", "--json").document()["sessions"]) == 1


def test_a_transcript_is_imported_once_without_its_secrets(here: Path, call: Caller) -> None:
    secret = "sk-ant-api03-" + "x" * 40
    lines = [
        {"type": "user", "sessionId": "agent-session-1", "uuid": "u1", "message": {"role": "user", "content": f"use {secret}"}},
        {"type": "assistant", "sessionId": "agent-session-1", "uuid": "u2", "message": {"role": "assistant", "content": "done"}},
    ]
    (here / "t.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n{torn\n")
    first = call("import", "transcript", "t.jsonl", "--json")
    assert (first.code, first.codes()) == (1, ["EventLineRefused"])
    counts = {"stored": 2, "duplicates": 0, "conflicts": 0, "refused": 1, "sessions": ["agent-session-1"]}
    assert {key: first.document()[key] for key in counts} == counts
    (here / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    again = call("import", "transcript", "t.jsonl", "--json").document()
    assert {key: again[key] for key in counts} == {**counts, "stored": 0, "duplicates": 2, "refused": 0}
    shown = call("show", "agent-session-1").out
    assert "user: use [redacted: key of a model] (replaced to be kept: payload.message.content (secret))" in shown
    kept = b"".join(path.read_bytes() for path in (here / ".countermark").rglob("*") if path.is_file())
    assert secret.encode() not in kept


@proven_by(planted(recording, "BATCH_EVENTS", 10**9))
def test_a_long_transcript_is_stored_batch_by_batch(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    honest = recording.take
    monkeypatch.setattr(recording, "take", lambda store, batch: sizes.append(len(batch.events)) or honest(store, batch))
    (here / "t.jsonl").write_text("\n".join(json.dumps({"role": "user", "content": str(number)}) for number in range(1200)))
    assert call("import", "transcript", "t.jsonl", "--session", "long-one", "--json").document()["stored"] == 1200
    assert sizes == [500, 500, 200]
    pages = call("show", "long-one", "--limit", "500", "--json").document()
    assert (pages["first"], len(pages["events"]), pages["total"]) == (1, 500, 1200)
    rest = call("show", "long-one", "--limit", "500", "--cursor", pages["next"], "--json").document()
    assert (rest["first"], len(rest["events"])) == (501, 500)
    assert "1-200 of 1,200" in call("show", "long-one").out


#: Calls that a hurried person makes, the exit code, and the codes of what is said.
HURRIED: Final = (
    (("show", "none"), 1, ["SessionPrefixShort"]),
    (("show", "no-such-session"), 1, ["SessionUnknown"]),
    (("show", "by-hand-"), 1, ["SessionAmbiguous"]),
    (("show", "by-hand-1", "--cursor", "x"), 1, ["ParameterUnfit"]),
    (("show", "none", "--cursor", "x"), 1, ["SessionPrefixShort", "ParameterUnfit"]),
    (("list", "--where", "weight.edits > 0"), 1, ["FilterKeyUnknown"]),
    (("list", "--where", "weight.edits > 0 and started > 'x'", "--cursor", "x"), 1, None),
    (("list", "--cursor", "x"), 1, ["ParameterUnfit"]),
    (("import", "transcript", "gone.jsonl"), 2, None),
    (("import", "transcript", "."), 2, None),
    (("show", "by-hand-1", "--follow"), 2, None),
    (("tail", "--follow"), 2, None),
)


@pytest.mark.parametrize(("words", "code", "codes"), HURRIED)
def test_what_a_hurried_person_calls_is_told_what_to_do(
    here: Path, call: Caller, words: tuple[str, ...], code: int, codes: list[str] | None
) -> None:
    call(*EDIT)
    call(*EDIT[:-1], "by-hand-2")
    called = call(*words, "--json")
    assert called.code == code
    document = called.document()
    assert codes is None or called.codes() == codes
    assert all(defect["message"] and defect["remedy"] for defect in document["defects"])


def test_what_comes_in_is_followed_until_the_call_is_interrupted(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    call(*EDIT)
    looks = 0

    def interrupt(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            assert spawn("weights", "record", "v", "--changed", "7", "--session", "by-hand-2", cwd=here).code == 0
            assert spawn("weights", "record", "u", "--changed", "8", "--session", "by-hand-1", cwd=here).code == 0
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(session_reading, "sleep", interrupt)
    for words, lines in (
        (("tail", "-f"), [LINE, "v: 7 weights changed", "u: 8 weights changed"]),
        (("show", "by-hand-1", "-f"), [LINE, "u: 8 weights changed"]),
    ):
        looks = 0 if words[0] == "tail" else 1
        called = call(*words)
        assert called.code == 130
        assert [
            line.split("\t")[-1]
            for line in called.out.splitlines()
            if "changed" in line and "\t" in line and "weights changed\t" not in line
        ] == lines


def test_a_store_without_sessions_says_how_they_come(here: Path, call: Caller) -> None:
    call("store", "init")
    assert call("list").out == NO_SESSION + "\n"
    assert call("tail").out == NO_SESSION + "\n"
    assert call("search", "x").out == "no event holds all of these words\n"
