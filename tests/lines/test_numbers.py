"""Numbers are printed as the shared cases say."""

import json
import math
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.lines.numbers import shown_number

CASES: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).resolve().parent.parent.parent / "contract/fixtures/number_format.json").read_text(encoding="utf-8")
)["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["value"]))
def test_the_shared_cases(case: dict[str, Any]) -> None:
    value = float(case["value"]) if isinstance(case["value"], str) else case["value"]
    assert shown_number(value) == case["shown"]


def test_there_are_cases() -> None:
    assert len(CASES) >= 28


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_only_zero_prints_as_zero_and_only_one_or_more_as_one(value: float) -> None:
    shown = shown_number(value)
    assert (shown in ("0.000", "-0.000")) == (value == 0)
    assert not (shown in ("1.000", "-1.000") and abs(value) < 1)
    assert math.isclose(float(shown), value, rel_tol=0.06, abs_tol=0.0006)


@pytest.mark.parametrize(
    ("value", "shown"), [(-math.inf, "-Infinity"), (10**400, "1" + "0" * 400 + ".000"), (5e-324, "4.9e-324"), (-0.9996, "-0.99960")]
)
def test_the_far_ends(value: float, shown: str) -> None:
    assert shown_number(value) == shown
