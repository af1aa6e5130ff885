"""``countermark weights composition``: the digest of what ran, which is more than one set of weights."""

from typing import Annotated

import typer

from countermark.cli.answers import REFUSED, Answer, Lines, Table, known_defects
from countermark.cli.options import FreshOption, JsonOption

_ADAPTER = "A folder of an adapter; repeatable, in the order in which they are applied."
_MERGE = "How adapters came to the base: active, merged, or one of PEFT's combinations, as 'ties weights=0.7,0.3 density=0.5'."


def weights_composition(
    base: Annotated[str, typer.Argument(metavar="BASE", help="A folder of a model, or one file of weights.")],
    adapter: Annotated[list[str] | None, typer.Option("--adapter", metavar="DIR", help=_ADAPTER)] = None,
    merge: Annotated[str | None, typer.Option("--merge", metavar="RULE", help=_MERGE)] = None,
    tokenizer: Annotated[str | None, typer.Option("--tokenizer", metavar="DIR", help="The tokenizer's folder; by default BASE.")] = None,
    template: Annotated[
        str | None, typer.Option("--chat-template", metavar="FILE", help="The chat template that was used; by default the tokenizer's.")
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", metavar="D", help="The type loaded in; by default what config.json says.")] = None,
    quantization: Annotated[
        str | None, typer.Option("--quantization", metavar="Q", help="A name, a file of JSON, dequantized, or none; by default as stored.")
    ] = None,
    made: Annotated[str | None, typer.Option("--made", metavar="PATH", help="A checkpoint that was made of it: links the two.")] = None,
    fresh: FreshOption = False,
    as_json: JsonOption = False,
) -> Answer:
    """Digest what ran: base, adapters and how they were merged, tokenizer, load type."""
    from countermark.app.composing import compose
    from countermark.cli.context import digest_cache, existing_path
    from countermark.cli.failures import CallRefused
    from countermark.cli.progress import hashing
    from countermark.files.composition import Loading
    from countermark.lines.composition import PARTS, beside_it, composition_document, composition_rows
    from countermark.values import Refused

    existing_path(base, "a folder of a model, or one file of weights")
    loading = Loading(base, tuple(adapter or ()), merge, tokenizer, template, dtype, quantization)
    cache = digest_cache(fresh)
    found = compose(loading, made, cache, hashing)
    if isinstance(found, Refused):
        raise CallRefused(known_defects(found.defects))
    ran, beside, sources = found.measured.composition, found.measured.base_artifact, found.measured.sources
    lines = [ran.digest().spell()]
    if found.derivation is not None:
        lines.append(f"{found.derivation.made.spell()} was made of it ({made})")
    blocks = (Lines(tuple(lines)), Table(PARTS, (*composition_rows(ran, sources), *beside_it(beside))))
    document = composition_document(ran, beside, sources, found.derivation)
    warnings, defects = known_defects((*found.measured.unknown, *cache.warnings)), known_defects(cache.disagreed)
    return Answer(document, blocks, defects, warnings, REFUSED if defects else 0)
