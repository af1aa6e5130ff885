"""The digests of weights that lie anywhere."""

from collections.abc import Callable
from pathlib import Path

from countermark.files.digest_cache import DigestCache
from countermark.files.measuring import MeasuredForm, measure_form
from countermark.values import Refused


def weights_root(path: str, cache: DigestCache, progress: Callable[[int, int], None]) -> MeasuredForm | Refused[object]:
    """Both digests of a folder or file of weights, or every defect of either. What the cache knows is not read again."""
    found = measure_form(Path(path), cache, progress)
    return Refused(found.defects) if isinstance(found, Refused) else found
