"""What ran, and what was made of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from countermark.files.composition import Loading, MeasuredComposition, measure_composition
from countermark.files.digest_cache import DigestCache
from countermark.files.model_folder import TotalProgress, measure_weights
from countermark.recipe.composition import Derivation
from countermark.values import NonEmpty, Refused


@final
@dataclass(frozen=True, slots=True)
class Composed:
    """What ran, and the checkpoint that was made of it, where one was named."""

    measured: MeasuredComposition
    derivation: Derivation | None


def compose(loading: Loading, made: str | None, cache: DigestCache, progress: Callable[[str], TotalProgress]) -> Composed | Refused[object]:
    """The composition of what was loaded, or every defect of its parts and of ``made``. What the cache knows is not read again."""
    measured = measure_composition(loading, progress, cache)
    weights = None if made is None else measure_weights(Path(made), progress=progress(made), cache=cache)
    refusals = [part for part in (measured, weights) if isinstance(part, Refused)]
    if (defects := NonEmpty.of(defect for refusal in refusals for defect in refusal.defects)) is not None:
        return Refused(defects)
    assert not isinstance(measured, Refused)
    assert not isinstance(weights, Refused)
    return Composed(measured, None if weights is None else Derivation(measured.composition.digest(), weights.root))
