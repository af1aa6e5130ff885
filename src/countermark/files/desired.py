"""``manifest.json`` in an attempt's folder: the desired manifest as COMMAND is handed it, bytes ↔ values.

Rules kept here:

1. The bytes follow from the values alone, so that every dispatch of one claim writes the same. Sources are absolute paths or numbers of
   rows; the trainer settings are inert.
2. Nothing is optional and nothing has a default: a field that is missing, unknown, repeated or of another type is refused, and so is a
   coordinate that is missing, unknown or not spelled canonically. Every reason is given at once.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, final

from countermark.files.attempt_folder import MANIFEST, read_bounded
from countermark.files.documents import as_object, parse_object
from countermark.recipe import Manifest, ManifestDefect, manifest_from_spellings, spellings
from countermark.recipe.text import SOURCES, TRAINER_SETTINGS, Setting, read_inert
from countermark.values import NonEmpty, Refused, Unreadable, shown
from countermark.weights.refusals import DocumentUnreadable

#: The folder of an attempt's published checkpoints, and the trainer's own word on what ran.
CHECKPOINTS: Final = "checkpoints"
EFFECTIVE: Final = "effective.json"
ENVIRONMENT: Final = "environment.json"
DESIRED_BYTES_MAX: Final = 4 << 20
_KIND: Final = "desired-manifest"
_FIELDS: Final = ("countermark", "kind", "attempt", "workKey", "manifest", "sources", "trainer")
_SPELLED: Final = {
    "attempt": (re.compile(r"[0-9a-f]{32}", re.ASCII), "32 lower-case hexadecimal digits"),
    "workKey": (re.compile(r"wk1:[0-9a-f]{64}", re.ASCII), "wk1: and 64 lower-case hexadecimal digits"),
}


DesiredDefect: TypeAlias = DocumentUnreadable | ManifestDefect


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
        "kind": _KIND,
        "attempt": desired.attempt,
        "workKey": desired.work_key,
        "manifest": spellings(desired.manifest),
        "sources": dict(sorted(desired.sources.items())),
        "trainer": dict(sorted(desired.trainer.items())),
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"


def read_desired(folder: Path) -> Desired | Refused[DesiredDefect] | None:
    """The desired manifest in an attempt's folder; None when there surely is none."""
    data = read_bounded(folder / MANIFEST, DESIRED_BYTES_MAX)
    if data is None:
        return None
    return _refused(data.why) if isinstance(data, Unreadable) else decode_desired(data)


def decode_desired(data: bytes) -> Desired | Refused[DesiredDefect]:
    """The desired manifest that the bytes are, or everything that is wrong with them."""
    if len(data) > DESIRED_BYTES_MAX:
        return _refused(f"it has {len(data)} bytes; {DESIRED_BYTES_MAX} are the most")
    document = parse_object(data)
    if isinstance(document, Unreadable):
        return _refused(document.why)
    tables = {name: as_object(document.get(name)) or {} for name in ("manifest", "sources", "trainer")}
    sources, trainer = dict(_sources(tables["sources"])), dict(_settings(tables["trainer"]))
    whys = (*_shape(document), *_unread("sources", tables["sources"], sources), *_unread("trainer", tables["trainer"], trainer))
    found: list[DesiredDefect] = [DocumentUnreadable(MANIFEST, why) for why in whys]
    manifest = manifest_from_spellings(tables["manifest"])
    if isinstance(manifest, Refused):
        found.extend(manifest.defects)
    if (defects := NonEmpty.of(found)) is not None or isinstance(manifest, Refused):
        assert defects is not None, "a refused manifest has defects"
        return Refused(defects)
    return Desired(str(document["attempt"]), str(document["workKey"]), manifest, sources, trainer)


def _refused(why: str) -> Refused[DesiredDefect]:
    return Refused(NonEmpty(DocumentUnreadable(MANIFEST, why)))


def _shape(document: Mapping[str, object]) -> Iterator[str]:
    """What is wrong with the document's own fields."""
    for name in _FIELDS:
        if name not in document:
            yield f"{name} is missing"
    yield from (f"{shown(name)} is no field of it" for name in document if name not in _FIELDS)
    version, kind = document.get("countermark", 1), document.get("kind", _KIND)
    if type(version) is not int or version != 1:
        yield f"countermark is {shown(version)}, and this release reads format 1"
    if kind != _KIND:
        yield f"kind is {shown(kind)} and must be {_KIND}"
    for name, (pattern, words) in _SPELLED.items():
        value = document.get(name)
        if name in document and not (isinstance(value, str) and pattern.fullmatch(value)):
            yield f"{name} must be {words}"
    for name in ("manifest", "sources", "trainer"):
        if name in document and as_object(document[name]) is None:
            yield f"{name} must be a table"


def _unread(table: str, said: Mapping[str, object], read: Mapping[str, object]) -> Iterator[str]:
    return (f"{table}.{shown(name)} cannot be {shown(value)}" for name, value in said.items() if name not in read)


def _sources(table: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Absolute paths, and numbers of rows, by the roster of sources."""
    for name, value in table.items():
        if name not in SOURCES or not isinstance(value, str):
            continue
        if os.path.isabs(value) if SOURCES[name].kind is None else isinstance(read_inert(SOURCES[name], value), int):
            yield name, value


def _settings(table: Mapping[str, object]) -> Iterator[tuple[str, Setting]]:
    """Settings of the trainer. Those of the roster hold what it allows; settings of other tools are let be, as texts and whole numbers."""
    for name, value in table.items():
        if not isinstance(value, str | int) or isinstance(value, bool):
            continue
        if name not in TRAINER_SETTINGS or not isinstance(read_inert(TRAINER_SETTINGS[name], value), Unreadable):
            yield name, value
