"""A loader of the manifest's order and micro batch, for loops that are not a Transformers trainer's.

Rules kept here:

1. Rows come in the order that the manifest names, in every epoch, and the last micro batch of an epoch may be short: nothing is left out.
2. It can tell where in an epoch it is, and begin there. Making an iterator draws from a generator of its own, never from the training's.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from countermark.recipe.coordinates import SeededShuffle
from countermark.train.assignment import Assignment
from countermark.train.handed_out import Sequences
from countermark.train.libraries import library


def place_of(state: Mapping[str, int], length: int) -> int:
    """The micro batch of an epoch that comes next, in an epoch of this length."""
    return state["batch"] % length


def loader_of(assignment: Assignment, dataset: Sequences, collator: Any) -> Any:
    """A ``torch.utils.data.DataLoader`` over a dataset that was handed out."""
    torch = library("torch")
    order = assignment.manifest.data_order
    if isinstance(order, SeededShuffle) and dataset.order is None:
        sampler = library("accelerate.data_loader").SeedableRandomSampler(dataset, data_seed=order.seed.number)
    else:
        sampler = torch.utils.data.SequentialSampler(dataset)
    base: Any = torch.utils.data.DataLoader

    class Loader(base):
        """A loader that can tell where in an epoch it is."""

        def __init__(self, *args: Any, **more: Any) -> None:
            base.__init__(self, *args, **more)
            self._given = 0
            self._skipped = 0

        def __iter__(self) -> Iterator[Any]:
            begun, self._skipped = self._skipped, 0
            self._given = begun
            return self._rest(base.__iter__(self), begun)

        def _rest(self, batches: Iterator[Any], begun: int) -> Iterator[Any]:
            for at, batch in enumerate(batches):
                if at >= begun:
                    self._given = at + 1
                    yield batch

        def state_dict(self) -> dict[str, int]:
            """How many micro batches of this epoch were handed out."""
            return {"batch": self._given}

        def load_state_dict(self, state: Mapping[str, int]) -> None:
            """Begin the next iterator there; at the end of an epoch, that is the beginning of the next one."""
            self._skipped = place_of(state, len(self))

    return Loader(
        dataset,
        batch_size=assignment.manifest.micro_batch.number,
        sampler=sampler,
        collate_fn=collator,
        num_workers=assignment.settings.dataloader_workers,
        generator=torch.Generator(),
    )
