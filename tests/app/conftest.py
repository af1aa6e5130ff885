"""A bench for real runs, with no process left behind."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from countermark.app.ports import ATTEMPTS, opened
from tests.app.bench import SETTINGS, Bench, fixtures
from tests.files.folders import adapter_bytes, adapter_config, checkpoint
from tests.launch.conftest import Place


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a trainer would have computed: checkpoints of four steps, an output, and one that was trained otherwise."""
    folder = tmp_path_factory.mktemp("computed")
    for step in (4, 8, 12, 16):
        checkpoint(folder, step)
    for name, changes in {"output": {}, "other-rank": {"r": 8, "lora_alpha": 16}}.items():
        (folder / name).mkdir()
        (folder / name / "adapter_model.safetensors").write_bytes(adapter_bytes())
        (folder / name / "adapter_config.json").write_text(json.dumps(adapter_config(**changes)), encoding="utf-8")
    return folder


@pytest.fixture
def bench(tmp_path: Path, made: Path) -> Iterator[Bench]:
    fixtures(tmp_path, made)
    with opened(tmp_path / ".countermark", create=True, **SETTINGS) as ports:
        found = Bench(tmp_path, ports)
        yield found
        for process in found.controllers:
            process.kill()
            process.communicate(timeout=20)
        assert (ports.folder / ATTEMPTS).name == "attempts"
        Place(found.store).close()
