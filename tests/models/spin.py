"""Whether Spin and gcc are there.

Without them nothing passes in silence: tests are skipped with what to install, and fail where the variable CI is set.
"""

import os
import shutil
from typing import Final

import pytest

_NEEDED: Final = "TESTS_NEED_SPIN"
# Read before the environment is cleaned for the tests; workers inherit the answer.
if os.environ.get("CI"):
    os.environ[_NEEDED] = "1"

MISSING: Final = "Spin and gcc are not both installed, and the model of the claim protocol is checked with them: apt-get install spin gcc"


def need_spin() -> None:
    """Ends the test where Spin or gcc is missing."""
    if shutil.which("spin") is not None and shutil.which("gcc") is not None:
        return
    if os.environ.get(_NEEDED):
        pytest.fail(MISSING)
    pytest.skip(MISSING)
