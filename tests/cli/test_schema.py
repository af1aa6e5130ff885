"""The published schema takes every document that the commands print, and nothing that lacks a field, has another type, or has one more."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from jsonschema import Draft202012Validator

from countermark.cli import schema
from countermark.cli.roster import ENTRIES
from countermark.lines.conclusion import conclusion_document
from countermark.lines.defects import CODES, defect_document
from countermark.lines.runs import sweep_document
from countermark.recipe import ROSTER
from countermark.verdict.kinds import Verdict
from tests.cli.called import Caller
from tests.cli.recipes import write_recipe
from tests.cli.test_commands import write_safetensors
from tests.contract import PUBLISHED, definition, fits, misfits, published
from tests.faults import planted, proven_by
from tests.lines.samples import SAMPLES
from tests.lines.test_conclusion import SCENES
from tests.verdict.scenes import concluded, sweep

_COMMAND: Final = ("--", "sh", "-c", "echo working")


@proven_by(planted(schema, "STAGES", schema.STAGES[:-1]))
def test_the_published_schema_is_what_the_program_says_now() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == schema.text(), "write it again: make docs"


def test_writing_and_checking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert schema.main(["--check"]) == 1
    assert not schema.PATH.exists()
    assert schema.main([]) == 0
    assert schema.main(["--check"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"stale: {schema.PATH}", f"written: {schema.PATH}"]


def test_the_schema_is_one_and_names_every_command_code_and_verdict() -> None:
    Draft202012Validator.check_schema(published())
    taking = {entry.name.replace(" ", "-") for entry in ENTRIES if schema.takes_json(entry.name)}
    assert {entry.name.replace(" ", "-") for entry in ENTRIES} - taking == {"demo", "mcp", "serve"}
    definitions = published()["$defs"]
    assert [each["$ref"].removeprefix("#/$defs/") for each in published()["anyOf"]] == [name for name in definitions if name in taking]
    verdicts = {f"verdict{arm.__name__}" for arm in get_args(Verdict)}
    assert definitions.keys() >= taking | set(CODES) | verdicts
    assert definitions["resolve"]["anyOf"][0]["properties"]["manifest"]["required"] == list(ROSTER)


def changed(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A document broken in one place each: without a field, with a field of another type, with one more; and in two at once."""
    for key in document:
        yield f"without {key}", {name: value for name, value in document.items() if name != key}
        yield f"{key} of another type", {**document, key: {"surely": ["not this"]}}
    yield "one more", {**document, "surplus": 1}
    first, *_, last = document
    yield "two at once", {**{name: value for name, value in document.items() if name != first}, last: {"surely": ["not this"]}}


@pytest.mark.parametrize("code", CODES)
def test_a_defects_document_is_taken_and_each_change_of_it_refused(code: str) -> None:
    document = defect_document(SAMPLES[code])
    assert misfits("defect", document) == []
    assert misfits(code, document) == []
    assert [what for what, broken in changed(document) if fits(code, broken)] == []
    assert not fits("defect", {**document, "surplus": 1})


@pytest.fixture
def ran(here: Path, call: Caller) -> str:
    """The id of a run that nobody can verify, in a folder with recipes and weights."""
    write_recipe(here)
    write_recipe(here, "open.toml", without=("rank", "seed"))
    write_safetensors(here / "model.safetensors", {"a": b"\0\0\x80\x3f"})
    (here / "none.jsonl").write_bytes(b"")
    call("run", "recipe.toml", *_COMMAND)
    (listed,) = json.loads(call("runs", "--json").out)["runs"]
    return str(listed["run"])


#: A call of each command, RUN standing for the run's id; behind it the exit code.
CALLS: Final = (
    (("doctor",), 0),
    (("resolve", "recipe.toml"), 0),
    (("resolve", "open.toml"), 1),
    (("resolve", "gone.toml"), 2),
    (("key", "recipe.toml"), 0),
    (("key", "recipe.toml", "--explain"), 0),
    (("manifest", "diff", "recipe.toml", "RUN"), 0),
    (("run", "recipe.toml"), 1),
    (("run", "recipe.toml", "--set", "seed=18", "--no-wait"), 0),
    (("resume", "RUN"), 1),
    (("retry", "RUN"), 1),
    (("reexecute", "RUN"), 1),
    (("abandon", "RUN"), 1),
    (("adjudicate", "RUN", "--set-aside", "--reason", "torn"), 0),
    (("cancel", "RUN", "--no-wait"), 0),
    (("status",), 0),
    (("status", "RUN"), None),
    (("runs",), 0),
    (("reconcile", "RUN"), None),
    (("reconcile", "--all"), None),
    (("attempts", "RUN"), 0),
    (("claims", "RUN"), 0),
    (("evidence", "RUN"), 0),
    (("checkpoint", "inspect", "."), 1),
    (("checkpoint", "inspect", ".", "gone"), 1),
    (("checkpoint", "publish", "."), 1),
    (("checkpoint", "prune", ".", "--keep", "1"), 0),
    (("weights", "root", "."), 0),
    (("weights", "root", ".", "recipe.toml"), 1),
    (("weights", "diff", ".", "."), 0),
    (("weights", "apply-root", ".", "none.jsonl"), 0),
    (("weights", "composition", "."), 1),
    (("weights", "record", "a", "--changed", "1", "--session", "by-hand-1"), 0),
    (("list",), 0),
    (("show", "by-hand-1"), 0),
    (("show", "none"), 1),
    (("search", "a"), 0),
    (("tail",), 0),
    (("import", "transcript", "none.jsonl"), 0),
    (("export", "--to", "all.csv"), 0),
    (("export",), 2),
    (("token", "add", "sdk", "--scope", "ingest"), 0),
    (("token", "add", "*", "--scope", "everything"), 1),
    (("token", "list"), 0),
    (("token", "revoke", "sdk"), 0),
    (("token", "revoke", "none"), 1),
    (("store", "init"), 0),
    (("store", "migrate"), 0),
    (("store", "check"), 0),
    (("store", "prune", "--keep-days", "30"), 0),
)


def asked(call: Caller, ran: str, words: tuple[str, ...]) -> tuple[int, Any]:
    """Exit code and document of a call."""
    args = (*(ran if word == "RUN" else word for word in words), "--json", *(_COMMAND if words[0] == "run" else ()))
    called = call(*args)
    return called.code, json.loads(called.out)


def test_every_command_is_called() -> None:
    assert {definition(words) for words, _ in CALLS} == {entry.name.replace(" ", "-") for entry in ENTRIES if schema.takes_json(entry.name)}


def test_real_documents_are_taken_and_each_change_of_one_refused(call: Caller, ran: str) -> None:
    found = []
    for words, code in CALLS:
        ended, document = asked(call, ran, words)
        name = definition(words)
        assert misfits(name, document) == [], words
        assert code is None or ended == code, (words, document)
        # What is left of a refusal without its only field of its own is a plain refusal.
        taken = [what for what, broken in changed(document) if fits(name, broken) and not fits("refusal", broken)]
        found += [(words, what) for what in taken if not allowed(name, what)]
    assert found == []


def allowed(name: str, what: str) -> bool:
    """Fields that a document of a command may be without, as the schema says on purpose."""
    return what in {
        "run": ("without waited",),
        "adjudicate": ("without waited",),
        "cancel": ("without waited",),
        "checkpoint-inspect": (
            "without publicationWhy", "without digest", "without attempt", "without workKey", "without microBatches",
        ),
    }.get(name, ())  # fmt: skip


def test_a_verdict_and_its_members_belong_together(call: Caller, ran: str) -> None:
    _, document = asked(call, ran, ("status", "RUN"))
    assert misfits("status", document) == []
    assert not fits("status", {**document, "verdict": "Converged"})
    assert not fits("status", {**document, "verdict": "InProgress", "blockers": [defect_document(SAMPLES["SeveralOutputs"])]})
    assert not fits("status", {**document, "verdict": "Blocked", "blockers": []})
    assert not fits("status", {**document, "verdict": "Invented"})
    sweep = copy.deepcopy(document["sweep"])
    sweep["stages"][0]["sources"][0]["receipt"]["host"] = 7
    assert not fits("status", {**document, "sweep": sweep})
    assert not fits("status", {**document, "sweep": {**document["sweep"], "id": None}})


def test_evidence_names_the_sweep_that_a_status_recorded(call: Caller, ran: str) -> None:
    _, status = asked(call, ran, ("status", "RUN"))
    _, evidence = asked(call, ran, ("evidence", "RUN"))
    assert evidence["sweep"] == status["sweep"]
    assert len(evidence["sweep"]["id"]) == 32


def test_a_document_that_is_well_carries_no_defect(call: Caller, ran: str) -> None:
    _, document = asked(call, ran, ("key", "recipe.toml"))
    defect = defect_document(SAMPLES["ResumeUnavailable"])
    assert fits("key", {**document, "warnings": [defect]})
    assert not fits("key", {**document, "defects": [defect]})
    assert fits("key", {**document, "ok": False, "defects": [defect]})


@pytest.mark.parametrize("arm", list(SCENES))
def test_a_conclusion_of_every_arm_is_taken_and_fits_no_arm_with_other_members(arm: str) -> None:
    scene = SCENES[arm]
    seen, conclusion = sweep(scene), concluded(scene)
    document: dict[str, Any] = {
        "ok": False,
        "run": "0" * 32,
        "name": "scene",
        "workKey": seen.ledger.desired.demand.work.spell(),
        **conclusion_document(conclusion),
        "acted": [],
        "sweep": sweep_document("f" * 32, seen.reads, seen.cut),
        "defects": [],
        "warnings": [],
    }
    assert document["verdict"] == arm
    assert misfits("status", document) == []
    blocked = [defect_document(SAMPLES["SeveralOutputs"])]
    others = {name: {**document, "verdict": name, "blockers": blocked if name == "Blocked" else []} for name in SCENES if name != arm}
    alike = {name for name in SCENES if published()["$defs"][f"verdict{name}"] == published()["$defs"][f"verdict{arm}"]}
    # A blocked run's attempts may be none where a verdict's own may not.
    listed = {"Blocked", "StopRequired", "InProgress", "LaunchDispatchRequired", "LaunchPending", "Lost", "RetryRequired"}
    assert {name for name, other in others.items() if fits("status", other)} == (listed if arm in listed else alike) - {arm}
