"""Looking at checkpoints that lie anywhere, and publishing a checkpoint of an attempt."""

from collections.abc import Sequence
from pathlib import Path

from countermark.app.compare import find_run, manifest_of
from countermark.app.stores import ledger_of
from countermark.files.attempt_folder import CLAIM
from countermark.files.checkpoints import CheckpointListing, list_checkpoints, read_checkpoint, step_of
from countermark.files.desired import CHECKPOINTS, read_desired
from countermark.files.publishing import PublishedCheckpoint
from countermark.files.publishing import publish_checkpoint as publish
from countermark.lines.checkpoint import Inspected
from countermark.lines.surface import AttemptUnnamed
from countermark.recipe import Manifest, manifest_from_spellings, spellings
from countermark.run.checkpoint import (
    AdmittedCheckpoint,
    CheckpointAbsent,
    CheckpointDefect,
    CheckpointNotThere,
    CheckpointReadback,
    SoundCheckpoint,
    admit_checkpoint,
    admit_weights_only,
    sound_checkpoint,
)
from countermark.values import NonEmpty, Refused


def inspect_checkpoints(
    paths: Sequence[str], target: str | None, vouched: bool, folder: Path | None, url: str | None = None
) -> tuple[Inspected, ...] | Refused[object]:
    """Each checkpoint, with both answers; ``target`` is the recipe or run that is to go on. A folder of checkpoints stands for all of them,
    in the order of their steps."""
    desired: Manifest | None = None
    members: frozenset[str] | None = None
    if target is not None:
        found = manifest_of(target, folder, url)
        if isinstance(found, Refused):
            return found
        desired, members = found, _members_of(target, folder, url)
    return tuple(_inspected(Path(path), desired, members, vouched) for path in _expanded(paths))


def _expanded(paths: Sequence[str]) -> list[str]:
    found: list[str] = []
    for text in paths:
        path = Path(text)
        listed = list_checkpoints(path) if path.is_dir() and step_of(path.name) is None else None
        if isinstance(listed, CheckpointListing) and listed.checkpoints:
            found.extend(str(path / name) for _, name in listed.checkpoints)
        else:
            found.append(text)
    return found


def _members_of(target: str, folder: Path | None, url: str | None) -> frozenset[str] | None:
    """The attempts of the run that a target names; None where it names no run, and membership is not asked."""
    if Path(target).exists() or folder is None:
        return None
    from countermark.store.opening import open_store

    with open_store(ledger_of(folder, url), create=False) as store:
        record = find_run(store, target)
    return None if isinstance(record, Refused) else frozenset(claim.attempt.nonce.hex for claim in record.ledger.claims)


def _inspected(path: Path, desired: Manifest | None, members: frozenset[str] | None, vouched: bool) -> Inspected:
    readback = read_checkpoint(path)
    return Inspected(readback, _resumable(readback, desired, members, vouched), admit_weights_only(readback))


def _resumable(
    readback: CheckpointReadback | CheckpointNotThere, desired: Manifest | None, members: frozenset[str] | None, vouched: bool
) -> AdmittedCheckpoint | SoundCheckpoint | Refused[CheckpointDefect]:
    """Held against the work that is to go on; else against what it declares of itself; else as it is."""
    own = frozenset({readback.attempt}) if isinstance(readback, CheckpointReadback) and readback.attempt is not None else frozenset[str]()
    wanted = desired
    if wanted is None and isinstance(readback, CheckpointReadback) and readback.declared is not None:
        declared = manifest_from_spellings(readback.declared)
        wanted = None if isinstance(declared, Refused) else declared
    if wanted is None:
        return sound_checkpoint(readback, vouched=vouched)
    return admit_checkpoint(readback, wanted, own if members is None else members, vouched=vouched)


def publish_checkpoint(path: str, into: str | None) -> PublishedCheckpoint | Refused[object]:
    """Publish a trainer's checkpoint folder that lies in an attempt's folder as that attempt's checkpoint, or into another folder."""
    real = Path(path).absolute()
    attempt = next((parent for parent in real.parents if (parent / CLAIM).is_file()), None)
    manifest = None if attempt is None else read_desired(attempt)
    if attempt is None or manifest is None:
        return Refused(NonEmpty(AttemptUnnamed(path)))
    if isinstance(manifest, Refused):
        return manifest
    step = step_of(real.name)
    if step is None:
        return Refused(NonEmpty(CheckpointAbsent(path, "its name says no step: checkpoint-N or step-N does")))
    target = Path(into) if into is not None else attempt / CHECKPOINTS
    answer = publish(real, target, step=step, attempt=manifest.attempt, work_key=manifest.work_key, manifest=spellings(manifest.manifest))
    return Refused(answer.defects) if isinstance(answer, Refused) else answer
