"""The same commands over a ledger in a folder and one in a database: where it is named, what they answer, and what stays on the host."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from countermark.store import opening
from countermark.store.opening import open_store
from tests.cli.called import PROGRAM, Called, Caller
from tests.cli.recipes import write_recipe
from tests.faults import planted, proven_by
from tests.store.past import Past

LEDGERS: Final = ("sqlite", "postgresql")


@pytest.fixture
def address(request: pytest.FixtureRequest, here: Path) -> str:
    """Where the ledger is."""
    kind = getattr(request, "param", "postgresql")
    return str(request.getfixturevalue("postgres_url")) if kind == "postgresql" else f"sqlite:///{here}/elsewhere/.countermark"


BOTH: Final = pytest.mark.parametrize("address", LEDGERS, indirect=True)


def started(call: Caller, here: Path, *flags: str, code: int = 3) -> str:
    """A run whose command ended with this exit code."""
    write_recipe(here)
    called = call("run", "recipe.toml", "--json", *flags, "--", "sh", "-c", f"echo x >> count; exit {code}")
    assert called.code == 1, called.err
    return str(called.document()["run"])


# ------------------------------------------------------------------------------------------------ where the ledger is named


@pytest.mark.parametrize("told", ["flag", "variable", "project file", "user file"])
def test_a_database_is_named_by_a_flag_a_variable_or_a_file(
    here: Path, call: Caller, address: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: tuple[str, ...] = ("--store", address) if told == "flag" else ()
    if told == "variable":
        monkeypatch.setenv("COUNTERMARK_STORE_URL", address)
    if told == "project file":
        (here / "countermark.toml").write_text(f'[store]\nurl = "{address}"\n', encoding="utf-8")
    if told == "user file":
        monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "config"))
        (here / "config" / "countermark").mkdir(parents=True)
        (here / "config" / "countermark" / "config.toml").write_text(f'[store]\nurl = "{address}"\n', encoding="utf-8")
    run = started(call, here, *flags)
    assert [each["run"] for each in call("runs", *flags, "--json").document()["runs"]] == [run]
    attempts = call("attempts", run, *flags, "--json").document()
    (folder,) = attempts["folders"].values()
    assert Path(folder, "terminal.json").is_file() and Path(folder).parent == here / ".countermark" / "attempts"
    assert not list((here / ".countermark").glob("*.sqlite")), "no ledger lies in the folder"
    assert call("store", "check", *flags).code == 0
    checks = {each["check"]: each for each in call("doctor", *flags, "--json").document()["checks"]} if told != "flag" else {}
    assert not checks or checks["store"]["ok"]


def test_a_store_in_a_database_is_made_once_and_named_without_its_password(here: Path, call: Caller, address: str) -> None:
    secret = address.replace("postgres@", "postgres:geheim@")
    first, second = (call("store", "init", "--store", secret, "--json") for _ in range(2))
    assert (first.document()["created"], second.document()["created"]) == (True, False)
    assert call("runs", "--store", secret, "--json").document()["runs"] == []
    assert "geheim" not in first.out + first.err + call("store", "check", "--store", secret).out
    assert not (here / ".countermark").exists(), "looking leaves nothing in the folder"


def fault_of(called: Called) -> tuple[str, str, str]:
    assert (called.code, called.codes()) == (3, ["EnvironmentFault"])
    (defect,) = called.document()["defects"]
    return defect["fault"], defect["message"], defect["remedy"]


def drivers_are_not_asked_for() -> Any:
    return planted(opening, "is_postgresql", lambda url: False)()


@proven_by(drivers_are_not_asked_for)
@pytest.mark.parametrize("args", [("runs",), ("store", "init"), ("reconcile", "--all"), ("status",)])
def test_a_driver_that_is_not_installed_is_named_with_the_extra_that_brings_it(
    here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    fault, message, remedy = fault_of(call(*args, "--store", "postgresql://ada:geheim@host/runs", "--json"))
    assert (fault, remedy) == ("DriverMissing", "pip install 'countermark[postgres]'")
    assert message.startswith("the driver for this database is not installed: ") and "geheim" not in message


def test_what_is_wrong_with_a_server_is_said_with_what_mends_it(here: Path, call: Caller, address: str) -> None:
    absent = address.replace("/t", "/no_such_", 1)
    assert fault_of(call("runs", "--store", absent, "--json"))[0] == "DatabaseMissing"
    assert fault_of(call("runs", "--store", address, "--json"))[::2] == (
        "StoreMissing", "go to the project's folder, or create one: countermark store init",
    )  # fmt: skip
    nowhere = f"postgresql://ada:geheim@/runs?host={quote(str(here))}"
    fault, message, _ = fault_of(call("run", write_recipe(here), "--store", nowhere, "--json", "--", "true"))
    assert fault == "ServerUnreachable" and "geheim" not in message


# -------------------------------------------------------------------------------------------------- what commands answer


@BOTH
def test_every_decision_is_recorded_and_told_the_same_way(here: Path, call: Caller, address: str) -> None:
    """From a failed attempt through retry, re-execution, abandonment and a ruling to a cancellation, and an old look replayed."""
    at = ("--store", address)
    run = started(call, here, *at)
    first = call("status", run, *at, "--json").document()
    (failed,) = first["members"]["attempts"]
    assert (first["verdict"], call("reconcile", run, "--act", *at, "--json").codes()) == ("RetryRequired", ["RetriesUsedUp"])
    assert call("reconcile", run, "--act", "--watch", "--retries", "1", *at, "--json").document()["verdict"] == "RetryRequired"
    assert call("retry", run, "--by", "ada", *at, "--json").document()["verdict"] == "RetryRequired"
    assert call("reexecute", run, "--by", "ada", *at, "--json").document()["verdict"] == "RetryRequired"
    assert call("resume", run, *at, "--json").codes() == ["ResumeUnavailable"]
    assert call("abandon", failed[:8], "--by", "ada", *at, "--json").document()["acted"] == [f"attempt {failed[:8]} is given up"]
    assert len((here / "count").read_text(encoding="utf-8").splitlines()) == 4
    claims = call("claims", run, *at, "--json").document()["claims"]
    assert [each["cause"][0] for each in claims if each["kind"] == "claim"] == [
        "InitialAttempt", "InfrastructureRetry", "InfrastructureRetry", "RequestedReexecution",
    ]  # fmt: skip
    blocked = started(call, here, "--request", "blocked", *at, code=0)
    ruled = call("adjudicate", blocked, "--set-aside", "--reason", "it never wrote", *at, "--json").document()
    assert (ruled["verdict"], ruled["notes"][0]["effect"]) == ("RetryRequired", "settled")
    document = call("status", blocked, *at, "--json").document()
    swept = call("evidence", blocked, *at, "--json").document()["sweep"]["id"]
    replayed = call("reconcile", blocked, "--from-sweep", swept[:8], *at, "--json").document()
    assert (replayed["replay"]["equal"], replayed["verdict"]) == (True, document["verdict"])
    assert call("cancel", blocked, "--by", "ada", *at, "--json").document()["verdict"] == "Cancelled"
    assert [each["run"] for each in call("status", *at, "--json").document()["runs"]] == [run]
    assert {each["run"]: each["cancelled"] for each in call("runs", *at, "--json").document()["runs"]} == {run: False, blocked: True}
    assert call("manifest", "diff", run, blocked, *at).code == 0
    assert call("store", "check", *at, "--json").document()["ok"] is True


@BOTH
def test_several_controllers_of_all_runs_start_each_once(here: Path, call: Caller, address: str) -> None:
    """As many processes as there may be, over one ledger and without a word between them."""
    write_recipe(here)
    runs = []
    for number in range(6):
        args = ("run", "recipe.toml", "--request", f"r{number}", "--no-wait", "--store", address, "--json")
        command = ("sh", "-c", f"echo x >> count-{number}; exit 3")
        called = call(*args, "--", *command)
        runs.append(str(called.document()["run"]))
    controllers = [
        subprocess.Popen(
            [*PROGRAM, "reconcile", "--all", "--act", "--watch", "--retries", "1", "--store", address, "--json"],
            cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    said = [process.communicate(timeout=120) for process in controllers]
    assert all("Traceback" not in err for _, err in said), said
    for number, run in enumerate(runs):
        lines = (here / f"count-{number}").read_text(encoding="utf-8").splitlines()
        causes = [each["cause"][0] for each in call("attempts", run, "--store", address, "--json").document()["attempts"]]
        assert (lines, causes) == (["x", "x"], ["InitialAttempt", "InfrastructureRetry"])
    assert call("store", "check", "--store", address).code == 0


@BOTH
def test_a_damaged_run_is_named_in_every_list_and_the_others_go_on(here: Path, call: Caller, address: str) -> None:
    at = ("--store", address)
    damaged, fine = started(call, here, *at), started(call, here, "--request", "fine", *at)
    with open_store(address, create=False) as store:
        Past(store, address).change(f"UPDATE runs SET requester = 'two words' WHERE run_id = '{damaged}'")
    listed = {each["run"]: [defect["code"] for defect in each["defects"]] for each in call("runs", *at, "--json").document()["runs"]}
    assert listed == {damaged: ["RowUnreadable"], fine: []}
    every = call("reconcile", "--all", *at, "--json")
    assert (every.code, every.codes()) == (1, ["RowUnreadable"])
    assert {each["run"]: each.get("verdict") for each in every.document()["runs"]} == {damaged: None, fine: "RetryRequired"}
    assert {each["run"] for each in call("status", *at, "--json").document()["runs"]} == {damaged, fine}
    assert call("status", damaged, *at, "--json").codes() == ["RowUnreadable"]
    assert call("store", "check", *at).code == 1
