"""What ran, as a table and as a document: each part with where it was read."""

from collections.abc import Mapping
from typing import cast

from countermark.lines.texts import Document, JsonValue, plain
from countermark.recipe.canonical import canonical_json
from countermark.recipe.composition import Composition, Derivation
from countermark.values import Sha256

PARTS = ("part", "what it is", "from")


def composition_rows(ran: Composition, sources: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    """The parts in the order in which they came together."""
    named: list[tuple[str, str]] = [("base", ran.base.spell())]
    named.extend((f"adapter {number}", part.root.spell()) for number, part in enumerate(ran.adapters, 1))
    if ran.merge is not None:
        named.append(("merge", _json(ran.merge.document())))
    named.append(("tokenizer", ran.tokenizer.spell()))
    named.append(("chat template", "none" if ran.chat_template is None else ran.chat_template.spell()))
    named.append(("dtype", ran.dtype))
    how = ran.quantization
    named.append(("quantization", "none" if how is None else how if isinstance(how, str) else _json(how)))
    return tuple((name, plain(value), "-" if value == "none" else plain(sources.get(name, "-"))) for name, value in named)


def beside_it(base_artifact: Sha256 | None) -> tuple[tuple[str, str, str], ...]:
    """The row of what is no part of the digest: the base with its configuration, which the same weights can be run under another of."""
    return () if base_artifact is None else (("base artifact", base_artifact.spell(), "base and config.json; not in the digest"),)


def composition_document(
    ran: Composition, base_artifact: Sha256 | None, sources: Mapping[str, str], derivation: Derivation | None
) -> Document:
    """``composition`` is what the digest is of: its canonical JSON, hashed, gives ``digest``. ``baseArtifact`` stands beside it."""
    made: JsonValue = None if derivation is None else {"of": derivation.of.spell(), "made": derivation.made.spell()}
    composition = cast("Mapping[str, JsonValue]", ran.document())
    beside = None if base_artifact is None else base_artifact.spell()
    return {
        "digest": ran.digest().spell(),
        "composition": composition,
        "baseArtifact": beside,
        "sources": dict(sources),
        "derivation": made,
    }


def _json(value: object) -> str:
    return canonical_json(value).decode()
