"""Edits compose: the lines of a base and the recorded edits give the lines of what was made, without reading a model.

Rules kept here:

1. An edit says the SHA-256 of one tensor's data before and after. It fits where *before* is the tensor's line as the edits before it left
   it: a chain h0 → h1 → h2 composes, also back to h0.
2. Edits are taken in the order in which they were recorded. One that does not fit changes nothing, and each such edit is refused by name.
3. An edit never changes a tensor's type or shape, makes a tensor or takes one away: no hash says what the line would be.
4. A claim is held against what lies there by ``unborne_edits``: the last edit of a tensor says what the artifact must hold.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

from countermark.values import NonEmpty, Refused, Sha256
from countermark.weights.root import TensorLine


@final
@dataclass(frozen=True, slots=True)
class TensorEdit:
    """One recorded edit: which tensor, its data's digests, and what the recorder said of its type and shape (None: nothing). ``source``
    names the edit in refusals, as ``edits.jsonl:3``."""

    source: str
    tensor: str
    before: Sha256 | None
    after: Sha256 | None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None


@final
@dataclass(frozen=True, slots=True)
class EditOfUnknownTensor:
    """The base has no tensor of this name."""

    edit: str
    tensor: str


@final
@dataclass(frozen=True, slots=True)
class EditUnhashed:
    """The edit does not say both digests, so nothing follows from it."""

    edit: str
    tensor: str


@final
@dataclass(frozen=True, slots=True)
class EditDoesNotFit:
    """The edit began at other data (``before``) than the tensor has at that point of the record (``found``)."""

    edit: str
    tensor: str
    before: str
    found: str


@final
@dataclass(frozen=True, slots=True)
class EditOfOtherTensor:
    """The edit names another type or shape than the base's tensor has."""

    edit: str
    tensor: str
    said: str
    found: str


@final
@dataclass(frozen=True, slots=True)
class EditNotInArtifact:
    """A recorded edit is not in this artifact: its tensor should have the digest ``after`` and has ``found`` (empty: no such tensor)."""

    edit: str
    tensor: str
    after: str
    found: str


@final
@dataclass(frozen=True, slots=True)
class EditUnreadable:
    """A line of a record of edits (``edit``: its file and number) is no event, or its payload is not one of an edit."""

    edit: str
    why: str


EditDefect = EditOfUnknownTensor | EditUnhashed | EditDoesNotFit | EditOfOtherTensor


def apply_edits(base: Iterable[TensorLine], edits: Iterable[TensorEdit]) -> tuple[TensorLine, ...] | Refused[EditDefect]:
    """The lines after the edits, in the base's order, or every edit that does not fit. O(tensors + edits)."""
    lines = {line.name: line for line in base}
    defects: list[EditDefect] = []
    for edit in edits:
        line = lines.get(edit.tensor)
        if line is None:
            defects.append(EditOfUnknownTensor(edit.source, edit.tensor))
            continue
        found = _against(line, edit)
        if found or edit.after is None:
            defects.extend(found)
        else:
            lines[edit.tensor] = replace(line, sha256=edit.after)
    if (refused := NonEmpty.of(defects)) is not None:
        return Refused(refused)
    return tuple(lines.values())


def _against(line: TensorLine, edit: TensorEdit) -> tuple[EditDefect, ...]:
    """Everything that keeps an edit off a tensor."""
    defects: list[EditDefect] = []
    said = _described(edit.dtype or line.dtype, line.shape if edit.shape is None else edit.shape)
    if said != (found := _described(line.dtype, line.shape)):
        defects.append(EditOfOtherTensor(edit.source, edit.tensor, said, found))
    if edit.before is None or edit.after is None:
        defects.append(EditUnhashed(edit.source, edit.tensor))
    elif edit.before != line.sha256:
        defects.append(EditDoesNotFit(edit.source, edit.tensor, edit.before.spell(), line.sha256.spell()))
    return tuple(defects)


def _described(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} [{','.join(map(str, shape))}]"


def unborne_edits(artifact: Iterable[tuple[str, Sha256]], edits: Iterable[TensorEdit]) -> tuple[EditNotInArtifact, ...]:
    """The edits that an artifact (names and digests) does not bear out, by the last edit of each tensor that says what it left."""
    digests = dict(artifact)
    last = {edit.tensor: edit for edit in edits if edit.after is not None}
    return tuple(
        EditNotInArtifact(edit.source, name, edit.after.spell(), digests[name].spell() if name in digests else "")
        for name, edit in last.items()
        if edit.after is not None and digests.get(name) != edit.after
    )
