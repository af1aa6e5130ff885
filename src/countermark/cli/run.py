"""``countermark run``: the demand, the claim, the start and the watch, or an attachment to the run that is already there."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer
from countermark.cli.options import (
    FormatOption,
    JsonOption,
    OverlayOption,
    PinOption,
    PrincipalOption,
    RecipeArgument,
    SetOption,
    StoreOption,
)


def run(
    recipe: RecipeArgument,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="The command and its arguments; {manifest} {output} {resume} stand for its paths."),
    ] = None,
    launcher: Annotated[str | None, typer.Option("--launcher", metavar="local", help="What starts COMMAND.")] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Start it and return, without watching until a verdict.")] = False,
    request: Annotated[str | None, typer.Option("--request", metavar="R", help="This demand's name; by default the work's digest.")] = None,
    requester: Annotated[str | None, typer.Option("--as", metavar="REQUESTER", help="Who asks; by default the user who calls.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME[=VALUE]", help="A variable that COMMAND gets; without a value, as it is set here. Repeatable."),
    ] = None,
    form: FormatOption = None,
    sets: SetOption = None,
    overlay: OverlayOption = None,
    pin: PinOption = False,
    principal: PrincipalOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Claim a recipe's work, start COMMAND for it, watch until a verdict; or attach."""
    from countermark.cli.context import settings
    from countermark.cli.demanding import demanded, environment
    from countermark.cli.recipes import resolved
    from countermark.cli.running import opened
    from countermark.cli.watching import watched

    chosen = settings(principal=principal, requester=requester, launcher=launcher, store_url=store)
    variables = environment(env)
    found = resolved(recipe, form, sets, overlay, pin, chosen.principal)
    with opened(chosen, create=True, acts=True) as ports:
        record, warnings = demanded(ports, found, chosen, request, tuple(command or ()), variables)
        return watched(ports, record, (*chosen.warnings, *warnings), wait=not no_wait)
