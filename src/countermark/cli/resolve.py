"""``countermark resolve``: a recipe's manifest and Work key, or every axis that it leaves open."""

from countermark.cli.answers import Answer, Lines, Table
from countermark.cli.options import FormatOption, JsonOption, OverlayOption, PinOption, PrincipalOption, RecipeArgument, SetOption


def resolve(
    recipe: RecipeArgument,
    form: FormatOption = None,
    sets: SetOption = None,
    overlay: OverlayOption = None,
    pin: PinOption = False,
    principal: PrincipalOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Resolve a recipe to its manifest and Work key, or name every unresolved axis."""
    from countermark.cli.context import settings
    from countermark.cli.recipes import resolved
    from countermark.lines.manifest import manifest_document, manifest_rows, receipt_documents
    from countermark.lines.texts import Document

    chosen = settings(principal=principal)
    found = resolved(recipe, form, sets, overlay, pin, chosen.principal)
    manifest = found.resolution.manifest
    document: Document = {
        "manifest": manifest_document(manifest),
        "workKey": found.work_key.spell(),
        "principal": found.work_key.principal.text,
        "receipts": receipt_documents(found.resolution.receipts),
        "pinned": list(found.pinned),
    }
    blocks = (
        Lines(tuple(f"pinned {line}" for line in found.pinned)),
        Table(("coordinate", "value"), manifest_rows(manifest)),
        Table(("work key", "principal"), ((found.work_key.spell(), found.work_key.principal.text),)),
    )
    return Answer(document, blocks, warnings=chosen.warnings)
