"""The public surface is held by a test: a name joins it, or leaves it, on purpose."""

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Final

import countermark

#: What ``from countermark import …`` may take. Everything else is a room's own.
PUBLIC: Final[frozenset[str]] = frozenset()

#: Importing the package costs next to nothing: none of these is loaded by it.
_HEAVY: Final = ("torch", "transformers", "peft", "numpy", "sqlalchemy", "msgspec", "typer", "click", "rich", "psycopg")


def test_the_public_names_are_exactly_these() -> None:
    assert set(getattr(countermark, "__all__", ())) == PUBLIC
    visible = {name for name, value in vars(countermark).items() if not name.startswith("_") and not isinstance(value, types.ModuleType)}
    assert visible == PUBLIC


def test_the_package_says_what_it_is_and_is_typed() -> None:
    assert countermark.__doc__
    assert [path for path in countermark.__path__ if not Path(path, "py.typed").is_file()] == []


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import countermark, json, sys; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
    loaded = set(json.loads(run.stdout))
    assert "countermark" in loaded
    assert loaded & set(_HEAVY) == set()
