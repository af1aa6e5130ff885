"""Pruning a folder of checkpoints: what the plan needs is gathered here, and the plan is carried out where somebody said so.

Rules kept here:

1. A checkpoint is judged as ``checkpoint inspect`` judges it. In an attempt's folder it is held against the run of that attempt, unless
   another work is named.
2. Attempts that have not ended keep the checkpoints that they begin at. The ledger says which those are: a claim that nobody dispatched yet
   is in no folder. It is asked after the checkpoints were read, which takes its time; and where no ledger knows the attempt in whose folder
   they lie, nothing is planned, unless somebody says what they are held against.
3. Judging and deleting are one act: whoever deletes holds the folder, and plans anew.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from countermark.app.compare import find_run
from countermark.app.inspect import inspect_checkpoints
from countermark.app.ports import ATTEMPTS
from countermark.app.stores import ledger_of
from countermark.files.attempt_folder import FENCED, TERMINAL, attempt_around, present
from countermark.files.checkpoints import CheckpointListing, list_checkpoints, step_of
from countermark.files.digest_cache import DigestCache
from countermark.files.leftovers import alone_in, clear, leftovers
from countermark.files.reading import placed
from countermark.files.retention import carry_out, held
from countermark.lines.retention import Pruning
from countermark.lines.surface import AttemptUnrecorded, NothingNamed
from countermark.run.attempts import CheckpointIdentity, checkpoint_of
from countermark.run.records import RunRecord
from countermark.run.retention import PruneUnderWay, plan_retention
from countermark.store.creation import LEDGER_FILE
from countermark.store.opening import open_store
from countermark.values import NonEmpty, Refused


@final
@dataclass(frozen=True, slots=True)
class PruneAsked:
    """What is asked for: the folder, how many admitted checkpoints of each computation stay, the recipe or run that they are held against
    (None: the run of the attempt in whose folder they lie, else what they say themselves), whether a person vouches for their
    publication, and whether torn ones go as well."""

    path: str
    keep: int
    target: str | None = None
    vouched: bool = False
    torn: bool = False


def prune_checkpoints(
    asked: PruneAsked,
    folder: Path,
    url: str | None,
    *,
    act: bool,
    told: Callable[[str], None],
    cache: DigestCache | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Pruning | Refused[object]:
    """What becomes of the checkpoints in a folder, and where ``act``, what became of them. ``folder`` and ``url`` are the store that the
    settings name; ``told`` hears of each checkpoint before it goes. Raises ``OSError`` of the disk, and ``StoreError``."""
    place = placed(Path(asked.path))
    listed = list_checkpoints(place)
    if not isinstance(listed, CheckpointListing):
        return Refused(NonEmpty(listed))
    with alone_in(place) if act else nullcontext(True) as alone:
        if not alone:
            return Refused(NonEmpty(PruneUnderWay(asked.path)))
        planned = _planned(asked, place, listed, folder, url, cache, progress)
        if isinstance(planned, Refused) or not act:
            return planned
        gone = carry_out(place, planned.plan, told)
        if isinstance(gone, Refused):
            return Refused(gone.defects)
        clear(place, _of_a_checkpoint)
        return replace(planned, gone=gone)


def _planned(
    asked: PruneAsked,
    place: Path,
    listed: CheckpointListing,
    folder: Path,
    url: str | None,
    cache: DigestCache | None,
    progress: Callable[[int, int], None] | None,
) -> Pruning | Refused[object]:
    attempt = attempt_around(place)
    if attempt is not None:
        folder, url = _ledger_beside(attempt.parent.parent, folder, url)
    asked_for = [name for name in (None if attempt is None else attempt.name, asked.target) if name is not None]
    runs = _runs(asked_for, folder, url)
    if isinstance(runs, Refused):
        return runs
    if asked.target is None and attempt is not None and not runs:
        return Refused(NonEmpty(AttemptUnrecorded(asked.path, attempt.name)))
    target = runs[0].run_id if asked.target is None and attempt is not None else asked.target
    names = [name for _, name in listed.checkpoints]
    looked = inspect_checkpoints([str(place / name) for name in names], target, asked.vouched, folder, url, cache=cache, progress=progress)
    if isinstance(looked, Refused):
        return looked
    found = [held(place, name, one.readback, one.resume) for name, one in zip(names, looked.checkpoints, strict=True)]
    meanwhile = _runs(asked_for, folder, url)
    if isinstance(meanwhile, Refused):
        return meanwhile
    plan = plan_retention(found, asked.keep, _begun(meanwhile, folder), torn=asked.torn)
    if isinstance(plan, Refused):
        return Refused(plan.defects)
    left = {each.name: each.state.value for each in leftovers(place, _of_a_checkpoint)}
    return Pruning(asked.path, asked.keep, plan, left, tuple(name for name in listed.others if name not in left))


def _ledger_beside(own: Path, folder: Path, url: str | None) -> tuple[Path, str | None]:
    """The store in whose folder an attempt lies, and its ledger: the one in a folder that the settings do not name, else the settings'."""
    elsewhere = os.path.realpath(own) != os.path.realpath(folder)
    return own, None if elsewhere and (own / LEDGER_FILE).exists() else url


def _runs(names: Sequence[str], folder: Path, url: str | None) -> tuple[RunRecord, ...] | Refused[object]:
    """The runs that these names of runs and attempts name in the ledger; a name that it does not know names none."""
    if not names or (url is None and not (folder / LEDGER_FILE).exists()):
        return ()
    with open_store(ledger_of(folder, url), create=False) as store:
        found = [find_run(store, name) for name in names]
    wrong = [defect for each in found if isinstance(each, Refused) for defect in each.defects if not isinstance(defect, NothingNamed)]
    refusal = NonEmpty.of(tuple(wrong))
    return tuple(each for each in found if isinstance(each, RunRecord)) if refusal is None else Refused(refusal)


def _begun(runs: Sequence[RunRecord], folder: Path) -> Mapping[CheckpointIdentity, str]:
    """The checkpoints at which attempts of the runs begin that have not ended here, each with such an attempt."""
    begun: dict[CheckpointIdentity, str] = {}
    for record in runs:
        for claim in record.ledger.claims:
            identity, nonce = checkpoint_of(claim.transition.cause), claim.attempt.nonce.hex
            ended = any(present(folder / ATTEMPTS / nonce, name) for name in (TERMINAL, FENCED))
            if identity is not None and not ended:
                begun[identity] = nonce
    return begun


def _of_a_checkpoint(name: str) -> bool:
    return step_of(name) is not None
