"""The tiny sources, made once; the training stack is loaded once and quiet."""

import gc
import itertools
from collections.abc import Iterator

import pytest

from tests.train.tiny import Tiny, make_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    made = make_tiny(tmp_path_factory.mktemp("tiny"), itertools.count(1))
    # Every training collects garbage once; the loaded stack is none, and walking it takes longer than the training.
    gc.collect()
    gc.freeze()
    yield made
    gc.unfreeze()
