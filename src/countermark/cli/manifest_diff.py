"""``countermark manifest diff``: every coordinate in which two manifests differ."""

from typing import TYPE_CHECKING, Annotated

import typer

from countermark.cli.answers import Answer, Lines, Table
from countermark.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from countermark.cli.settings import Settings
    from countermark.recipe import Manifest

_WHAT = "A recipe file, a checkpoint's folder, or the id of a run or attempt."


def manifest_diff(
    a: Annotated[str, typer.Argument(metavar="A", help=_WHAT)],
    b: Annotated[str, typer.Argument(metavar="B", help=_WHAT)],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Name every coordinate in which two recipes, runs or checkpoints differ."""
    from countermark.app.compare import manifest_diff as compared
    from countermark.cli.context import settings
    from countermark.lines.manifest import difference_documents, difference_line, difference_rows

    chosen = settings(store_url=store)
    differences = compared(_manifest(a, chosen), _manifest(b, chosen))
    lines = Lines((difference_line(differences),))
    blocks = (lines, Table(("coordinate", "a", "b"), difference_rows(differences))) if differences else (lines,)
    return Answer({"differing": difference_documents(differences)}, blocks, warnings=chosen.warnings)


def _manifest(text: str, chosen: "Settings") -> "Manifest":
    from countermark.app.compare import manifest_of
    from countermark.cli.failures import CallRefused
    from countermark.lines.defects import known
    from countermark.values import Refused

    found = manifest_of(text, chosen.store, chosen.database)
    if isinstance(found, Refused):
        raise CallRefused(known(found.defects))
    return found
