"""What ran, measured from the folders that it was loaded from: base, adapters in their order, tokenizer.

Rules kept here:

1. What the base's own configuration says of its type and quantization is taken where a caller says nothing; what neither says is refused,
   with the option that says it.
2. Every part is looked at, whatever is wrong with another: a refusal names the part, and after it each of its defects by its whole path.
3. A base without a root (a pickle, a GGUF file of packed blocks) is told by the digest of its exact files. An adapter always has a root.
4. The base's configuration is no part of what ran (docs/decisions/0020-the-base-of-a-composition-is-its-root.md); the base with it is told
   beside the digest.
5. A key of an adapter's configuration that is not known counts as changing what ran, and is told.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar, cast, final

from countermark.files.adapter import AdapterConfig, read_adapter
from countermark.files.digest_cache import DigestCache
from countermark.files.documents import CONFIG_BYTES_MAX, as_object, parse_object
from countermark.files.measuring import measure_form
from countermark.files.model_folder import TotalProgress, hub_blobs, measure_weights
from countermark.files.opened_weights import form_of
from countermark.files.reading import find, is_folder, read_small
from countermark.files.tokenizer_folder import FILE_BYTES_MAX, measure_tokenizer
from countermark.recipe.canonical import base_artifact_of, canonical_json
from countermark.recipe.composition import (
    AdapterKeysUnknown,
    AdapterPart,
    Composition,
    CompositionContradicts,
    CompositionDefect,
    CompositionPartRefused,
    CompositionUnreadable,
    CompositionUnsaid,
    Merge,
    read_dtype,
    read_merge,
    read_quantization,
    settled_quantization,
    template_digest,
)
from countermark.values import FilesDigest, NonEmpty, Refused, Sha256, Unreadable, WeightsRoot
from countermark.weights.refusals import (
    DocumentDefect,
    DocumentUnreadable,
    ExactDefect,
    FileAbsent,
    TokenizerDefect,
    WeightsDefect,
    WeightsKind,
    WeightsOfOtherKind,
)

CONFIG: Final = "config.json"
AnyDefect = CompositionDefect | WeightsDefect | TokenizerDefect | ExactDefect
_T = TypeVar("_T")


@final
@dataclass(frozen=True, slots=True)
class Loading:
    """How the parts were loaded, as a person says it; None: what the folders say. ``adapters`` in the order in which they are applied."""

    base: str
    adapters: tuple[str, ...] = ()
    merge: str | None = None
    tokenizer: str | None = None
    chat_template: str | None = None
    dtype: str | None = None
    quantization: str | None = None


@final
@dataclass(frozen=True, slots=True)
class MeasuredComposition:
    """What ran, the coordinate of the base with its configuration (None where it has none, or no root), where each part of it was read (by
    the part's name), and the keys of adapters that nobody knows."""

    composition: Composition
    base_artifact: Sha256 | None
    sources: Mapping[str, str]
    unknown: tuple[AdapterKeysUnknown, ...]


@final
@dataclass(slots=True)
class _Gathering:
    """What was found so far, and everything that was wrong."""

    defects: list[AnyDefect] = field(default_factory=list[AnyDefect])
    sources: dict[str, str] = field(default_factory=dict[str, str])

    def part(self, name: str, path: str, found: "_T | Refused[AnyDefect]") -> _T | None:
        """A part as it was read, or None and its defects by whole paths."""
        if isinstance(found, Refused):
            defects = cast("Refused[AnyDefect]", found).defects
            self.defects.append(CompositionPartRefused(name, path, len(defects)))
            self.defects.extend(_placed(defect, path) for defect in defects)
            return None
        self.sources[name] = path
        return found

    def said(self, name: str, source: str, found: "_T | CompositionUnreadable | CompositionContradicts") -> _T | None:
        """What was said of a part, or None and why it is nothing."""
        if isinstance(found, CompositionUnreadable | CompositionContradicts):
            self.defects.append(found)
            return None
        self.sources[name] = source
        return found


def _placed(defect: AnyDefect, path: str) -> AnyDefect:
    """A defect of a file with the whole path of it: several folders hold files of one name."""
    file = getattr(defect, "file", None)
    if not isinstance(file, str) or os.path.isabs(file) or file == path:
        return defect
    placed: AnyDefect = replace(cast("Any", defect), file=os.path.join(path if is_folder(Path(path)) else os.path.dirname(path), file))
    return placed


@final
@dataclass(frozen=True, slots=True)
class _Watched:
    """Who is told of the measuring, and what was measured before."""

    progress: Callable[[str], TotalProgress]
    cache: DigestCache | None


def _silent(what: str) -> TotalProgress:
    """Nobody watches."""
    return lambda done, total: None


def measure_composition(
    loading: Loading, progress: Callable[[str], TotalProgress] = _silent, cache: DigestCache | None = None
) -> MeasuredComposition | Refused[AnyDefect]:
    """What ran, or everything that keeps it from having a digest."""
    found = _Gathering()
    watched = _Watched(progress, cache)
    measured = _base(loading.base, watched)
    found.part("base", loading.base, measured)
    base = None if isinstance(measured, Refused) else measured
    unknown: list[AdapterKeysUnknown] = []
    adapters: list[AdapterPart] = []
    for number, path in enumerate(loading.adapters, 1):
        part = found.part(f"adapter {number}", path, _adapter(path, watched))
        if part is not None:
            adapters.append(AdapterPart(part.root, part.config.ran()))
            unknown.extend([AdapterKeysUnknown(path, part.config.unknown())] if part.config.unknown() else ())
    merge = _merge(loading, found)
    tokenizer, template = _tokenizer(loading, found)
    config = _config(loading.base, found)
    dtype, quantization = _loaded(loading, config or {}, found)
    if (refused := NonEmpty.of(found.defects)) is not None:
        return Refused(refused)
    assert base is not None
    assert tokenizer is not None
    assert dtype is not None
    ran = Composition(base, tuple(adapters), merge, tokenizer, template, dtype, quantization)
    artifact = base_artifact_of(base, config) if config is not None and isinstance(base, WeightsRoot) else None
    return MeasuredComposition(ran, artifact, found.sources, tuple(unknown))


def _weights(path: str, wanted: WeightsKind, watched: _Watched) -> WeightsRoot | Refused[AnyDefect]:
    """The root of weights that are of the wanted kind, or of none that their name says."""
    weights = measure_weights(Path(path), progress=watched.progress(path), cache=watched.cache)
    if isinstance(weights, Refused):
        return Refused(weights.defects)
    if weights.kind is not None and weights.kind != wanted:
        return Refused(NonEmpty(WeightsOfOtherKind(wanted, weights.kind)))
    return weights.root


def _base(path: str, watched: _Watched) -> WeightsRoot | FilesDigest | Refused[AnyDefect]:
    """The base's root; the digest of its exact files where its form has no root."""
    real = find(Path(path))
    if not isinstance(real, Path) or form_of(real, hub_blobs(real)) is None:
        return _weights(path, "model", watched)
    measured = measure_form(Path(path), watched.cache, watched.progress(path))
    if isinstance(measured, Refused):
        return Refused(measured.defects)
    if measured.kind == "adapter":
        return Refused(NonEmpty(WeightsOfOtherKind("model", "adapter")))
    return measured.root if isinstance(measured.root, WeightsRoot) else measured.files


@final
@dataclass(frozen=True, slots=True)
class _Adapter:
    root: WeightsRoot
    config: AdapterConfig


def _adapter(path: str, watched: _Watched) -> _Adapter | Refused[AnyDefect]:
    """An adapter's weights and its configuration, or all that is wrong with either."""
    real = find(Path(path))
    root = _weights(path, "adapter", watched)
    config: AdapterConfig | DocumentDefect = (
        read_adapter(real if is_folder(real) else real.parent, links_to=hub_blobs(real)) if isinstance(real, Path) else real
    )
    defects: list[AnyDefect] = [
        *(root.defects if isinstance(root, Refused) else ()),
        *(() if isinstance(config, AdapterConfig) else [config]),
    ]
    if isinstance(root, WeightsRoot) and isinstance(config, AdapterConfig):
        return _Adapter(root, config)
    refused = NonEmpty.of(defects)
    assert refused is not None
    return Refused(refused)


def _merge(loading: Loading, found: _Gathering) -> Merge | None:
    """The rule by which adapters came to the base. There is none without adapters, and never one that is guessed."""
    if not loading.adapters:
        if loading.merge is not None:
            found.defects.append(CompositionUnreadable("merge", loading.merge, "there is no adapter to merge; name each with --adapter"))
        return None
    if loading.merge is None:
        found.defects.append(CompositionUnsaid("merge", "--merge"))
        return None
    merge = read_merge(loading.merge, len(loading.adapters))
    if isinstance(merge, Refused):
        found.defects.extend(merge.defects)
        return None
    found.sources["merge"] = "--merge"
    return merge


def _tokenizer(loading: Loading, found: _Gathering) -> tuple[Sha256 | None, Sha256 | None]:
    """The tokenizer without its template, and the template: the tokenizer's own, or the one that was used in its place."""
    folder = loading.tokenizer if loading.tokenizer is not None else loading.base
    if loading.tokenizer is None and not is_folder(Path(folder)):
        found.defects.append(CompositionUnsaid("tokenizer", "--tokenizer"))
        measured = None
    else:
        measured = found.part("tokenizer", folder, measure_tokenizer(Path(folder)))
    template = None if measured is None else measured.chat_template
    source = folder
    if loading.chat_template is not None:
        source = loading.chat_template
        read = found.part("chat template", source, _template(source))
        template = read if read is not None else template
    elif template is not None:
        found.sources["chat template"] = source
    return (None if measured is None else measured.apart), template_digest(template)


def _template(path: str) -> str | Refused[AnyDefect]:
    content = _read(path, FILE_BYTES_MAX)
    if not isinstance(content, bytes):
        return Refused(NonEmpty(content))
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        return Refused(NonEmpty(DocumentUnreadable(os.path.basename(path), f"byte {error.start} is not UTF-8")))


def _read(path: str, bytes_max: int) -> bytes | DocumentDefect:
    """A file that a person named, links followed."""
    real = find(Path(path))
    return read_small(real.parent, real.name, bytes_max) if isinstance(real, Path) else real


def _loaded(loading: Loading, config: Mapping[str, object], found: _Gathering) -> tuple[str | None, str | Mapping[str, object] | None]:
    """The load dtype and the quantization: what was said, else what the base's configuration says."""
    dtype: str | None = None
    if loading.dtype is not None:
        dtype = found.said("dtype", "--dtype", read_dtype(loading.dtype))
    else:
        types = [value for key in ("dtype", "torch_dtype") if isinstance(value := config.get(key), str)]
        if not types:
            found.defects.append(CompositionUnsaid("dtype", "--dtype"))
        elif types[0] != types[-1]:
            found.defects.append(CompositionContradicts("dtype", types[0], types[-1]))
        else:
            dtype = found.said("dtype", CONFIG, read_dtype(types[0]))
    said = None if loading.quantization is None else _quantization(loading.quantization, found)
    stored = as_object(config.get("quantization_config"))
    quantization = found.said("quantization", CONFIG if said is None else "--quantization", settled_quantization(stored, said))
    return dtype, quantization


def _config(base: str, found: _Gathering) -> Mapping[str, object] | None:
    """The configuration beside the base's weights; None where a folder has none that is one, or the base is one file."""
    real = find(Path(base))
    if not isinstance(real, Path) or not is_folder(real):
        return None
    content = read_small(real, CONFIG, CONFIG_BYTES_MAX, links_to=hub_blobs(real))
    if isinstance(content, FileAbsent):
        return None
    return found.part("configuration", base, _document(CONFIG, content))


def _document(name: str, content: bytes | DocumentDefect) -> Mapping[str, object] | Refused[AnyDefect]:
    """A JSON object with a canonical form."""
    if not isinstance(content, bytes):
        return Refused(NonEmpty(content))
    document = parse_object(content)
    if isinstance(document, Unreadable):
        return Refused(NonEmpty(DocumentUnreadable(name, document.why)))
    try:
        canonical_json(document)
    except ValueError as error:
        return Refused(NonEmpty(DocumentUnreadable(name, str(error))))
    return document


def _quantization(text: str, found: _Gathering) -> str | Mapping[str, object] | None:
    """A name, or the object in a file of JSON."""
    if not text.endswith(".json") and os.sep not in text:
        return found.said("quantization", "--quantization", read_quantization(text))
    return found.part("quantization", text, _document(os.path.basename(text), _read(text, CONFIG_BYTES_MAX)))
