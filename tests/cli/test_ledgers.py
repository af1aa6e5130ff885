"""The same commands over a ledger in a folder and one in a database: where it is named, what they answer, and what stays on the host."""

import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from countermark.store import opening
from tests.cli.called import Called, Caller
from tests.cli.recipes import write_recipe
from tests.faults import planted, proven_by

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
