"""A tester that knows nothing but the description asks a server everything that it says, and everything that it does not."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.requests import Request

from countermark.server import asgi, handlers
from countermark.server.answers import Answer
from countermark.server.routes import Query
from countermark.server.service import Service
from countermark.server.tokens import SCOPES, add_token
from tests.faults import planted
from tests.server.running import edit, served

_ROOT: Final = Path(__file__).resolve().parents[2]


def findings_of(folder: Path, *more: str) -> list[str]:
    """What is found of a server that asks for tokens, in words."""
    token = add_token(folder / "tokens.json", "tester", SCOPES, "2026-12-03T08:00:00Z")
    assert isinstance(token, str)
    with served(folder) as server:
        bearer = {"authorization": f"Bearer {token}"}
        server.ingest([edit(1), edit(2), edit(1, payload={"other": 1})], **bearer)
        (elsewhere := folder / "elsewhere").mkdir()
        asked = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{server.port}/openapi.json"),
                *("--header", f"Authorization: {bearer['authorization']}", "--generation-deterministic", "--no-color", "--workers", "1"),
                *("--report", "json", "--report-json-path", "found.json", *more),
            ],
            env={**os.environ, "PYTHONPATH": str(_ROOT), "SCHEMATHESIS_HOOKS": "tests.server.described"},
            cwd=elsewhere,
            capture_output=True,
            text=True,
            check=False,
        )
    assert asked.returncode in (0, 1), asked.stderr
    found: Any = json.loads((elsewhere / "found.json").read_text())
    assert (found["errors"], found["operations"]["tested"]) == ([], found["operations"]["selected"])
    print(asked.stdout[asked.stdout.find("FAILURES") :])
    return [f"{each['title']}: {operation}" for each in found["failures"] for operation in each["operations"]]


def answers_less() -> AbstractContextManager[object]:
    """A server whose answers lack something that the description promises."""
    honest = handlers.HANDLERS["healthz"]

    async def without(service: Service, request: Request, query: Query, named: Sequence[str]) -> Answer:
        answer = await honest(service, request, query, named)
        return replace(answer, body=answer.body.replace(b"alive", b"").replace(b'"status":""', b'"state":""'))

    return planted(asgi, "HANDLERS", {**handlers.HANDLERS, "healthz": without})()


def test_a_tester_of_descriptions_finds_nothing(tmp_path: Path) -> None:
    assert findings_of(tmp_path, "--phases", "coverage") == []


def test_it_finds_an_answer_that_lacks_what_was_promised(tmp_path: Path) -> None:
    with answers_less():
        found = findings_of(tmp_path, "--phases", "fuzzing", "--max-examples", "1", "--include-path", "/healthz")
    assert found == ["Response violates schema: GET /healthz"]


@pytest.mark.slow
def test_nor_does_it_find_anything_in_minutes(tmp_path: Path) -> None:
    assert findings_of(tmp_path, "--max-examples", "300") == []
