"""Keys of earlier releases are derived again, to the letter: works that were recorded must be found by every later release."""

import json
from pathlib import Path
from typing import Any

import pytest

from countermark.recipe import Requirements, contract_of, derive_work_key, observed, resolve, spellings
from countermark.recipe import work as work_module
from countermark.values import Principal, Refused, Unreadable
from tests.faults import planted, proven_by

RECORDED = json.loads((Path(__file__).parent.parent / "recorded" / "work_keys.json").read_text(encoding="utf-8"))
WORKS = [(release["release"], work) for release in RECORDED["releases"] for work in release["works"]]


@proven_by(
    planted(work_module, "DOMAIN", "countermark/work/2"),
    planted(work_module, "key_rows", lambda manifest: tuple(spellings(manifest).items())),
)
def test_recorded_keys_are_derived_again() -> None:
    derived = {work["why"]: derive(work) for _, work in WORKS}
    assert derived == {work["why"]: work["key"] for _, work in WORKS}


@pytest.mark.parametrize(("release", "work"), WORKS, ids=[f"{release}: {work['why']}" for release, work in WORKS])
def test_recorded_manifests_are_canonical(release: str, work: dict[str, Any]) -> None:
    resolution = resolve(observed(work["manifest"], "recorded", release))
    assert not isinstance(resolution, Refused)
    assert spellings(resolution.manifest) == work["manifest"]


def test_what_is_recorded_differs() -> None:
    assert len({(work["principal"], work["key"]) for _, work in WORKS}) == len(WORKS) >= 7


def derive(work: dict[str, Any]) -> str:
    """The key of a recorded work, or why there is none."""
    resolution = resolve(observed(work["manifest"], "recorded", "tests"))
    requirements = Requirements.read(work["requirements"])
    if isinstance(resolution, Refused) or isinstance(requirements, Unreadable):
        return f"refused: {resolution}, {requirements}"
    return derive_work_key(Principal(work["principal"]), contract_of(resolution), requirements).spell()
