"""Ctrl-C at any moment: one line, exit code 130, no traceback, and a ledger from which the same command goes on."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.cli.entry import SAID
from tests.cli import test_interrupts as here_module
from tests.cli.called import PROGRAM, Called, spawn
from tests.cli.recipes import write_recipe
from tests.faults import planted, proven_by

ENTRY: Final = "countermark.cli.entry"

#: Sends the signal to itself when a module is looked for, at its first import.
_WHEN_IMPORTED: Final = """
import os, signal, sys
wanted, entry, *sys.argv[1:] = sys.argv[1:]
class Sends:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Sends())
from importlib import import_module
sys.exit(import_module(entry).main())
"""

#: Sends the signal to itself in a finalizer, where Python lets nothing be raised, and works on.
_SWALLOWED: Final = """
import os, signal, sys, time
class Dies:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass
import countermark.cli.main as real
def call():
    Dies()
    time.sleep(5)
    print("it went on")
    return 0
real.main = call
from importlib import import_module
sys.exit(import_module(sys.argv[1]).main())
"""


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """A shell starts what it puts into the background with the signal ignored, and so would every process of these tests be."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def python(program: str, *args: str, cwd: Path) -> Called:
    done = subprocess.run([sys.executable, "-c", program, *args], cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    return Called(done.returncode, done.stdout, done.stderr, args)


def nothing_is_installed_before() -> Any:
    return planted(here_module, "ENTRY", "countermark.cli.main")()


@pytest.mark.parametrize("module", ["countermark.cli.main", "typer", "difflib"])
@proven_by(nothing_is_installed_before)
def test_an_interrupt_while_the_program_is_still_loaded_leaves_one_line(here: Path, module: str) -> None:
    called = python(_WHEN_IMPORTED, module, here_module.ENTRY, "runs", cwd=here)
    assert (called.code, called.out, called.err) == (130, "", f"{SAID}\n")


@pytest.mark.parametrize("module", ["sqlalchemy", "countermark.store.sqlite", "countermark.app.running", "countermark.launch.local"])
def test_so_does_one_while_a_command_is_loaded(here: Path, module: str) -> None:
    write_recipe(here)
    called = python(_WHEN_IMPORTED, module, ENTRY, "run", "recipe.toml", "--", "true", cwd=here)
    assert (called.code, called.out, called.err) == (130, "", f"{SAID}\n")


@proven_by(nothing_is_installed_before)
def test_an_interrupt_that_is_swallowed_comes_once_more(here: Path) -> None:
    began = time.monotonic()
    called = python(_SWALLOWED, here_module.ENTRY, cwd=here)
    assert (called.code, called.out, called.err) == (130, "", f"{SAID}\n")
    assert time.monotonic() - began < 5


def test_who_is_started_with_the_signal_ignored_keeps_it_ignored(here: Path) -> None:
    shell = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", _WHEN_IMPORTED, "typer", ENTRY, "--version"]
    done = subprocess.run(shell, cwd=here, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# ------------------------------------------------------------------------------------------------------- at random moments


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, here: Path) -> Iterator[str]:
    """Where the ledger is."""
    yield str(request.getfixturevalue("postgres_url")) if request.param == "postgresql" else f"sqlite:///{here}/.countermark"


#: How many moments are tried on each ledger; they lie between the first import and the last sweep.
MOMENTS: Final = 4
LONGEST_S: Final = 1.2


def interrupted(here: Path, args: tuple[str, ...], after_s: float) -> Called:
    """The call, interrupted after so many seconds unless it had ended."""
    with subprocess.Popen([*PROGRAM, *args], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            process.wait(timeout=after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    return Called(process.returncode, out, err, args)


def moments(seed: int, count: int) -> list[float]:
    draw = random.Random(seed)
    return [draw.uniform(0.1, LONGEST_S) for _ in range(count)]


def test_ctrl_c_at_random_moments_leaves_what_the_same_command_carries_on_with(here: Path, address: str) -> None:
    write_recipe(here)
    os.environ["COUNTERMARK_WATCH_INTERVAL_S"] = "0.05"
    codes: set[int] = set()
    for number, after_s in enumerate(moments(17, MOMENTS)):
        count = here / f"count-{number}"
        command = ("sh", "-c", f"echo x >> {count}; sleep 0.2; exit 3")
        args = ("run", "recipe.toml", "--request", f"r{number}", "--store", address, "--json", "--", *command)
        first = interrupted(here, args, after_s)
        # Until the interpreter reads a line of ours it ends in its own way: by the signal, or with a traceback of its own start.
        not_ours = "countermark" not in first.err and (first.code, first.out) in ((-signal.SIGINT, ""), (1, ""))
        if not not_ours:
            assert first.code in (130, 1) and "Traceback" not in first.err and "ignored" not in first.err, (after_s, first)
        assert first.code != 130 or (first.out, first.err.splitlines()[-1]) == ("", SAID), (after_s, first)
        codes.add(first.code)
        again = spawn(*args, cwd=here).document()
        assert (again["verdict"], len(again["members"]["attempts"])) == ("RetryRequired", 1), (after_s, again)
        assert count.read_text(encoding="utf-8") == "x\n", f"started more than once after {after_s} s"
    assert 130 in codes, "none of them was interrupted"
    checked = spawn("store", "check", "--store", address, cwd=here)
    assert checked.code == 0, checked
    assert {each["verdict"] for each in spawn("status", "--store", address, "--json", cwd=here).document()["runs"]} == {"RetryRequired"}
