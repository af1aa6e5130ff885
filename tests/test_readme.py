"""The first page is run: each command of its blocks in its order, on a tiny model, and its training script as the COMMAND of a run."""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.cli.main import main
from tests.contract import definition, misfits
from tests.test_docs import targets
from tests.test_guides import blocks
from tests.train.tiny import CLEAN, make_model, text_rows

ROOT: Final = Path(__file__).resolve().parent.parent
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
_PROMPT: Final = re.compile(r"^\$ (.*)$", re.MULTILINE)
_TIMEOUT_S: Final = 120


def commands(page: str) -> list[list[str]]:
    """The words of each line with a prompt in a page's console blocks, in their order, without its comment."""
    return [shlex.split(line, comments=True) for block in blocks(page, "console") for line in _PROMPT.findall(block)]


def missing_targets(page: str, makefile: str) -> list[str]:
    """What a page's console blocks let ``make`` make, and the Makefile does not have."""
    known = targets(makefile)
    return [name for program, *names in commands(page) if program == "make" for name in names or ["help"] if name not in known]


def countermark(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """One call of the command line in a folder; ``python`` is this interpreter, and computes with one thread."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "countermark.cli.main", *args],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def answer(folder: Path, *args: str) -> dict[str, Any]:
    """The document that a command answers with, asked within this process: what the page does not say itself need not take long."""
    said = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(said):
        code = main(args)
    assert code == 0, said.getvalue()
    document = json.loads(said.getvalue())
    assert isinstance(document, dict)
    assert misfits(definition(args), document) == []
    return document


def write_recipe(folder: Path, pinned: Mapping[str, str]) -> None:
    """The recipe with these coordinates beside the clean ones, and with its sources."""
    coordinates = {**pinned, **{name: text for name, text in CLEAN.items() if name not in pinned}, "total_steps": "2"}
    lines = (f"{name} = {json.dumps(text)}" for name, text in coordinates.items())
    sources = ('model = "model"', 'tokenizer = "model"', 'dataset = "rows.jsonl"')
    text = ("countermark = 1", "[coordinates]", *lines, "[sources]", *sources, "[trainer]", "save_steps = 1", "threads = 1", "")
    (folder / "recipe.toml").write_text("\n".join(text), encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with a model, rows, and a recipe whose hashes ``--pin`` has measured."""
    made = tmp_path_factory.mktemp("readme")
    make_model(made / "model")
    (made / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in text_rows()), encoding="utf-8")
    write_recipe(made, {})
    manifest = answer(made, "resolve", "recipe.toml", "--pin", "--json")["manifest"]
    write_recipe(made, {name: manifest[name] for name in ("base_artifact", "tokenization", "dataset")})
    return made


@pytest.mark.torch
def test_the_commands_of_the_first_page_lead_to_convergence(folder: Path) -> None:
    words = [rest for program, *rest in commands(README) if program == "countermark"]
    assert [command[0] for command in words] == ["resolve", "key", "run", "status", "reconcile"]
    said: dict[str, str] = {}
    for command in words:
        run = answer(folder, "runs", "--json")["runs"][0]["run"] if "RUN" in command else ""
        called = countermark(folder, *(run if word == "RUN" else word for word in command))
        assert called.returncode == 0, called.stdout + called.stderr
        said[command[0]] = called.stdout
    (run,) = (each["run"] for each in answer(folder, "runs", "--json")["runs"])
    assert answer(folder, "status", run, "--json")["verdict"] == "Converged"
    attempts = answer(folder, "attempts", run, "--json")
    assert [each["cause"] for each in attempts["attempts"]] == [["InitialAttempt"]]
    (attempt,) = (Path(path) for path in attempts["folders"].values())
    checkpoint = answer(folder, "checkpoint", "inspect", str(attempt / "checkpoints/step-1"), "--for", run, "--json")
    assert checkpoint["admissible"]["resume"] is True
    assert answer(folder, "weights", "root", str(attempt / "output"), "--json")["root"].startswith("wr1:")
    for words in (("claims", run), ("evidence", run), ("reconcile", run), ("store", "check")):
        answer(folder, *words, "--json")
    assert said["status"].startswith("no run is open: every one has converged")
    work = answer(folder, "key", "recipe.toml", "--json")["workKey"]
    assert [name for name in ("resolve", "key", "run", "reconcile") if work not in said[name]] == []


@pytest.mark.torch
def test_the_script_of_the_first_page_converges(folder: Path) -> None:
    (script,) = blocks(README, "python")
    (folder / "train.py").write_text(script, encoding="utf-8")
    called = countermark(folder, "run", "recipe.toml", "--set", "seed=18", "--json", "--", "python", "train.py")
    assert called.returncode == 0, called.stdout + called.stderr
    document = json.loads(called.stdout)
    assert misfits("run", document) == []
    assert (document["verdict"], document["whyNot"], document["notes"]) == ("Converged", [], [])
    assert Path(document["members"]["candidate"]["path"], "adapter_model.safetensors").is_file()


def test_what_the_first_page_makes_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [words for words in commands(README) if words[0] == "make"] == [["make", "demo"], ["make", "test"]]
    assert missing_targets(README, makefile) == []
    assert missing_targets(README, makefile.replace("\ntest:", "\ntests:")) == ["test"]


def test_every_line_of_a_console_block_is_found_and_is_ours() -> None:
    page = "```console\n$ countermark run a -- b  # c\nsaid\n$ make x y\n```\n\n```sh\n$ no\n```\n"
    assert commands(page) == [["countermark", "run", "a", "--", "b"], ["make", "x", "y"]]
    assert {words[0] for words in commands(README)} == {"countermark", "make"}
