"""Resolving a recipe from a command line: what resolve, key, run and checkpoint inspect share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from countermark.cli.context import existing_file
from countermark.cli.failures import CallRefused, WrongCall
from countermark.cli.progress import hashing
from countermark.lines.defects import known
from countermark.values import Refused, shown

if TYPE_CHECKING:
    from countermark.app.recipes import Resolved


def resolved(
    recipe: str, form: str | None, sets: Sequence[str] | None, overlays: Sequence[str] | None, pin: bool, principal: str
) -> "Resolved":
    """The recipe, resolved; every defect ends the call with exit code 1."""
    from countermark.app.recipes import resolve_recipe

    for each in sets or ():
        if "=" not in each.lstrip("="):
            raise WrongCall(f"--set {shown(each)} has no value", "write --set AXIS=VALUE, for example --set seed=7")
    existing_file(recipe, "a recipe")
    for overlay in overlays or ():
        existing_file(overlay, "an overlay")
    answer = resolve_recipe(
        recipe, format=form, sets=tuple(sets or ()), overlays=tuple(overlays or ()), pin=pin, principal=principal, progress=hashing
    )
    if isinstance(answer, Refused):
        raise CallRefused(known(answer.defects))
    return answer
