"""The project's own published form: a checkpoint of any layout, and ``countermark.json`` beside its files, which lists them.

Rules kept here:

1. Nothing is optional and nothing has a default: a missing, unknown or repeated field is unreadable. What may be recorded or not is a
   tagged union with an arm for each.
2. A manifest that contradicts itself (a component's digest that does not follow from its files, a file in two components, components of
   another step or attempt) is unreadable: nothing is concluded from half of it.
3. It is bounded, and so is each text in it. File names are plain names, of the folder or of folders below it.
4. ``Atomic`` is said where the manifest is whole, the folder holds exactly the files that it lists, and the folder has the name that the
   publisher gives by its one rename. The components are held against the digests that they were published with.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal, final

import msgspec

from countermark.files.digest_cache import hash_whole
from countermark.files.documents import parse_object
from countermark.files.layouts.reading import LayoutReading, Naming
from countermark.files.reading import OpenFile, is_plain_name, open_below, read_small
from countermark.lines.defects import sentence
from countermark.run.checkpoint import (
    COMPONENTS,
    Atomic,
    Component,
    ComponentRead,
    FileReading,
    Incomplete,
    Publication,
    Unobserved,
    component_digest,
)
from countermark.values import Sha256, Unreadable, shown
from countermark.weights.refusals import FileDefect

MANIFEST: Final = "countermark.json"
MANIFEST_BYTES_MAX: Final = 16 << 20
#: What a checkpoint is called that we published, whatever its layout.
PUBLISHED_NAMING: Final = Naming("step-{step}")

_Sha256Text = Annotated[str, msgspec.Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
_NonceText = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


@final
class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: _Sha256Text
    bytes: _Count


@final
class _Component(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    digest: _Sha256Text
    bytes: _Count
    step: _Count
    attempt: _NonceText
    files: dict[_Text, _File]


@final
class Counted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", tag_field="is", tag="counted"):
    """The trainer counted the micro batches that it took."""

    micro_batches: _Count


@final
class Uncounted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is", tag="uncounted"):
    """Nobody counted micro batches: the position follows from the step."""


@final
class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", tag_field="kind", tag="checkpoint"):
    countermark: Literal[1]
    attempt: _NonceText
    work_key: Annotated[str, msgspec.Meta(pattern=r"^wk1:[0-9a-f]{64}\Z")]
    step: _Count
    layout: _Text
    components: dict[Literal["model_weights", "optimizer_state", "scheduler_state", "rng_state", "data_position"], _Component]
    position: Counted | Uncounted
    other_files: dict[_Text, _File]
    manifest: dict[_Text, _Text]


@final
@dataclass(frozen=True, slots=True)
class PublishedManifest:
    """What a published checkpoint says of itself. ``manifest`` is the desired manifest's 23 spellings; ``attempt`` is a nonce."""

    attempt: str
    work_key: str
    step: int
    layout: str
    components: Mapping[Component, tuple[FileReading, ...]]
    others: tuple[FileReading, ...]
    micro_batches: int | None
    manifest: Mapping[str, str]

    def names(self) -> frozenset[str]:
        """Every file that the folder holds, the manifest itself included."""
        files = (*(file for files in self.components.values() for file in files), *self.others)
        return frozenset(file.name for file in files) | {MANIFEST}


def encode_manifest(published: PublishedManifest) -> bytes:
    """The bytes of the manifest, ordered and indented for people."""
    components: dict[str, _Component] = {}
    for component in COMPONENTS:
        files = published.components[component]
        size = sum(file.bytes for file in files)
        digest = component_digest(files).spell()
        components[component.value] = _Component(digest, size, published.step, published.attempt, _files(files))
    # Constructed from a document, so that writing and reading cannot drift apart.
    document = {
        "kind": "checkpoint",
        "countermark": 1,
        "attempt": published.attempt,
        "workKey": published.work_key,
        "step": published.step,
        "layout": published.layout,
        "components": msgspec.to_builtins(components),
        "position": msgspec.to_builtins(Uncounted() if published.micro_batches is None else Counted(published.micro_batches)),
        "otherFiles": msgspec.to_builtins(_files(published.others)),
        "manifest": dict(published.manifest),
    }
    checked = msgspec.convert(document, _Manifest)
    return msgspec.json.format(msgspec.json.encode(checked), indent=1) + b"\n"


def decode_manifest(content: bytes) -> PublishedManifest | Unreadable:
    """A manifest from its bytes, or why it is none."""
    document = parse_object(content)
    if isinstance(document, Unreadable):
        return document
    try:
        read = msgspec.convert(document, _Manifest)
    except msgspec.ValidationError as error:
        return Unreadable(str(error))
    problems = _contradictions(read)
    if not content.endswith(b"}\n"):
        problems = (*problems, "its last line has no end")
    if problems:
        return Unreadable("; ".join(problems))
    components = {component: _readings(read.components[component.value].files) for component in COMPONENTS}
    position = read.position
    return PublishedManifest(
        read.attempt,
        read.work_key,
        read.step,
        read.layout,
        components,
        _readings(read.other_files),
        position.micro_batches if isinstance(position, Counted) else None,
        read.manifest,
    )


def _contradictions(read: _Manifest) -> tuple[str, ...]:
    problems = [f"it has no {component}" for component in COMPONENTS if component.value not in read.components]
    names: list[str] = [*read.other_files]
    for name, component in read.components.items():
        files = _readings(component.files)
        names.extend(component.files)
        if component_digest(files).spell() != component.digest:
            problems.append(f"the digest of {name} is not that of its files")
        if component.bytes != sum(file.bytes for file in files):
            problems.append(f"the size of {name} is not that of its files")
        if component.step != read.step:
            problems.append(f"{name} is of step {component.step}, the checkpoint of {read.step}")
        if component.attempt != read.attempt:
            problems.append(f"{name} is of attempt {component.attempt}, the checkpoint of {read.attempt}")
    if len(set(names)) < len(names) or MANIFEST in names:
        problems.append("a file is listed twice")
    if not all(is_plain_name(part) for name in names for part in name.split("/")):
        problems.append("a file's name is no plain name")
    return tuple(problems)


def _files(files: tuple[FileReading, ...]) -> dict[str, _File]:
    return {file.name: _File(file.sha256.spell(), file.bytes) for file in files}


def _readings(files: Mapping[str, _File]) -> tuple[FileReading, ...]:
    return tuple(FileReading(name, Sha256(files[name].sha256.removeprefix("sha256:")), files[name].bytes) for name in sorted(files))


def read_manifest(path: Path) -> PublishedManifest | Unreadable:
    """The manifest in a folder, or why it is none."""
    content = read_small(path, MANIFEST, MANIFEST_BYTES_MAX)
    return decode_manifest(content) if isinstance(content, bytes) else Unreadable(sentence(content).message)


def hold_manifest(path: Path, names: frozenset[str], layout: str, reading: LayoutReading, manifest: PublishedManifest | Unreadable) -> None:
    """Hold what was read, by this layout, of a folder with these files against its manifest, and say in the reading what that proves of its
    publication."""
    if isinstance(manifest, Unreadable):
        reading.publication = Incomplete((f"{MANIFEST} is unreadable: {manifest.why}",))
        return
    for component, read in reading.components.items():
        if isinstance(read, ComponentRead):
            reading.components[component] = replace(read, declared=component_digest(manifest.components[component]))
    reading.step = manifest.step
    whys = [*_differences(path, names, manifest)]
    if manifest.layout != layout:
        whys.append(f"{MANIFEST} is of layout {shown(manifest.layout)}, the files are those of {layout}")
    named = PUBLISHED_NAMING.numbered(path.name)
    if named is not None and named.step != manifest.step:
        whys.append(f"{MANIFEST} is of step {manifest.step}, the folder is called {shown(path.name)}")
    reading.publication = Incomplete(tuple(whys)) if whys else _renamed(path, manifest)


def _differences(path: Path, names: frozenset[str], manifest: PublishedManifest) -> Iterator[str]:
    """How the files differ from the manifest, apart from those of the components, whose digests are held against it anyway."""
    yield from (f"{shown(name)} is not in {MANIFEST}" for name in sorted(names - manifest.names()))
    for file in manifest.others:
        if file.name not in names:
            yield f"{shown(file.name)} is listed in {MANIFEST} and not there"
            continue
        found = exact_file(path, file.name)
        if not isinstance(found, FileReading):
            yield sentence(found).message
        elif found != file:
            yield f"{shown(file.name)} is not the file that was published"


def exact_file(folder: Path, name: str) -> FileReading | FileDefect:
    """A file of a folder, or of a folder below it, by all of its bytes."""
    opened = open_below(folder, name)
    if not isinstance(opened, OpenFile):
        return opened
    with opened:
        digest = hash_whole(opened)
    return FileReading(name, digest, opened.size) if isinstance(digest, Sha256) else digest


def _renamed(path: Path, manifest: PublishedManifest) -> Publication:
    """The publisher renames a whole folder to ``step-N``; any other name was given by somebody else, who may have copied in place."""
    if path.name == f"step-{manifest.step}":
        return Atomic(f"{MANIFEST} lists exactly what is there, and the folder was renamed to {path.name} after it was written")
    return Unobserved((f"it was published as step-{manifest.step} and is called {shown(path.name)} now",))
