"""The public surface is held by a test: a name joins it, or leaves it, on purpose."""

import inspect
import json
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import countermark
from countermark import train
from countermark.train.integrations import of_accelerate, of_lightning, of_transformers
from tests.faults import planted, proven_by

#: What ``from countermark import …`` may take. Everything else is a room's own.
PUBLIC: Final[frozenset[str]] = frozenset()
#: What ``from countermark.train import …`` may take: the same for every trainer.
TRAIN: Final = frozenset({"CannotTrain", "Training", "observe_live"})
#: What a script may use of its ``Training``.
TRAINING: Final = frozenset(
    {
        *("from_environment", "assignment", "run", "fit", "publish"),
        *("tokenizer", "model", "adapted_model", "rows", "dataset", "collator", "loader", "optimizer", "scheduler"),
        *("training_arguments", "sft_config", "lora_config", "lightning_arguments", "accelerator_arguments"),
        *("callback", "lightning_callback", "tracker"),
    }
)
#: What of each library's callback or tracker is not that library's own name: Accelerate asks three of every tracker, and a loop takes its
#: micro batches from it.
HANDED_OUT: Final[dict[str, set[str]]] = {
    "transformers": set(),
    "lightning.pytorch": set(),
    "pytorch_lightning": set(),
    "accelerate": {"name", "requires_logging_directory", "tracker", "batches"},
}
_GUIDE: Final = Path(__file__).resolve().parents[1] / "docs/guide"

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


class Stray(train.Training):  # type: ignore[misc]
    """A ``Training`` with a name that nobody decided on."""

    def more(self) -> None:
        """Nothing."""


@proven_by(planted(train, "__all__", [*train.__all__, "more"]), planted(train, "Training", Stray))
def test_what_a_training_script_uses_is_exactly_this() -> None:
    visible = {name for name, value in vars(train).items() if not name.startswith("_") and not isinstance(value, types.ModuleType)}
    assert set(train.__all__) == visible == TRAIN
    kept = set(re.findall(r"self\.([a-z]\w*) = ", inspect.getsource(train.Training.__init__)))
    assert {name for name in dir(train.Training) if not name.startswith("_")} | kept == TRAINING


def and_more(make: Callable[..., Any]) -> Callable[..., Any]:
    """Makes what an integration makes, with a name that nobody decided on."""

    def made(*given: Any) -> Any:
        one = make(*given)
        one.more = None
        return one

    return made


@pytest.mark.torch
@proven_by(
    planted(of_transformers, "callback_of", and_more(of_transformers.callback_of)),
    planted(of_lightning, "callback_of", and_more(of_lightning.callback_of)),
    planted(of_accelerate, "tracker_of", and_more(of_accelerate.tracker_of)),
)
def test_what_a_script_is_handed_has_its_librarys_names_and_these() -> None:
    nobody: Any = None
    handed: Any = {
        "transformers": of_transformers.callback_of(of_transformers.Followed(nobody)),
        **{package: of_lightning.callback_of(nobody, package, None) for package in of_lightning.PACKAGES},
        "accelerate": of_accelerate.tracker_of(nobody, None),
    }
    own = {
        library: {name for name in dir(one) if not name.startswith("_")} - set(dir(type(one).__base__)) for library, one in handed.items()
    }
    assert own == HANDED_OUT


@proven_by(planted(sys.modules[__name__], "TRAINING", TRAINING - {"fit"}))
def test_the_guide_shows_these_names_alone_and_every_way_in() -> None:
    shown = "\n".join(path.read_text(encoding="utf-8") for path in (*_GUIDE.glob("*.md"), _GUIDE.parents[1] / "README.md"))
    used = set(re.findall(r"\btraining\.([a-z_]+)\b(?=\()", shown))
    assert used - TRAINING == set() and {"run", "fit", "publish"} <= used
    assert set(re.findall(r"\btracker\.([a-z_]+)\(", shown)) == {"batches"}
    imported = {name for names in re.findall(r"from countermark\.train import ([\w, ]+)", shown) for name in names.split(", ")}
    assert imported == {"Training"} <= TRAIN
