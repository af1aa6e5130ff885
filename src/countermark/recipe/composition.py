"""``mc1``: what ran. A model as it was loaded is more than its weights: adapters in their order, how they were merged, how text became ids.

Rules kept here:

1. The digest is the SHA-256 of the canonical JSON (RFC 8785) of base root, ordered adapters (each its root and the keys of its
   configuration that change inference), merge rule, tokenizer, chat template, load dtype and quantization. Nothing else counts.
2. Several spellings of one thing are one: ``bf16``, ``torch.bfloat16`` and ``bfloat16``. A thing that only says where to look (``auto``) is
   none and is refused.
3. Ranks and scalings by pattern are pairs in the order of the file: the first pattern that fits a module counts.
4. What an adapter's makers call *merged* is not the base beside its adapter: other numbers come out. A derivation says which root came of
   which composition; the two are never equal by name.
5. Everything that is wrong with what was said is found at once.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast, final

from countermark.recipe.canonical import canonical_json
from countermark.values import CompositionDigest, FilesDigest, NonEmpty, Refused, Sha256, Unreadable, WeightsRoot, shown

#: How adapters come to the base: beside it while it runs, put into its weights before, or first made into one adapter, as PEFT's
#: ``add_weighted_adapter`` does under these names.
BESIDE: Final = "active"
INTO: Final = "merged"
COMBINED: Final = (
    "linear", "cat", "svd", "ties", "ties_svd", "dare_linear", "dare_linear_svd", "dare_ties", "dare_ties_svd", "magnitude_prune",
    "magnitude_prune_svd",
)  # fmt: skip
MERGE_RULES: Final = (BESIDE, INTO, *COMBINED)
#: What can be said of a rule, beside the adapters' weights.
_MERGE_KEYS: Final = ("density", "majority_sign_method", "seed", "svd_rank", "weights")

#: Types in which weights are loaded, as torch spells them, and what else they are called.
LOAD_DTYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "float64": ("double", "fp64", "f64"),
    "float32": ("float", "fp32", "f32"),
    "float16": ("half", "fp16", "f16"),
    "bfloat16": ("bf16",),
    "float8_e4m3fn": ("fp8_e4m3", "f8_e4m3"),
    "float8_e5m2": ("fp8_e5m2", "f8_e5m2"),
}
#: A base that was stored quantized and is loaded as plain numbers.
DEQUANTIZED: Final = "dequantized"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,9}(\.\d{1,9})?", re.ASCII)
#: Keys of an adapter's configuration whose order decides, though they are written as a table.
_FIRST_COUNTS: Final = ("alpha_pattern", "rank_pattern")


@final
@dataclass(frozen=True, slots=True)
class CompositionUnsaid:
    """Nothing says this part of what ran; ``option`` says it."""

    part: str
    option: str


@final
@dataclass(frozen=True, slots=True)
class CompositionUnreadable:
    """What was said of a part is not one that it can be."""

    part: str
    said: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class CompositionContradicts:
    """Two places say different things of one part."""

    part: str
    stored: str
    said: str


@final
@dataclass(frozen=True, slots=True)
class CompositionPartRefused:
    """A part cannot be measured, for the ``defects`` reasons that stand after this one."""

    part: str
    path: str
    defects: int


@final
@dataclass(frozen=True, slots=True)
class AdapterKeysUnknown:
    """Keys of an adapter's configuration that no release of ours knows: they count as changing what the adapter computes."""

    path: str
    keys: tuple[str, ...]


CompositionDefect = CompositionUnsaid | CompositionUnreadable | CompositionContradicts | CompositionPartRefused | AdapterKeysUnknown


@final
@dataclass(frozen=True, slots=True)
class Merge:
    """How adapters come to the base; ``settings`` are numbers, texts and lists of numbers under the rule's keys."""

    rule: str
    settings: Mapping[str, object]

    def document(self) -> Mapping[str, object]:
        return {"rule": self.rule, **self.settings}


@final
@dataclass(frozen=True, slots=True)
class AdapterPart:
    """An adapter: its root, and the keys of its configuration that change inference, sets sorted."""

    root: WeightsRoot
    config: Mapping[str, object]

    def document(self) -> Mapping[str, object]:
        return {"root": self.root.spell(), "config": {key: _in_order(key, value) for key, value in self.config.items()}}


@final
@dataclass(frozen=True, slots=True)
class Composition:
    """What ran. ``merge`` is None exactly where there are no adapters; ``quantization`` None where nothing was quantized."""

    base: WeightsRoot | FilesDigest
    adapters: tuple[AdapterPart, ...]
    merge: Merge | None
    tokenizer: Sha256
    chat_template: Sha256 | None
    dtype: str
    quantization: str | Mapping[str, object] | None

    def __post_init__(self) -> None:
        if (self.merge is None) != (not self.adapters):
            raise ValueError("a merge rule is said exactly where there are adapters")
        if self.dtype not in LOAD_DTYPES:
            raise ValueError("the load dtype is not spelled as torch spells it")

    def document(self) -> Mapping[str, object]:
        """What is hashed, as a JSON value."""
        return {
            "adapters": [adapter.document() for adapter in self.adapters],
            "base": self.base.spell(),
            "chatTemplate": None if self.chat_template is None else self.chat_template.spell(),
            "dtype": self.dtype,
            "merge": None if self.merge is None else self.merge.document(),
            "quantization": self.quantization,
            "tokenizer": self.tokenizer.spell(),
        }

    def digest(self) -> CompositionDigest:
        """The digest. Raises ``ValueError`` where a configuration has no canonical JSON; whoever reads one has made sure of that."""
        return CompositionDigest(hashlib.sha256(canonical_json(self.document())).hexdigest())


@final
@dataclass(frozen=True, slots=True)
class Derivation:
    """A checkpoint that was made of a composition: what it came of, and the root that it has."""

    of: CompositionDigest
    made: WeightsRoot | FilesDigest


def _in_order(key: str, value: object) -> object:
    if key not in _FIRST_COUNTS or not isinstance(value, Mapping):
        return value
    return [[name, inner] for name, inner in cast("Mapping[object, object]", value).items()]


def read_dtype(text: str) -> str | CompositionUnreadable:
    """A load dtype in torch's spelling."""
    name = text.removeprefix("torch.").lower()
    for dtype, others in LOAD_DTYPES.items():
        if name == dtype or name in others:
            return dtype
    why = "it says where to look, and not what was found" if name == "auto" else f"known are {', '.join(LOAD_DTYPES)}"
    return CompositionUnreadable("dtype", text, why)


def read_quantization(text: str) -> str | CompositionUnreadable:
    """The name of a quantization."""
    if _NAME.fullmatch(text):
        return text
    return CompositionUnreadable("quantization", text, "a quantization is a name, or a file of JSON")


def read_merge(text: str, adapters: int) -> Merge | Refused[CompositionDefect]:
    """A rule and its settings, as ``ties weights=0.7,0.3 density=0.5``, for as many adapters; or everything that is wrong with it."""
    rule, *pairs = text.split() or [""]
    whys: list[str] = [] if rule in MERGE_RULES else [f"the rules are {', '.join(MERGE_RULES)}"]
    settings: dict[str, object] = {}
    for pair in pairs:
        key, _, raw = pair.partition("=")
        value = _setting(key, raw)
        if isinstance(value, Unreadable):
            whys.append(f"{shown(pair)}: {value.why}")
        elif key in settings:
            whys.append(f"{key} stands twice")
        else:
            settings[key] = value
    weights = cast("list[object] | None", settings.get("weights"))
    if rule in COMBINED and weights is None:
        whys.append(f"{rule} needs weights=…, one for each adapter")
    if weights is not None and len(weights) != adapters:
        whys.append(f"it has {len(weights)} weights for {adapters} adapters")
    refused = NonEmpty.of(CompositionUnreadable("merge", text, why) for why in whys)
    return Merge(rule, settings) if refused is None else Refused(refused)


def _setting(key: str, raw: str) -> object:
    """A setting's value: numbers for all keys but the one that is a word."""
    if key not in _MERGE_KEYS:
        return Unreadable(f"a rule's settings are {', '.join(_MERGE_KEYS)}")
    if key == "majority_sign_method":
        return raw if raw in ("total", "frequency") else Unreadable("it is total or frequency")
    parts = raw.split(",") if key == "weights" else [raw]
    if not all(_NUMBER.fullmatch(part) for part in parts):
        return Unreadable("a number was expected" if key != "weights" else "numbers with commas between them were expected")
    numbers = [float(part) if "." in part else int(part) for part in parts]
    return numbers if key == "weights" else numbers[0]


def settled_quantization(
    stored: Mapping[str, object] | None, said: str | Mapping[str, object] | None
) -> str | Mapping[str, object] | None | CompositionContradicts:
    """The quantization that ran: what the base is stored in, or what was said at loading. A base that is stored quantized was loaded so, or
    was said to be dequantized."""
    if stored is None:
        return None if said == "none" else said
    if said is None or said == stored:
        return stored
    if said == DEQUANTIZED:
        return DEQUANTIZED
    method = stored.get("quant_method")
    told = said if isinstance(said, str) else "another configuration"
    return CompositionContradicts("quantization", method if isinstance(method, str) else "a configuration of its own", told)


def template_digest(template: str | None) -> Sha256 | None:
    """The digest of a chat template's text."""
    return None if template is None else Sha256(hashlib.sha256(template.encode(errors="surrogatepass")).hexdigest())
