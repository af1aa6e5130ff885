"""The tools of the model, for every test that runs them."""

import pytest

from tests.models.spin import need_spin


@pytest.fixture
def tools() -> None:
    """Spin and gcc."""
    need_spin()
