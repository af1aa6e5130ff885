"""A folder in which ``countermark run recipe.toml -- python script.py`` trains the tiny model, and what became of it."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.cli.called import Caller
from tests.cli.recipes import write_recipe
from tests.train.tiny import CLEAN, make_model, text_rows

COMMAND: Final = (sys.executable, "script.py")
_CONTENT: Final = ("base_artifact", "tokenization", "dataset")
_SOURCES: Final = '\n[sources]\nmodel = "model"\ntokenizer = "model"\ndataset = "rows.jsonl"\n\n[trainer]\n'
_SETTINGS: Final[Mapping[str, int]] = {"save_steps": 2, "keep_checkpoints": 9, "threads": 1}


def laid_out(
    folder: Path, script: str, monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, int] | None = None, **spellings: str
) -> Path:
    """The folder, with a model, rows, this script, and the recipe of the clean computation with these spellings; it is the working folder
    from now on."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    make_model(folder / "model")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in text_rows()), encoding="utf-8")
    listed = {name: f'"{text}"' for name, text in {**CLEAN, **spellings}.items()} | {"target_modules": '["q_proj", "v_proj"]'}
    write_recipe(folder, without=_CONTENT, **listed)
    with open(folder / "recipe.toml", "a", encoding="utf-8") as file:
        file.write(_SOURCES + "".join(f"{name} = {value}\n" for name, value in {**_SETTINGS, **(settings or {})}.items()))
    (folder / "script.py").write_text(script, encoding="utf-8")
    return folder


def attempts_of(call: Caller, run: str) -> list[Path]:
    """The folders of a run's attempts, the first one first."""
    document = call("attempts", run, "--json").document()
    return [Path(document["folders"][each["attempt"]]) for each in document["attempts"]]
