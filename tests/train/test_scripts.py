"""The scripts that the guide shows, in processes of their own: run to the end, killed, told to stop, interrupted, and started by hand."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.train.tiny import Attempt, Tiny, adapter_bits

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PAGE: Final = (Path(__file__).resolve().parents[2] / "docs/guide/trainers.md").read_text(encoding="utf-8")
SCRIPTS: Final = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
#: Long enough to be killed in the middle.
LONG: Final = {"gradient_accumulation": "1", "total_steps": "60"}
EACH = pytest.mark.parametrize("name", SCRIPTS)


def test_the_page_shows_one_script_for_each_integration() -> None:
    assert list(SCRIPTS) == ["Transformers", "Lightning", "A loop over Accelerate"]


def started(name: str, environment: Mapping[str, str], where: Path) -> subprocess.Popen[str]:
    script = where / "script.py"
    script.write_text(SCRIPTS[name], encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=where,
    )


def ended(name: str, attempt: Attempt, where: Path) -> None:
    process = started(name, attempt.environment, where)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert attempt.differing() == {}


@EACH
def test_a_script_ends_in_every_way_and_is_gone_on_from(tiny: Tiny, tmp_path: Path, name: str) -> None:
    """Whatever ends it, it has published no output and said nothing that it did not see; the next attempt comes to the same bits."""
    whole = tiny.attempt(settings={"save_steps": 20}, **LONG)
    ended(name, whole, tmp_path)
    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        broken = tiny.attempt(settings={"save_steps": 10}, **LONG)
        process = started(name, broken.environment, tmp_path)
        step = broken.folder / "checkpoints" / "step-10"
        deadline = time.monotonic() + 120
        while not step.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(how)
        _, said = process.communicate(timeout=120)
        assert process.returncode != 0, said
        assert not broken.output.exists()
        assert {value.removeprefix("unread: ") for value in broken.differing().values()} <= {"no step was seen yet"}
        again = tiny.attempt(settings={"save_steps": 30}, resume=step, **LONG)
        ended(name, again, tmp_path)
        assert adapter_bits(again.output) == adapter_bits(whole.output), how


@EACH
def test_a_script_that_is_started_by_hand_says_how_to_be_run(tmp_path: Path, name: str) -> None:
    process = started(name, {}, tmp_path)
    _, said = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "this script takes its work from a claimed attempt. Run it through countermark: countermark run RECIPE -- python SCRIPT" in said
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]
