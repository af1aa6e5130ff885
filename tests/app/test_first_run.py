"""The guide's first half as a newcomer types it: every command is run, on a model small enough for that."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from tests.files.tensors import encoded, f32, write

GUIDE: Final = Path(__file__).resolve().parents[2] / "docs" / "guide" / "first-run.md"
#: Commands that are not run here: the model is converted by the demo, and the fine-tune is what the demo does.
PREPARES: Final = ("mkdir first-run", "python -c")
EXIT_CODES: Final = {"resolve recipe.toml": 1, "run recipe.toml --pin --request trial": 1}


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.*)$", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(text: str) -> list[str]:
    return re.findall(r"^\$ (.*)$", text, re.MULTILINE)


def test_every_command_of_the_guides_first_half_works(tmp_path: Path) -> None:
    found = sections()
    (recipe,) = re.findall(r"^```toml\n(.*?)^```", found["Something to train, and a recipe"], re.MULTILINE | re.DOTALL)
    assert len(tomllib.loads(recipe)["coordinates"]) == 20
    write(tmp_path / "recipe.toml", recipe.encode())
    model = tmp_path / "models" / "SmolLM2-135M"
    write(model / "model.safetensors", encoded({"weight": f32(1.0, 2.0)}))
    write(model / "config.json", json.dumps({"model_type": "tiny"}).encode())
    write(model / "tokenizer.json", json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}}}).encode())
    write(tmp_path / "data" / "topics.jsonl", b'{"text": "one"}\n')
    typed = [line for text in list(found.values())[:3] for line in commands(text) if not line.startswith(PREPARES)]
    assert len(typed) == 12
    said, run = "", ""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for line in typed:
        done = subprocess.run(
            line.replace("RUN", run), shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        wanted = next((code for start, code in EXIT_CODES.items() if re.fullmatch(f"countermark {re.escape(start)}( -- .*)?", line)), 0)
        assert done.returncode == wanted, (line, done.stdout, done.stderr)
        said += done.stdout + done.stderr
        run = run or "".join(re.findall(r"recorded run ([0-9a-f]{8}):", done.stderr))
    page = GUIDE.read_text(encoding="utf-8")
    for promised in ("→ name the folder in sources.model and use --pin", "succeeded, unverified: coordinates", "(InitialAttempt)"):
        assert promised in said and promised in page
