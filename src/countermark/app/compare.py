"""Manifests of whatever a person can name (a recipe, a run, an attempt, a checkpoint), and their differences."""

import os
from pathlib import Path

from countermark.app.recipes import resolve_recipe
from countermark.app.stores import ledger_of
from countermark.files.checkpoints import read_checkpoint
from countermark.lines.surface import CheckpointDeclaresNothing, NothingNamed, SeveralNamed
from countermark.recipe import Difference, Manifest, differing, manifest_from_spellings
from countermark.run.checkpoint import CheckpointAbsent, CheckpointNotThere
from countermark.run.records import RunRecord
from countermark.store import Store
from countermark.values import NonEmpty, Refused

#: The shortest prefix of an id that is looked up.
PREFIX_MIN = 8


NamingDefect = NothingNamed | SeveralNamed | CheckpointDeclaresNothing


def manifest_of(text: str, folder: Path | None, url: str | None = None) -> Manifest | Refused[object]:
    """The manifest of a recipe file, a checkpoint's folder, or the id of a run or attempt in the store in ``folder`` (or with its ledger at
    ``url``)."""
    if os.path.isdir(text):
        return manifest_of_checkpoint(text)
    if os.path.isfile(text):
        resolved = resolve_recipe(text)
        return Refused(resolved.defects) if isinstance(resolved, Refused) else resolved.resolution.manifest
    if folder is None or (url is None and not folder.is_dir()):
        return Refused(NonEmpty(NothingNamed(text)))
    from countermark.store.opening import open_store

    with open_store(ledger_of(folder, url), create=False) as store:
        record = find_run(store, text)
    return Refused(record.defects) if isinstance(record, Refused) else record.ledger.desired.manifest


def manifest_of_checkpoint(path: str) -> Manifest | Refused[object]:
    """What a checkpoint says that it belongs to."""
    readback = read_checkpoint(Path(path))
    if isinstance(readback, CheckpointNotThere):
        return Refused(NonEmpty(CheckpointAbsent(readback.path, readback.why)))
    if readback.declared is None:
        return Refused(NonEmpty(CheckpointDeclaresNothing(path)))
    manifest = manifest_from_spellings(readback.declared)
    return Refused(manifest.defects) if isinstance(manifest, Refused) else manifest


def find_run(store: Store, text: str) -> RunRecord | Refused[object]:
    """The run that an id of a run or of one of its attempts names, in full or by a prefix of 8 or more digits."""
    if len(text) < PREFIX_MIN:
        return Refused(NonEmpty(NothingNamed(text)))
    runs = {summary.run_id for summary in store.find_runs(text)}
    found = runs or {attempt.run_id for attempt in store.find_attempt(text)}
    if not found:
        return Refused(NonEmpty(NothingNamed(text)))
    if len(found) > 1:
        return Refused(NonEmpty(SeveralNamed(text, tuple(sorted(found)))))
    record = store.load_run(found.pop())
    return Refused(record.defects) if isinstance(record, Refused) else record


def manifest_diff(a: Manifest, b: Manifest) -> tuple[Difference, ...]:
    """Every difference of the two."""
    return differing(a, b)
