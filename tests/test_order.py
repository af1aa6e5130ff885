"""The import order is executed: the contract in pyproject.toml refuses what it is there to refuse, on trees planted for it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent


def lint(folder: Path, modules: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs the repository's own contracts over a package of that name, made of the given modules (path → text)."""
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8"), encoding="utf-8")
    for name, text in {"__init__.py": "", "values.py": "", **modules}.items():
        path = folder / "src" / "countermark" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for package in path.parents:
            if package.is_relative_to(folder / "src" / "countermark"):
                (package / "__init__.py").touch()
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-logo", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def test_a_tree_in_order_passes(tmp_path: Path) -> None:
    run = lint(
        tmp_path,
        {
            "recipe/__init__.py": "from countermark.values import x",
            "run.py": "from countermark.recipe import y",
            "store.py": "def f():\n    from countermark.run import z",
            "cli/main.py": "from countermark import store",
        },
    )
    assert (run.returncode, "1 kept, 0 broken" in run.stdout) == (0, True), run.stdout + run.stderr


@pytest.mark.parametrize(
    ("modules", "named"),
    [
        ({"recipe.py": "", "values.py": "from countermark import recipe"}, "countermark.values -> countermark.recipe"),
        ({"store.py": "", "run/deep/a.py": "def f():\n    import countermark.store"}, "countermark.run.deep.a -> countermark.store"),
        ({"evidence.py": "", "sessions.py": "import countermark.evidence"}, "countermark.sessions -> countermark.evidence"),
        ({"store.py": "", "observe.py": "import countermark.store"}, "countermark.observe -> countermark.store"),
        ({"newcomer.py": ""}, "countermark.newcomer"),
    ],
    ids=["upwards", "upwards inside a function", "heart strangers", "rim strangers", "a room without a place"],
)
def test_what_is_out_of_order_is_named(tmp_path: Path, modules: dict[str, str], named: str) -> None:
    run = lint(tmp_path, modules)
    assert run.returncode == 1, run.stdout + run.stderr
    assert named in run.stdout.replace("\n", " ")


def test_every_folder_of_code_is_a_package() -> None:
    """A folder without ``__init__.py`` is invisible to the contract: what it imports would never be looked at."""
    folders = {path.parent for path in (ROOT / "src" / "countermark").rglob("*.py")}
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").is_file()) == []
