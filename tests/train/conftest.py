"""The tiny sources, made once; the training stack is quiet and loaded once."""

import itertools
from collections.abc import Iterator

import pytest

from tests.train.tiny import Tiny, make_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    yield make_tiny(tmp_path_factory.mktemp("tiny"), itertools.count(1))
