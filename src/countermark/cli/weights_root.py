"""``countermark weights root``: both digests of weights, each with its kind."""

from typing import TYPE_CHECKING, Annotated

import typer

from countermark.cli.answers import REFUSED, Answer, Table, known_defects
from countermark.cli.options import FreshOption, JsonOption

if TYPE_CHECKING:
    from countermark.files.measuring import MeasuredForm
    from countermark.lines.defects import AnyDefect
    from countermark.lines.texts import Document
    from countermark.values import Digest

_LINES = "Write the lines that the root is of, which weights diff --base-root takes."


def weights_root(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="A folder of weights, or one file of them.")],
    lines: Annotated[str | None, typer.Option("--lines", metavar="FILE", help=_LINES)] = None,
    wanted: Annotated[str | None, typer.Option("--is", metavar="DIGEST", help="Say whether these weights have this digest.")] = None,
    fresh: FreshOption = False,
    as_json: JsonOption = False,
) -> Answer:
    """Digest weights independently of sharding and metadata."""
    from countermark.app.rooting import weights_root as measured
    from countermark.cli.context import digest_cache, existing_path, name_to_be
    from countermark.cli.failures import WrongCall
    from countermark.cli.progress import hashing
    from countermark.lines.weights import root_told
    from countermark.values import Refused
    from countermark.weights.sameness import sameness_defect

    for option in (name for name, value in (("--lines FILE", lines), ("--is DIGEST", wanted)) if value is not None and len(paths) > 1):
        raise WrongCall(f"{option} is of one root, and several paths are named", f"name one PATH with {option}")
    name_to_be(lines, "--lines")
    said = _digest(wanted)
    cache = digest_cache(fresh)
    documents: list[Document] = []
    rows: list[tuple[str, ...]] = []
    defects: list[AnyDefect] = []
    notes: list[AnyDefect] = []
    for path in paths:
        before = cache.hashed
        found = measured(existing_path(path, "a folder of weights or one file of them"), cache, hashing(path))
        if isinstance(found, Refused):
            from countermark.lines.defects import defect_documents

            against = known_defects(found.defects)
            defects.extend(against)
            documents.append({"ok": False, "path": path, "defects": defect_documents(against)})
            continue
        _write_lines(lines, found)
        notes.extend(known_defects(found.notes))
        if said is not None and (defect := sameness_defect(said, found.digests())) is not None:
            defects.extend(known_defects([defect]))
        document = _document(found, cache.hashed - before)
        documents.append({"ok": True, "path": path, **document, "defects": []})
        tensors = "-" if found.tensors is None else str(found.tensors)
        rows.append((path, root_told(found.root), found.files.spell(), tensors, str(found.bytes), str(cache.hashed - before)))
    top = {key: value for key, value in documents[0].items() if key not in ("ok", "defects")} if len(documents) == 1 else {}
    blocks = (Table(("path", "root", "files", "tensors", "bytes", "hashed"), tuple(rows)),) if rows else ()
    defects.extend(known_defects(cache.disagreed))
    return Answer(
        {**top, "weights": documents}, blocks, tuple(defects), (*notes, *known_defects(cache.warnings)), REFUSED if defects else 0
    )


def _digest(text: str | None) -> "Digest | None":
    """The digest of --is, or a call that says what one is."""
    from countermark.cli.failures import WrongCall
    from countermark.values import Unreadable, shown
    from countermark.weights.sameness import read_any_digest

    read = None if text is None else read_any_digest(text)
    if isinstance(read, Unreadable):
        raise WrongCall(f"--is {shown(text or '')} is no digest, because {read.why}", "write --is DIGEST")
    return read


def _document(found: "MeasuredForm", hashed: int) -> "Document":
    from countermark.lines.texts import number
    from countermark.values import WeightsRoot

    rooted = isinstance(found.root, WeightsRoot)
    return {
        "root": found.root.spell() if isinstance(found.root, WeightsRoot) else None,
        "rootless": None if rooted else str(found.root),
        "files": found.files.spell(),
        "tensors": None if found.tensors is None else number(found.tensors),
        "bytes": number(found.bytes),
        "hashedBytes": number(hashed),
    }


def _write_lines(path: str | None, found: "MeasuredForm") -> None:
    """The text of a root in a new file. What has no root has no such text."""
    from countermark.cli.context import new_file
    from countermark.cli.failures import WrongCall
    from countermark.lines.weights import root_told
    from countermark.values import WeightsRoot
    from countermark.weights import root_text

    if path is None:
        return
    if not isinstance(found.root, WeightsRoot):
        raise WrongCall(f"--lines is of a root, and these weights have {root_told(found.root)}", "name weights that have a root")
    new_file(path, "--lines", root_text(found.lines).encode("utf-8"))
