"""``manifest.json`` in an attempt's folder: the desired manifest as COMMAND is handed it, bytes ↔ values.

The bytes follow from the values alone, so that every dispatch of one claim writes the same. Sources are absolute paths; the trainer
settings are inert.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast, final

from countermark.files.attempt_folder import MANIFEST, read_bounded
from countermark.files.documents import parse_object
from countermark.recipe import Manifest, manifest_from_spellings, spellings
from countermark.values import NonEmpty, Refused, Unreadable
from countermark.weights.refusals import DocumentUnreadable

#: The folder of an attempt's published checkpoints, and the trainer's own word on what ran.
CHECKPOINTS: Final = "checkpoints"
EFFECTIVE: Final = "effective.json"
ENVIRONMENT: Final = "environment.json"
DESIRED_BYTES_MAX: Final = 4 << 20


@final
@dataclass(frozen=True, slots=True)
class Desired:
    """What an attempt is to do: its nonce, the Work key's spelling, the manifest, where its sources lie, and inert trainer settings."""

    attempt: str
    work_key: str
    manifest: Manifest
    sources: Mapping[str, str]
    trainer: Mapping[str, object]


def encode_desired(desired: Desired) -> bytes:
    """The document's bytes."""
    document = {
        "countermark": 1,
        "kind": "desired-manifest",
        "attempt": desired.attempt,
        "workKey": desired.work_key,
        "manifest": spellings(desired.manifest),
        "sources": dict(sorted(desired.sources.items())),
        "trainer": dict(sorted(desired.trainer.items())),
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"


def read_desired(folder: Path) -> Desired | Refused[object] | None:
    """The desired manifest in an attempt's folder; None when there surely is none."""
    data = read_bounded(folder / MANIFEST, DESIRED_BYTES_MAX)
    if data is None:
        return None
    return Refused(NonEmpty(DocumentUnreadable(MANIFEST, data.why))) if isinstance(data, Unreadable) else decode_desired(data)


def decode_desired(data: bytes) -> Desired | Refused[object]:
    """The desired manifest that the bytes are, or everything that is wrong with them."""
    document = parse_object(data)
    if isinstance(document, Unreadable):
        return Refused(NonEmpty(DocumentUnreadable(MANIFEST, document.why)))
    attempt, work_key = document.get("attempt"), document.get("workKey")
    tables = [document.get(name) for name in ("manifest", "sources", "trainer")]
    if document.get("countermark") != 1 or not isinstance(attempt, str) or not isinstance(work_key, str):
        return Refused(NonEmpty(DocumentUnreadable(MANIFEST, "it is no desired manifest of this version")))
    if not all(isinstance(table, dict) for table in tables):
        return Refused(NonEmpty(DocumentUnreadable(MANIFEST, "manifest, sources and trainer are tables")))
    stored, sources, trainer = (cast("dict[str, object]", table) for table in tables)
    manifest = manifest_from_spellings(cast("dict[str, str]", stored))
    if isinstance(manifest, Refused):
        return Refused(manifest.defects)
    return Desired(attempt, work_key, manifest, {name: str(path) for name, path in sources.items()}, trainer)
