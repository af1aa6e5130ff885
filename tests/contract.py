"""Documents held against contract/schema.json, as a program would that has nothing else of ours."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

from countermark.cli.roster import ENTRIES

PUBLISHED: Final = Path(__file__).resolve().parent.parent / "contract/schema.json"


def definition(words: tuple[str, ...]) -> str:
    """The definition for what a call with these words prints; a call that names no command can only be refused."""
    called = [entry for entry in ENTRIES if words[: len(entry.words)] == entry.words]
    return max(called, key=lambda entry: len(entry.words)).name.replace(" ", "-") if called else "refusal"


@cache
def published() -> dict[str, Any]:
    document = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


@cache
def validator(name: str) -> Draft202012Validator:
    """The validator of one definition."""
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": published()["$defs"]})


def fits(name: str, document: Any) -> bool:
    """Whether a document is of a definition."""
    return validator(name).is_valid(document)


def misfits(name: str, document: Any) -> list[str]:
    """Why a document is not of a definition, the deepest reasons first; empty where it is."""
    found: list[tuple[int, str]] = []
    waiting = list(validator(name).iter_errors(document))
    while waiting:
        error = waiting.pop()
        found.append((len(error.absolute_path), f"{error.json_path}: {error.message[:200]}"))
        waiting += error.context or ()
    return [text for _, text in sorted(set(found), key=lambda each: (-each[0], each[1]))][:20]
