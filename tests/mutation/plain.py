"""A pytest plugin for the tests that are run once per mutant: the same tests, in the order and the form that judge soonest.

Rules kept here:

1. A control runs as it is and never under its planted faults: what a fault breaks says nothing about the mutant. What measures time is left
   out: it would judge the copy, which is slower.
2. The tests named after the mutant's module come first, and of each kind those with one example before drawn ones. A drawn example that
   fails is not made smaller: red is all that is asked.
"""

import os

import pytest
from hypothesis import Phase, settings

settings.register_profile("mutants", derandomize=True, database=None, deadline=None, phases=[Phase.explicit, Phase.generate])


def _left_out(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return (call is not None and call.params.get("planted_fault") is not None) or "in_linear_time" in item.name


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes the controls under their faults out, with what measures time, and puts drawn tests last."""
    left_out = [item for item in items if _left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    kept = [item for item in items if not _left_out(item)]
    module = "".join(os.environ.get("MUTANT_UNDER_TEST", "").split(".")[-2:-1])
    items[:] = sorted(kept, key=lambda item: (item.path.stem != f"test_{module}", hasattr(getattr(item, "obj", None), "hypothesis")))
