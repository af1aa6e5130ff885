"""A bench for real runs, with no process left behind."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from countermark.app.ports import ATTEMPTS, opened
from tests.app.bench import HERE, SETTINGS, Bench, fixtures
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
def ledger(request: pytest.FixtureRequest) -> str | None:
    """Where the bench's ledger is: in the store's folder, unless a test says that it runs on both ledgers."""
    return str(request.getfixturevalue("postgres_url")) if getattr(request, "param", "sqlite") == "postgresql" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A fault that is planted into the operations is the same on either ledger: it is seen red once, on the one that costs less."""
    repeated = {item for item in items if _is_repeated(item)}
    config.hook.pytest_deselected(items=list(repeated))
    items[:] = [item for item in items if item not in repeated]


def _is_repeated(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or HERE not in item.path.parents:
        return False
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return params.get("ledger") == "postgresql" and params.get("planted_fault") is not None


@pytest.fixture
def bench(tmp_path: Path, made: Path, ledger: str | None) -> Iterator[Bench]:
    fixtures(tmp_path, made)
    with opened(tmp_path / ".countermark", create=True, url=ledger, **SETTINGS) as ports:
        found = Bench(tmp_path, ports, ledger)
        yield found
        for process in found.controllers:
            process.kill()
            process.communicate(timeout=20)
        assert (ports.folder / ATTEMPTS).name == "attempts"
        Place(found.store).close()
