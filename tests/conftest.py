"""The suite is hermetic: what it shows does not depend on who started it, from where, or in which order.

Rules kept here:

1. No test, and no module that a test imports, sees a variable of ``tests.environment``; HOME and the XDG folders are empty temporary
   ones, fresh for every test.
2. A test's changes to the environment and to the working folder end with the test.
3. No test reaches a model hub: the training stack is told to stay offline.
4. Hypothesis draws the same examples every time (profile ``gate``); ``--hypothesis-profile explore`` draws new ones, many more.
5. Tests that load the training stack share one worker: two of them at once fight for cores and memory.
6. Ctrl-C is heard, by the suite and by what it starts: a shell without job control has whatever it starts in the background ignore it, and
   programs hand that on.
"""

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import faults
from tests.environment import foreign
from tests.faults import planted_fault, pytest_generate_tests, pytest_pyfunc_call
from tests.postgres import postgres, postgres_databases, postgres_url

__all__ = [
    "planted_fault",
    "postgres",
    "postgres_databases",
    "postgres_url",
    "pytest_generate_tests",
    "pytest_pyfunc_call",
]

settings.register_profile("gate", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gate")

_TRAINING_STACK = re.compile(r"^\s*(?:import|from)\s+(?:torch|transformers|peft|trl|accelerate|datasets)\b", re.MULTILINE)

#: Rooms whose tests live whole runs through real processes: the gate lives them over the embedded ledger, ``make slow`` over both. What the
#: shared ledger itself has to hold is in the gate for both (tests/store), and so are the commands (tests/cli/test_ledgers.py).
_WHOLE_RUNS = frozenset({"app", "launch", "torture"})


def _stay_hermetic(home: Path) -> None:
    """Takes the foreign variables out and gives the process an empty home."""
    for name in foreign(tuple(os.environ)):
        del os.environ[name]
    for name, folder in {
        "HOME": "",
        "XDG_CONFIG_HOME": "config",
        "XDG_CACHE_HOME": "cache",
        "XDG_DATA_HOME": "data",
        "XDG_STATE_HOME": "state",
        "XDG_RUNTIME_DIR": "runtime",
    }.items():
        (home / folder).mkdir(parents=True, exist_ok=True)
        os.environ[name] = str(home / folder)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TERM": "dumb", "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}


def pytest_configure(config: pytest.Config) -> None:
    """Before the first test module is imported: libraries read variables when they are loaded, and never again."""
    faults.pytest_configure(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    home = tempfile.TemporaryDirectory(prefix="home-", ignore_cleanup_errors=True)
    config.add_cleanup(home.cleanup)
    _stay_hermetic(Path(home.name))


@pytest.fixture(autouse=True)
def hermetic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A clean environment and an empty home for this test, and everything as it was after it."""
    before, folder = dict(os.environ), Path.cwd()
    _stay_hermetic(tmp_path_factory.mktemp("home"))
    yield
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(before)


@cache
def _loads_the_training_stack(module: Path) -> bool:
    return _TRAINING_STACK.search(module.read_text(encoding="utf-8")) is not None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests that load the training stack, marked so or importing it, into one group for one worker."""
    for item in items:
        if item.get_closest_marker("torch") or _loads_the_training_stack(item.path):
            item.add_marker(pytest.mark.xdist_group("torch"))
        if "postgresql" in item.name.partition("[")[2] and item.path.parent.name in _WHOLE_RUNS:
            item.add_marker(pytest.mark.slow)
