"""Every command, called for real on a store of its own; no test trains, so no run converges here."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.app import acting
from countermark.cli.roster import ENTRIES
from countermark.recipe import ROSTER
from countermark.run.claims import Committed, SnapshotStale
from countermark.store.base import SqlStore
from tests.cli.called import Called, Caller
from tests.cli.recipes import LINES, write_recipe
from tests.faults import planted, proven_by

_PUBLISHES_NOTHING: Final = ("run", "recipe.toml", "--", "sh", "-c", "echo working")


@pytest.fixture
def ran(here: Path, call: Caller) -> str:
    """The id of a run whose command ended in success, and which nobody can verify."""
    write_recipe(here)
    assert call(*_PUBLISHES_NOTHING).code == 1
    return str(call("runs", "--json").document()["runs"][0]["run"])


def rows(called: Called) -> list[list[str]]:
    return [line.split("\t") for line in called.out.splitlines()]


def test_resolve_gives_the_manifest_and_the_key(here: Path, call: Caller) -> None:
    recipe = write_recipe(here)
    document = call("resolve", recipe, "--json").document()
    assert list(document["manifest"]) == list(ROSTER)
    assert document["manifest"]["learning_rate"] == "0.0002"
    assert {receipt["axis"] for receipt in document["receipts"]} >= set(LINES) - {"optimizer", "data_order", "method"}
    assert call("key", recipe).out == document["workKey"] + "\n"
    table = rows(call("resolve", recipe))
    assert table[0] == ["coordinate", "value"]
    assert table[1:24] == [[name, spelling] for name, spelling in document["manifest"].items()]
    assert table[24:] == [["work key", "principal"], [document["workKey"], "local"]]


def test_every_open_axis_is_refused_at_once(here: Path, call: Caller) -> None:
    open_ones = ("seed", "rank", "total_steps", "optimizer")
    recipe = write_recipe(here, without=open_ones)
    called = call("resolve", recipe, "--json")
    assert called.code == 1
    assert {(each["code"], each["axis"], each["found"]) for each in called.document()["defects"]} == {
        ("AxisUnresolved", axis, "") for axis in open_ones
    }
    assert "manifest" not in called.document()
    plain = call("resolve", recipe)
    assert (plain.code, plain.out) == (1, "")
    assert [axis for axis in open_ones if f"AxisUnresolved: {axis} is left open" not in plain.err] == []


def test_set_and_overlay_pin_what_is_open(here: Path, call: Caller) -> None:
    recipe = write_recipe(here, without=("seed", "rank"))
    (here / "over.toml").write_text("countermark = 1\n[coordinates]\nrank = 4\nseed = 1\n", encoding="utf-8")
    document = call("resolve", recipe, "--overlay", "over.toml", "--set", "seed=9", "--set", "optimizer.beta1=0.95", "--json").document()
    manifest = document["manifest"]
    assert (manifest["rank"], manifest["seed"]) == ("4", "9")
    assert manifest["optimizer"] == "adamw_torch(beta1=0.95,beta2=0.999,eps=1e-8)"


def test_pin_measures_what_a_source_names_and_says_so(here: Path, call: Caller) -> None:
    recipe = write_recipe(here, without=("dataset",))
    (here / "rows.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n', encoding="utf-8")
    args = ("resolve", recipe, "--set", "sources.dataset=rows.jsonl", "--json")
    assert [(each["code"], each["axis"]) for each in call(*args).document()["defects"]] == [("AxisUnresolved", "dataset")]
    document = call(*args, "--pin").document()
    assert document["pinned"] == [f"dataset = {document['manifest']['dataset']} (content of {here}/rows.jsonl)"]
    (here / "rows.jsonl").write_text('{"text": "one"}\n{"text": "three"}\n', encoding="utf-8")
    assert call(*args, "--pin").document()["workKey"] != document["workKey"]


def test_the_principal_moves_who_counts_and_not_the_digest(here: Path, call: Caller) -> None:
    recipe = write_recipe(here)
    documents = [call("key", recipe, "--explain", "--json", *flags).document() for flags in ((), ("--principal", "team"))]
    assert [document["principal"] for document in documents] == ["local", "team"]
    assert documents[0]["workKey"] == documents[1]["workKey"]
    assert [each["name"] for each in documents[0]["material"]] == ["domain", "requirements", *sorted(ROSTER)]


def test_manifest_diff_names_exactly_what_differs(here: Path, call: Caller, ran: str) -> None:
    write_recipe(here, "other.toml", seed="18", optimizer='{ implementation = "adamw_torch", beta1 = 0.95, beta2 = 0.999, eps = 1e-8 }')
    document = call("manifest", "diff", ran[:8], "other.toml", "--json").document()
    assert document["differing"] == [
        {"coordinate": "seed", "leaf": "seed", "a": "17", "b": "18"},
        {"coordinate": "optimizer", "leaf": "optimizer.beta1", "a": "0.9", "b": "0.95"},
    ]
    assert call("manifest", "diff", ran, "recipe.toml").out == "the manifests are equal: one computation\n"
    assert rows(call("manifest", "diff", "recipe.toml", "other.toml"))[1:] == [
        ["coordinate", "a", "b"], ["seed", "17", "18"], ["optimizer.beta1", "0.9", "0.95"],
    ]  # fmt: skip


def test_run_claims_dispatches_watches_and_says_unverified(here: Path, call: Caller) -> None:
    write_recipe(here)
    called = call(*_PUBLISHES_NOTHING[:2], "--json", *_PUBLISHES_NOTHING[2:])
    document = called.document()
    assert called.code == 1
    assert document["verdict"] == "ObservationRequired" or document["verdict"] == "Blocked"
    assert document["workKey"] == call("key", "recipe.toml").out.strip()
    assert document["sweep"]["order"] == ["terminals", "processes", "outputs", "checkpoints", "manifests", "terminals_again"]
    assert document["defects"] != []
    assert "claimed attempt" in called.err


def test_a_second_run_of_the_same_work_attaches_and_starts_nothing(here: Path, call: Caller, ran: str) -> None:
    again = call("run", "recipe.toml", "--json", "--", "sh", "-c", "echo something else")
    document = again.document()
    assert document["run"] == ran
    assert [each["code"] for each in document["warnings"]] == ["CommandDiffers"]
    assert len(call("attempts", ran, "--json").document()["attempts"]) == 1
    assert len(call("runs", "--json").document()["runs"]) == 1
    assert call("run", "recipe.toml", "--set", "seed=18", "--json", *_PUBLISHES_NOTHING[2:]).document()["run"] != ran
    assert len(call("runs", "--json").document()["runs"]) == 2


def test_the_same_command_from_another_folder_is_warned_of_as_such(
    here: Path, call: Caller, ran: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    document = call("run", "../recipe.toml", "--json", *_PUBLISHES_NOTHING[2:]).document()
    assert document["run"] == ran
    assert [(each["code"], "in another folder" in each["message"]) for each in document["warnings"]] == [("CommandDiffers", True)]


def test_run_hands_on_named_variables_and_no_wait_returns_at_once(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    write_recipe(here)
    monkeypatch.setenv("GIVEN_HERE", "from here")
    args = ("--env", "GIVEN_HERE", "--env", "SAID=so", "--no-wait", "--request", "first", "--as", "ada", "--json")
    called = call("run", "recipe.toml", *args, "--", "sh", "-c", 'printf "%s,%s" "$GIVEN_HERE" "$SAID" > out.txt; sleep 0.2')
    document = called.document()
    assert (called.code, document["waited"]) == (0, False)
    call("reconcile", document["run"], "--watch")
    assert (here / "out.txt").read_text(encoding="utf-8") == "from here,so"
    (listed,) = call("runs", "--json").document()["runs"]
    assert (listed["requester"], listed["request"], listed["name"]) == ("ada", "first", "toy")


def test_status_and_reconcile_carry_verdict_reasons_and_sweep(here: Path, call: Caller, ran: str) -> None:
    for args in (("status", ran), ("status", ran[:8]), ("reconcile", ran), ("reconcile", ran, "--act"), ("reconcile", ran, "--watch")):
        document = call(*args, "--json").document() if call(*args).code == 0 else json.loads(call(*args, "--json").out)
        assert {"run", "workKey", "verdict", "members", "blockers", "whyNot", "sweep"} <= document.keys()
        assert document["run"] == ran
        text = call(*args).out
        assert document["verdict"] in text
        assert f"countermark evidence {ran[:8]}" in text


def test_reconcile_all_and_status_list_what_is_open(here: Path, call: Caller, ran: str) -> None:
    document = call("status", "--json").document()
    assert [each["run"] for each in document["runs"]] == [ran]
    assert document["runs"][0]["verdict"] in ("ObservationRequired", "Blocked")
    every = json.loads(call("reconcile", "--all", "--json").out)
    assert [each["run"] for each in every["runs"]] == [ran]
    assert rows(call("status"))[0][-1] == "verdict"


def test_attempts_claims_and_evidence_show_the_ledger_and_the_axes(here: Path, call: Caller, ran: str) -> None:
    attempts = call("attempts", ran, "--json").document()
    (attempt,) = attempts["attempts"]
    assert (attempt["cause"], attempt["dispatch"], attempt["ended"]) == (["InitialAttempt"], "dispatched", "succeeded")
    assert Path(attempts["folders"][attempt["attempt"]], "claim.json").is_file()
    claims = call("claims", ran, "--json").document()
    assert [each["kind"] for each in claims["claims"]] == ["claim", "intent", "outcome"]
    assert [row[1] for row in rows(call("claims", ran))[1:]] == ["claim", "intent", "outcome"]
    stages = call("evidence", ran, "--json").document()["sweep"]["stages"]
    assert [each["stage"] for each in stages] == ["terminals", "processes", "outputs", "checkpoints", "manifests", "terminals_again"]
    assert [source["arm"] for source in stages[0]["sources"]] == ["observed"]
    assert stages[0]["sources"][0]["members"][0]["attempt"] == attempt["attempt"]
    assert stages[0]["sources"][0]["receipt"]["id"] != ""
    assert rows(call("evidence", ran))[0] == ["stage", "source", "reading", "receipt", "host", "started", "ended"]


def test_a_run_that_nobody_looked_at_says_so(here: Path, call: Caller, ran: str) -> None:
    (here / ".countermark/observations.sqlite").unlink()
    call("store", "init")
    assert call("evidence", ran, "--json").document()["sweep"] is None
    assert call("attempts", ran, "--json").document()["attempts"][0]["ended"] is None
    assert "countermark reconcile" in call("evidence", ran).out


def test_resume_is_refused_where_there_is_nothing_to_go_on_from(here: Path, call: Caller, ran: str) -> None:
    called = call("resume", ran, "--json")
    assert (called.code, called.codes()) == (1, ["ResumeUnavailable"])
    assert f"countermark status {ran[:8]}" in call("resume", ran).err or "countermark status RUN" in call("resume", ran).err


def test_a_person_cancels_and_nothing_of_it_starts_any_more(here: Path, call: Caller) -> None:
    write_recipe(here)
    ran = call("run", "recipe.toml", "--json", "--", "sh", "-c", "exit 3").document()["run"]
    for said in ("cancelled: nothing of it starts any more", "it was cancelled before, by ada"):
        document = call("cancel", ran, "--by", "ada", "--json").document()
        assert (document["verdict"], document["acted"]) == ("Cancelled", [said])
    assert call("retry", ran, "--json").codes() == ["RunCancelled"]
    assert call("reexecute", ran, "--json").codes() == ["RunCancelled"]
    assert "RunCancelled" in call("reexecute", ran).err


def test_what_cannot_be_begun_again_is_refused_with_what_to_do(here: Path, call: Caller, ran: str) -> None:
    called = call("retry", ran, "--json")
    assert (called.code, called.codes()) == (1, ["RetryUnavailable"])
    assert f"countermark status {ran[:8]}" in call("retry", ran).err
    assert call("retry", ran, "--capability", " ", "--json").code == 2
    assert call("reexecute", ran, "--request", "two words", "--json").code == 2
    assert call("cancel", ran, "--by", "two words", "--json").code == 2


def every_version_is_the_one_that_was_looked_at() -> AbstractContextManager[object]:
    return planted(acting, "SnapshotStale", Committed)()


@proven_by(every_version_is_the_one_that_was_looked_at)
def test_a_retry_of_what_moved_meanwhile_did_nothing_and_says_so(here: Path, call: Caller) -> None:
    write_recipe(here)
    run = call("run", "recipe.toml", "--json", "--", "sh", "-c", "exit 3").document()["run"]
    with planted(SqlStore, "claim_start", lambda store, *asked: SnapshotStale(7))():
        called = call("retry", run, "--json")
        assert (called.code, called.codes()) == (1, ["RunMovedMeanwhile"])
        assert f"countermark status {run[:8]}" in call("retry", run).err
    assert len(call("attempts", run, "--json").document()["attempts"]) == 1


def test_an_attempt_is_given_up_and_made_again_by_a_person(here: Path, call: Caller) -> None:
    write_recipe(here)
    failed = call("run", "recipe.toml", "--json", "--", "sh", "-c", "exit 3").document()
    run, (first,) = failed["run"], failed["members"]["attempts"]
    again = call("retry", run, "--capability", "memory-80g", "--by", "ada", "--no-wait", "--json").document()
    assert again["waited"] is False and any("(CapabilityEscalation)" in line for line in again["acted"])
    call("reconcile", run, "--watch")
    assert call("retry", run, "--json").document()["verdict"] == "RetryRequired"
    once_more = call("reexecute", run, "--no-wait", "--json").document()
    assert any("(RequestedReexecution)" in line for line in once_more["acted"])
    given = call("abandon", first[:8], "--by", "ada", "--json").document()
    assert (given["run"], given["acted"]) == (run, [f"attempt {first[:8]} is given up"])
    assert call("abandon", run, "--json").codes() == ["RunNamedForAttempt"]
    facts = call("claims", run, "--json").document()["claims"]
    assert [each["cause"][0] for each in facts if each["kind"] == "claim"] == [
        "InitialAttempt", "CapabilityEscalation", "InfrastructureRetry", "RequestedReexecution",
    ]  # fmt: skip


def test_a_store_is_created_once_checked_and_named(here: Path, call: Caller) -> None:
    first, second = (call("store", "init", "--json").document() for _ in range(2))
    assert (first["created"], second["created"]) == (True, False)
    assert first["store"] == str(here / ".countermark")
    assert call("store", "check").out.startswith("the store is whole")
    elsewhere = f"sqlite:///{here}/elsewhere"
    assert call("store", "init", "--store", elsewhere, "--json").document()["store"] == f"{here}/elsewhere"
    assert call("runs", "--store", elsewhere, "--json").document()["runs"] == []


def test_doctor_says_where_each_setting_came_from(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "countermark.toml").write_text('principal = "team"\n', encoding="utf-8")
    monkeypatch.setenv("COUNTERMARK_GRACE_S", "5")
    monkeypatch.setenv("COUNTERMARK_PRINCIPEL", "typo")
    document = call("doctor", "--json").document()
    found = {each["setting"]: (each["value"], each["source"]) for each in document["settings"]}
    assert found["principal"] == ("team", str(here / "countermark.toml"))
    assert found["grace_s"] == ("5", "COUNTERMARK_GRACE_S")
    assert [(each["code"], each["setting"]) for each in document["warnings"]] == [("SettingUnknown", "COUNTERMARK_PRINCIPEL")]
    assert {each["check"] for each in document["checks"]} >= {"machine", "disk", "store", "torch"}


def test_doctor_answers_where_a_setting_is_wrong(here: Path, call: Caller) -> None:
    (here / "countermark.toml").write_text('principal = "two words"\ngrace = 3\n', encoding="utf-8")
    called = call("doctor", "--json")
    assert (called.code, sorted(called.codes())) == (2, ["SettingUnknown", "SettingUnreadable"])


def test_weights_root_prints_both_digests_with_their_kinds(here: Path, call: Caller) -> None:
    write_safetensors(here / "model.safetensors", {"a": b"\0\0\x80\x3f"})
    document = call("weights", "root", ".", "--json").document()
    assert document["root"].startswith("wr1:")
    assert document["files"].startswith("fd1:")
    assert (document["tensors"], document["bytes"]) == (1, 4)
    several = call("weights", "root", ".", "model.safetensors", "--json").document()
    assert [each["root"] for each in several["weights"]] == [document["root"]] * 2
    assert rows(call("weights", "root", "."))[0] == ["path", "root", "files", "tensors", "bytes", "hashed"]


def write_safetensors(path: Path, tensors: dict[str, bytes]) -> None:
    """A safetensors file of one-dimensional F32 tensors with these bytes."""
    header: dict[str, Any] = {}
    at = 0
    for name, data in tensors.items():
        header[name] = {"dtype": "F32", "shape": [len(data) // 4], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(tensors.values()))


def test_checkpoint_inspect_names_every_missing_component(here: Path, call: Caller) -> None:
    folder = here / "checkpoint-8"
    folder.mkdir()
    write_safetensors(folder / "adapter_model.safetensors", {"base_model.q.lora_A.weight": b"\0\0\x80\x3f"})
    called = call("checkpoint", "inspect", "checkpoint-8", "--json")
    document = called.document()
    assert called.code == 1
    assert document["publication"] == "incomplete"
    assert {name for name, component in document["components"].items() if component["state"] == "missing"} >= {
        "optimizer_state", "scheduler_state", "rng_state",
    }  # fmt: skip
    assert document["admissible"]["resume"] is False
    assert {each["component"] for each in document["defects"] if each["code"] == "ComponentMissing"} >= {
        "optimizer_state", "scheduler_state", "rng_state",
    }  # fmt: skip
    plain = call("checkpoint", "inspect", "checkpoint-8")
    assert plain.code == 1
    assert "ComponentMissing: optimizer_state is missing" in plain.out
    absent = call("checkpoint", "inspect", "checkpoint-9", "--json")
    assert (absent.code, absent.codes()) == (1, ["CheckpointAbsent"])


HOSTILE: Final = "\x1b]0;owned\x07\x1b[31m\u202e\n<script>"


def test_hostile_names_reach_no_terminal_raw(here: Path, call: Caller) -> None:
    recipe = write_recipe(here, f"{HOSTILE.replace('/', '')}.toml".replace("/", ""))
    write_recipe(here, "plain.toml")
    folder = here / f"checkpoint-3{HOSTILE.replace('/', '_')}"
    folder.mkdir()
    write_safetensors(here / "model.safetensors", {HOSTILE: b"\0\0\x80\x3f"})
    calls = [
        ("resolve", recipe, "--set", f"{HOSTILE}=1"),
        ("resolve", HOSTILE),
        ("status", HOSTILE),
        (HOSTILE,),
        ("weights", "root", "model.safetensors"),
        ("weights", "root", str(folder)),
        ("checkpoint", "inspect", str(folder)),
        ("checkpoint", "prune", str(folder), "--keep", "1"),
        ("checkpoint", "prune", str(here), "--keep", "1"),
        ("manifest", "diff", "plain.toml", HOSTILE),
        ("run", "plain.toml", "--request", HOSTILE, "--", "true"),
        ("run", "plain.toml", "--", "sh", "-c", "true", HOSTILE),
    ]
    for args in calls:
        for flags in ((), ("--json",)) if "--" not in args else ((),):
            called = call(*args, *flags)
            raw = [character for character in called.out + called.err if not character.isprintable() and character not in "\n\t"]
            assert (args, flags, raw) == (args, flags, [])


def test_publishing_asks_whose_checkpoint_it_is(here: Path, call: Caller) -> None:
    (here / "checkpoint-4").mkdir()
    called = call("checkpoint", "publish", "checkpoint-4", "--json")
    assert (called.code, called.codes()) == (1, ["AttemptUnnamed"])


def test_pruning_asks_for_a_folder_of_checkpoints(here: Path, call: Caller) -> None:
    absent = call("checkpoint", "prune", "nowhere", "--keep", "1", "--json")
    assert (absent.code, absent.codes()) == (2, ["WrongUsage"])
    (here / "kept").mkdir()
    empty = call("checkpoint", "prune", "kept", "--keep", "1", "--json")
    assert (empty.code, empty.document()["checkpoints"]) == (0, [])


def test_every_command_of_the_roster_is_called_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    uncalled = [entry.name for entry in ENTRIES if 'call("' + '", "'.join(entry.words) + '"' not in text]
    # The story trains for minutes; each has tests of its own.
    apart = ["demo", "adjudicate", "weights diff", "weights apply-root", "weights composition"]
    sessions = [
        "weights record",
        "list",
        "show",
        "search",
        "tail",
        "import transcript",
        "export",
        "serve",
        "mcp",
        "token add",
        "token list",
        "token revoke",
    ]
    assert uncalled == [*apart, *sessions, "store migrate", "store prune"]
