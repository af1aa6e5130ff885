"""The assignment that an attempt reads: complete, or refused with every reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from countermark.files import desired
from countermark.recipe import spellings
from countermark.train import CannotTrain
from countermark.train.assignment import SETTINGS, read_assignment
from tests.faults import planted, proven_by
from tests.recipe.examples import CLEAN

NONCE = "0123456789abcdef" * 2


def document(**changed: Any) -> dict[str, Any]:
    clean = {
        "countermark": 1,
        "kind": "desired-manifest",
        "attempt": NONCE,
        "workKey": "wk1:" + "1" * 64,
        "manifest": dict(CLEAN),
        "sources": {"model": "/models/one"},
        "trainer": {"save_steps": 5, "threads": 2},
    }
    return {name: value for name, value in {**clean, **changed}.items() if value is not None}


def environment(tmp_path: Path, content: dict[str, Any] | bytes, resume: str = "") -> dict[str, str]:
    folder = tmp_path / NONCE
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return {
        "COUNTERMARK_MANIFEST": str(folder / "manifest.json"),
        "COUNTERMARK_ATTEMPT": str(folder),
        "COUNTERMARK_OUTPUT": str(folder / "output"),
        "COUNTERMARK_RESUME": resume,
    }


def reasons(environment: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(CannotTrain) as caught:
        read_assignment(environment)
    return caught.value.reasons


def test_an_assignment_is_read_whole(tmp_path: Path) -> None:
    found = read_assignment(environment(tmp_path, document(), resume="/a/checkpoint/step-5"))
    assert (found.nonce, found.work_key, spellings(found.manifest)) == (NONCE, "wk1:" + "1" * 64, CLEAN)
    assert found.source("model") == Path("/models/one")
    assert (found.settings.save_steps, found.settings.threads, found.settings.logging_steps) == (5, 2, SETTINGS["logging_steps"])
    assert (found.folder, found.output, found.resume) == (tmp_path / NONCE, tmp_path / NONCE / "output", Path("/a/checkpoint/step-5"))


def test_an_empty_resume_is_a_fresh_start(tmp_path: Path) -> None:
    assert read_assignment(environment(tmp_path, document())).resume is None


def test_without_an_attempt_the_script_says_how_to_be_run() -> None:
    (reason,) = reasons({"COUNTERMARK_OUTPUT": "/somewhere"})
    assert reason.startswith("COUNTERMARK_MANIFEST, COUNTERMARK_ATTEMPT not set")
    assert "countermark run RECIPE -- python SCRIPT" in reason


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "version": ({"countermark": 2}, "countermark is 2, and this release reads format 1"),
    "attempt": ({"attempt": 7}, "attempt must be 32 lower-case hexadecimal digits"),
    "work": ({"workKey": None}, "workKey is missing"),
    "coordinate missing": ({"manifest": {name: text for name, text in CLEAN.items() if name != "rank"}}, "rank"),
    "coordinate wrong": ({"manifest": {**CLEAN, "rank": "0"}}, "rank"),
    "sources": ({"sources": []}, "sources must be a table"),
    "setting": ({"trainer": {"threads": 0}}, "trainer.'threads' cannot be 0"),
}


@pytest.mark.parametrize(("changed", "expected"), BAD.values(), ids=BAD.keys())
def test_one_thing_wrong_is_one_reason(tmp_path: Path, changed: dict[str, Any], expected: str) -> None:
    (reason,) = reasons(environment(tmp_path, document(**changed)))
    assert expected in reason


@proven_by(planted(desired, "_settings", lambda table: iter(table.items())))
def test_everything_wrong_is_every_reason(tmp_path: Path) -> None:
    changed: dict[str, Any] = {}
    for one, _ in BAD.values():
        changed |= one
    found = reasons(environment(tmp_path, document(**changed)))
    assert len(found) == 6
    for _, (_, expected) in BAD.items():
        assert any(expected in reason for reason in found), expected


def test_another_attempts_document_is_refused(tmp_path: Path) -> None:
    (reason,) = reasons(environment(tmp_path, document(attempt="f" * 32)))
    assert f"it is of attempt {'f' * 32}" in reason


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"countermark": 1, "countermark": 1}', b"[" * 100_000])
def test_bytes_that_are_no_document_are_refused(tmp_path: Path, content: bytes) -> None:
    (reason,) = reasons(environment(tmp_path, content))
    assert "'manifest.json' is not what its name promises: " in reason


def test_a_document_that_is_not_there_is_refused(tmp_path: Path) -> None:
    variables = environment(tmp_path, document())
    Path(variables["COUNTERMARK_MANIFEST"]).unlink()
    (reason,) = reasons(variables)
    assert "does not exist" in reason


def test_a_source_that_nobody_named_is_asked_for(tmp_path: Path) -> None:
    found = read_assignment(environment(tmp_path, document()))
    with pytest.raises(CannotTrain, match=r"\[sources\]: dataset = PATH"):
        found.source("dataset")
