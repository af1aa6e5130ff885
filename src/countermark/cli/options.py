"""Options and arguments that several commands share, each described once."""

from typing import Annotated, TypeAlias

import typer

JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output, also when refused.")]
FreshOption: TypeAlias = Annotated[
    bool, typer.Option("--fresh", help="Measure every digest now, also where it was kept, and say where the two disagree.")
]
StoreOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The store: sqlite:///PATH or postgresql://USER@HOST/DATABASE. Default: the .countermark folder here or above.",
    ),
]
RecipeArgument: TypeAlias = Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe file.")]
RunArgument: TypeAlias = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or 8 or more of its first digits.")]
ByOption: TypeAlias = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Whose decision it is; by default the setting requester.")
]
NoWaitOption: TypeAlias = Annotated[bool, typer.Option("--no-wait", help="Do it and return, without watching until a verdict.")]
FormatOption: TypeAlias = Annotated[
    str | None, typer.Option("--format", metavar="F", help="The recipe's format; by default it is told from the file.")
]
SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="AXIS=VALUE", help="Pin a coordinate, a leaf (optimizer.beta1=0.9) or a source; repeatable."),
]
OverlayOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("--overlay", metavar="FILE", help="A TOML file that pins what the recipe leaves open; repeatable.")
]
PinOption: TypeAlias = Annotated[bool, typer.Option("--pin", help="Measure local model, tokenizer and dataset, and pin them by content.")]
PrincipalOption: TypeAlias = Annotated[
    str | None, typer.Option("--principal", metavar="ACCOUNT", help="The account under which the work is counted; part of the Work key.")
]
AllowHostOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="A name by which clients call it beside its address; repeatable."),
]
AllowOriginOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("--allow-origin", metavar="ORIGIN", help="A web page that may ask it, as https://HOST; repeatable.")
]
