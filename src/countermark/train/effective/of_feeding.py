"""How rows reach the trainer: their order, the rows of a micro batch, the micro batches of a step.

Read off the loader's own sampler and batch sampler; the accumulation is what the run is set to, and what its steps were seen to take.
"""

from typing import Any, Final

from countermark.evidence.members import Unread
from countermark.train.effective.seen import Live, Readings, Said, said, type_name
from countermark.train.handed_out import Sequences

NAMES: Final = ("data_order", "micro_batch", "gradient_accumulation")
_SEEDABLE: Final = "accelerate.data_loader.SeedableRandomSampler"


def read_feeding(live: Live) -> Readings:
    """The coordinates of ``NAMES``."""
    batches = live.objects.loader.batch_sampler
    return {"data_order": _order(live, batches), "micro_batch": _micro_batch(batches), "gradient_accumulation": _accumulation(live)}


def _order(live: Live, batches: Any) -> Said:
    sampler: Any = getattr(batches, "sampler", None)
    dataset = live.objects.loader.dataset
    laid_out = dataset.order if isinstance(dataset, Sequences) else None
    name = type_name(sampler)
    if name == "torch.utils.data.sampler.SequentialSampler":
        return said("data_order", laid_out or "sequential")
    if laid_out is not None:
        return Unread(f"the sequences were laid out as {laid_out}, and {name} draws from them again")
    if name == _SEEDABLE and not sampler.replacement and sampler.num_samples == len(dataset):
        return said("data_order", {"order": "shuffle", "algorithm": "torch_randperm_epoch", "seed": sampler.initial_seed})
    return Unread(f"rows are drawn by {name}, whose order no seed alone gives")


def _micro_batch(batches: Any) -> Said:
    if batches.drop_last:
        return Unread("the last rows of every epoch are left out, which no coordinate holds")
    return said("micro_batch", batches.batch_size)


def _accumulation(live: Live) -> Said:
    """What the run is set to; after the training, what its steps took. The last step of an epoch may take fewer, never more."""
    asked, taken = live.objects.accumulation, live.micro_batches
    if why := live.objects.averaging:
        return Unread(why)
    per_epoch = len(live.objects.loader)
    if taken is None or taken == min(asked, per_epoch):
        return said("gradient_accumulation", asked)
    return said("gradient_accumulation", taken)
