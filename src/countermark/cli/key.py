"""``countermark key``: the Work key alone, and on request what it is derived from."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer, Lines, Table
from countermark.cli.options import FormatOption, JsonOption, OverlayOption, PinOption, PrincipalOption, RecipeArgument, SetOption


def key(
    recipe: RecipeArgument,
    explain: Annotated[bool, typer.Option("--explain", help="Show the material: what the digest covers, in its order.")] = False,
    form: FormatOption = None,
    sets: SetOption = None,
    overlay: OverlayOption = None,
    pin: PinOption = False,
    principal: PrincipalOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Print a recipe's Work key alone; --explain shows what it is derived from."""
    from countermark.cli.context import settings
    from countermark.cli.recipes import resolved
    from countermark.lines.texts import Document
    from countermark.recipe import key_material

    chosen = settings(principal=principal)
    found = resolved(recipe, form, sets, overlay, pin, chosen.principal)
    spelled = found.work_key.spell()
    if not explain:
        return Answer({"workKey": spelled}, (Lines((spelled,)),), warnings=chosen.warnings)
    material = key_material(found.resolution.manifest, found.requirements)
    said = (
        "The digest is SHA-256 over these names and texts, each with its length before it, in this order.",
        f"Keys are equal only under one principal, which the digest does not cover: {found.work_key.principal.text}.",
    )
    document: Document = {
        "workKey": spelled,
        "principal": found.work_key.principal.text,
        "material": [{"name": name, "text": text} for name, text in material],
    }
    return Answer(document, (Lines((spelled,)), Table(("name", "text"), material), Lines(said)), warnings=chosen.warnings)
