"""A pytest plugin for the tests that are run once per mutant: the same tests, in the order and the form that judge soonest.

Rules kept here:

1. A control runs as it is and never under its planted faults: what a fault breaks says nothing about the mutant.
2. Tests with one example come first, drawn ones after them. A drawn example that fails is not made smaller: red is all that is asked.
"""

import pytest
from hypothesis import Phase, settings

settings.register_profile("mutants", derandomize=True, database=None, deadline=None, phases=[Phase.explicit, Phase.generate])


def _under_a_fault(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and call.params.get("planted_fault") is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes the controls under their faults out, and puts drawn tests last."""
    left_out = [item for item in items if _under_a_fault(item)]
    config.hook.pytest_deselected(items=left_out)
    kept = [item for item in items if not _under_a_fault(item)]
    items[:] = sorted(kept, key=lambda item: hasattr(getattr(item, "obj", None), "hypothesis"))
