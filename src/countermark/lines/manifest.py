"""Manifests as tables, and the coordinates in which two of them differ."""

from countermark.lines.texts import Document, JsonValue, counted
from countermark.recipe.manifest import Difference, Manifest, spellings
from countermark.recipe.resolve import Receipt


def manifest_rows(manifest: Manifest) -> tuple[tuple[str, str], ...]:
    """Coordinate and canonical spelling, in the order of the roster."""
    return tuple(spellings(manifest).items())


def manifest_document(manifest: Manifest) -> Document:
    """The 23 canonical spellings by coordinate."""
    return dict(manifest_rows(manifest))


def receipt_documents(receipts: tuple[Receipt, ...]) -> list[JsonValue]:
    """Who said what each axis is; ``line`` is null where a source has no lines."""
    return [
        {"axis": each.axis, "source": each.source, "line": each.line or None, "field": each.field, "tool": each.tool} for each in receipts
    ]


def difference_rows(differences: tuple[Difference, ...]) -> tuple[tuple[str, str, str], ...]:
    """The differing coordinate (its leaf, where one differs) and both spellings."""
    return tuple((each.leaf, each.a, each.b) for each in differences)


def difference_documents(differences: tuple[Difference, ...]) -> list[JsonValue]:
    """One document for each: the coordinate's roster name, the leaf that differs, and both spellings."""
    return [{"coordinate": each.coordinate, "leaf": each.leaf, "a": each.a, "b": each.b} for each in differences]


def difference_line(differences: tuple[Difference, ...]) -> str:
    """How much two manifests differ, in one line."""
    if not differences:
        return "the manifests are equal: one computation"
    names = tuple(dict.fromkeys(each.coordinate for each in differences))
    return f"{counted(len(names), 'coordinate differs', 'coordinates differ')}: two computations"
