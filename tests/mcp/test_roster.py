"""What is told of the tools: little, whole, and what they take and answer."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from countermark.mcp import roster, serving
from countermark.mcp.arguments import Argument, Given, input_schema, read_arguments
from countermark.mcp.roster import LIST_BYTES_MAX, PROSE_BYTES_MAX, ROSTER, TOOLS_MAX, Tool, output_schema
from countermark.mcp.serving import templates, tool_of
from tests.faults import planted, proven_by


def listed() -> list[dict[str, Any]]:
    return [tool_of(tool).model_dump(by_alias=True, mode="json", exclude_none=True) for tool in serving.ROSTER]


def prose(value: Any) -> list[str]:
    """Every text that is there to be read, at any depth."""
    if isinstance(value, list):
        return [text for each in value for text in prose(each)]
    if not isinstance(value, dict):
        return []
    own = [text for key, text in value.items() if key in ("description", "title") and isinstance(text, str)]
    return [*own, *(text for inner in value.values() for text in prose(inner))]


def verbose(tools: tuple[Tool, ...], times: int) -> tuple[Tool, ...]:
    from dataclasses import replace

    return tuple(replace(tool, doc=tool.doc * times) for tool in tools)


@proven_by(planted(serving, "ROSTER", verbose(ROSTER, 9)), planted(serving, "ROSTER", ROSTER * 2))
def test_the_list_of_tools_is_short() -> None:
    import json

    tools = listed()
    assert len(tools) <= TOOLS_MAX
    assert len(json.dumps({"tools": tools}, ensure_ascii=False, separators=(",", ":")).encode()) <= LIST_BYTES_MAX
    assert sum(len(text.encode()) for text in prose(tools)) <= PROSE_BYTES_MAX


def test_every_tool_is_read_only_and_of_this_place() -> None:
    assert {str(tool["annotations"]) for tool in listed()} == {str({"readOnlyHint": True, "openWorldHint": False})}
    assert [tool["name"] for tool in listed()] == list(roster.BY_NAME)


@pytest.mark.parametrize("tool", ROSTER, ids=lambda tool: tool.name)
def test_schemas_are_schemas(tool: Tool) -> None:
    for schema in (input_schema(tool.arguments), output_schema(tool)):
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"


_SAMPLES: dict[str, tuple[list[object], list[object]]] = {
    "text": (["x", "x" * 4_000], [7, True, [], {}]),
    "texts": ([["x"], ["x"] * 20], ["x", [], ["x"] * 21, [7]]),
    "limit": ([1, 200], [0, 201, -1, 1.5, "7", True]),
    "number": ([0, 7], [-1, "7", 1.5]),
    "flag": ([True, False], [1, "true"]),
}


@pytest.mark.parametrize("kind", _SAMPLES)
def test_a_schema_takes_what_its_reader_takes(kind: Any) -> None:
    arguments = (Argument("it", kind, "", required=True, default=5),)
    schema = Draft202012Validator(input_schema(arguments))
    good, bad = _SAMPLES[kind]
    for value in good:
        assert isinstance(read_arguments(arguments, {"it": value}), Given)
        assert schema.is_valid({"it": value})
    for value in bad:
        assert not isinstance(read_arguments(arguments, {"it": value}), Given)
        # JSON Schema takes true for no whole number, Python for one.
        assert not schema.is_valid({"it": value})
    assert not schema.is_valid({"it": good[0], "more": 1}) and not isinstance(read_arguments(arguments, {"it": good[0], "more": 1}), Given)
    assert not schema.is_valid({}) and not isinstance(read_arguments(arguments, {}), Given)


def test_templates_name_both_addresses() -> None:
    assert [each.uri_template for each in templates()] == [
        "countermark://sessions/{session}{?cursor}",
        "countermark://events/{ordinal}{?from}",
    ]
