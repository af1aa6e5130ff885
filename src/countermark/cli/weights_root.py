"""``countermark weights root``: both digests of weights, each with its kind."""

from typing import Annotated

import typer

from countermark.cli.answers import REFUSED, Answer, Table
from countermark.cli.options import JsonOption


def weights_root(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="A folder of weights, or one file of them.")],
    as_json: JsonOption = False,
) -> Answer:
    """Digest weights independently of sharding and metadata."""
    from countermark.app.inspect import weights_root as measured
    from countermark.cli.context import existing_path
    from countermark.cli.progress import hashing
    from countermark.lines.defects import AnyDefect, defect_documents, known
    from countermark.lines.texts import Document, number
    from countermark.values import Refused

    documents: list[Document] = []
    rows: list[tuple[str, ...]] = []
    defects: list[AnyDefect] = []
    for path in paths:
        found = measured(existing_path(path, "a folder of weights or one file of them"), hashing(path))
        if isinstance(found, Refused):
            against = known(found.defects)
            defects.extend(against)
            documents.append({"ok": False, "path": path, "defects": defect_documents(against)})
            continue
        document: Document = {
            "root": found.root.spell(),
            "files": found.files.spell(),
            "tensors": number(found.tensors),
            "bytes": number(found.bytes),
        }
        documents.append({"ok": True, "path": path, **document, "defects": []})
        rows.append((path, found.root.spell(), found.files.spell(), str(found.tensors), str(found.bytes)))
    top = {key: value for key, value in documents[0].items() if key not in ("ok", "defects")} if len(documents) == 1 else {}
    blocks = (Table(("path", "root", "files", "tensors", "bytes"), tuple(rows)),) if rows else ()
    return Answer({**top, "weights": documents}, blocks, tuple(defects), code=REFUSED if defects else 0)
