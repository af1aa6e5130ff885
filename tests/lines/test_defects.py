"""Every defect has a sentence and a document, whatever its values hold."""

import json
import pkgutil
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from types import ModuleType
from typing import Any, get_args

import pytest

from countermark.lines import defects, sentence
from countermark.lines.defects import CODES, AnyDefect, defect_document, document_value
from countermark.lines.defects import sentence as told
from countermark.lines.texts import camel
from countermark.recipe import Requirements, contract_of, derive_work_key
from countermark.recipe.resolve import AxisUnresolved
from countermark.run.checkpoint import Component, ComponentMissing
from countermark.run.records import DemandNamesAnotherWork
from countermark.values import Principal
from countermark.verdict.kinds import CheckpointNotAdmitted
from tests.faults import planted, proven_by
from tests.lines.samples import HOSTILE, SAMPLES
from tests.recipe.examples import clean_resolution


def test_codes_are_distinct() -> None:
    kinds = AnyDefect.__args__
    assert len({kind.__name__ for kind in kinds}) == len(set(kinds)) == len(CODES) > 90


@pytest.mark.parametrize("code", CODES)
def test_every_defect_has_a_message_and_a_remedy(code: str) -> None:
    said = told(SAMPLES[code])
    assert said.message.strip() == said.message != ""
    assert said.remedy.strip() == said.remedy != ""
    assert said.message != said.remedy or code == "WrongUsage"


def test_works_that_differ_in_the_account_alone_are_told_apart() -> None:
    keys = [derive_work_key(Principal(name), contract_of(clean_resolution()), Requirements()) for name in ("local", "team")]
    assert keys[0].spell() == keys[1].spell()
    message = told(DemandNamesAnotherWork("5" * 32, *keys)).message
    assert f"{keys[0].spell()} under the account local" in message
    assert f"{keys[1].spell()} under the account team" in message


@proven_by(planted(defects, "plain", lambda text, length_max: text))
def test_no_sentence_carries_what_a_terminal_would_obey() -> None:
    said = {code: told(defect) for code, defect in SAMPLES.items()}
    assert [code for code, each in said.items() if not (each.message + each.remedy).isprintable()] == []


@pytest.mark.parametrize("code", CODES)
def test_a_document_carries_code_values_message_and_remedy(code: str) -> None:
    document = defect_document(SAMPLES[code])
    values = {camel(field.name) for field in fields(CODES[code])}
    assert document.keys() == values | {"code", "message", "remedy"}
    assert document["code"] == code
    text = json.dumps(document, ensure_ascii=True, allow_nan=False)
    assert text.isprintable()
    assert [number for number in _numbers(json.loads(text)) if abs(number) > 2**53] == []


def _numbers(value: Any) -> Iterator[float]:
    match value:
        case dict():
            for inner in value.values():
                yield from _numbers(inner)
        case list():
            for inner in value:
                yield from _numbers(inner)
        case int() | float():
            yield value


def test_outside_text_stands_in_a_document_as_it_was() -> None:
    assert defect_document(AxisUnresolved("seed", HOSTILE, "auto", "write it"))["field"] == HOSTILE


def test_a_defect_within_a_defect_is_a_document_as_well() -> None:
    inner = ComponentMissing(Component.RNG_STATE)
    outer = SAMPLES["CheckpointNotAdmitted"]
    assert isinstance(outer, CheckpointNotAdmitted)
    document = document_value(inner)
    assert isinstance(document, dict)
    assert (document["code"], document["component"]) == ("ComponentMissing", "rng_state")
    assert defect_document(outer)["attempt"] == "0123456789abcdef" * 2


def test_a_value_without_a_form_is_a_fault_of_ours() -> None:
    with pytest.raises(TypeError, match="object"):
        document_value(object())


def test_quoting_bounds_what_it_shows() -> None:
    assert len(sentence.quoted("x" * 10_000)) <= 203


def test_every_defect_of_every_room_is_one_of_ours() -> None:
    """A room's union of defects is named ``…Defect``; whatever stands in one must have a sentence."""
    unions = [union for module in light_modules() for name, union in vars(module).items() if name.endswith("Defect")]
    kinds = {kind for union in unions for kind in get_args(union)}
    assert sorted(f"{kind.__module__}.{kind.__name__}" for kind in kinds - set(CODES.values())) == []
    assert len(kinds) > 60


def light_modules() -> list[ModuleType]:
    """Every module of the rooms that load neither a driver nor the training stack, and the store's interface."""
    names = ["countermark.values", "countermark.store.interface"]
    for room in ("weights", "recipe", "run", "evidence", "verdict", "lines", "files"):
        package = import_module(f"countermark.{room}")
        names += [info.name for info in pkgutil.walk_packages(package.__path__, f"countermark.{room}.")]
    return [import_module(name) for name in names]
