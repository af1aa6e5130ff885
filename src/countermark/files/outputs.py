"""What an attempt left at its output place, read back by an observer.

Rules kept here:

1. The digest of an output covers the weights root and, for an adapter, the keys of its configuration that change inference: equal weights
   with another alpha are another output.
2. An adapter without its configuration is unreadable: its weights alone say nothing.
3. An output without weights that are known (pickles, other formats) has the digest of its exact files, and says so in its kind; broken
   weights are refused and never counted as mere files.
4. The output place itself is no link: what lies elsewhere was not published there.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

from countermark.files.adapter import AdapterConfig, read_adapter
from countermark.files.exact import measure_files
from countermark.files.model_folder import MeasuredWeights, TotalProgress, measure_weights
from countermark.files.reading import is_folder, is_link, list_folder
from countermark.recipe.canonical import canonical_json, digest_of
from countermark.values import FilesDigest, NonEmpty, Refused, Sha256, WeightsRoot
from countermark.weights.refusals import ExactDefect, FileNotRegular, WeightsAbsent, WeightsDefect

ADAPTER: Final = "adapter_model.safetensors"
OutputKind: TypeAlias = Literal["adapter", "model", "files"]
OutputDefect = WeightsDefect | ExactDefect


@final
@dataclass(frozen=True, slots=True)
class OutputReading:
    """An output as it was read: what it is (``digest``), what its weights are (``root``), and the bytes that were hashed."""

    digest: Sha256
    root: WeightsRoot | FilesDigest
    bytes: int
    kind: OutputKind


def measure_output(path: Path, *, progress: TotalProgress | None = None) -> OutputReading | Refused[OutputDefect]:
    """The output in a folder, or everything that makes it unreadable."""
    if is_link(path):
        return Refused(NonEmpty(FileNotRegular(path.name, "a link")))
    weights = measure_weights(path, progress=progress)
    if isinstance(weights, MeasuredWeights):
        return _of_weights(path, weights)
    if not any(isinstance(defect, WeightsAbsent) for defect in weights.defects):
        return _with_config_defects(path, weights)
    files = measure_files(path)
    if isinstance(files, Refused):
        return files
    return OutputReading(output_digest("files", files.digest, None), files.digest, files.bytes, "files")


def output_digest(kind: OutputKind, root: WeightsRoot | FilesDigest, config: AdapterConfig | None) -> Sha256:
    """The identity of an output: its kind, its root, and the canonical text of what else changes inference."""
    keys = canonical_json(config.inference()) if config else b""
    return digest_of(b"countermark/output/1", kind.encode(), root.spell().encode(), keys)


def _of_weights(path: Path, weights: MeasuredWeights) -> OutputReading | Refused[OutputDefect]:
    if weights.kind != "adapter":
        return OutputReading(output_digest("model", weights.root, None), weights.root, weights.bytes, "model")
    config = read_adapter(path if is_folder(path) else path.parent)
    if not isinstance(config, AdapterConfig):
        return Refused(NonEmpty(config))
    return OutputReading(output_digest("adapter", weights.root, config), weights.root, weights.bytes, "adapter")


def _with_config_defects(path: Path, weights: Refused[WeightsDefect]) -> Refused[OutputDefect]:
    """The defects of broken weights, and those of the configuration beside them if they are an adapter's."""
    names = list_folder(path)
    if not isinstance(names, tuple) or ADAPTER not in {entry.name for entry in names}:
        return Refused(weights.defects)
    config = read_adapter(path)
    more: tuple[OutputDefect, ...] = () if isinstance(config, AdapterConfig) else (config,)
    return Refused(NonEmpty(weights.defects.first, (*weights.defects.more, *more)))
