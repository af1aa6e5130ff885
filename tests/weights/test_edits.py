"""Edits compose: base and record give the root, or every edit that does not fit is named."""

import hashlib
import json
from pathlib import Path
from typing import Any

from countermark.values import NonEmpty, Refused, Sha256
from countermark.weights import TensorLine, edits, weights_root
from countermark.weights.edits import (
    EditDoesNotFit,
    EditNotInArtifact,
    EditOfOtherTensor,
    EditOfUnknownTensor,
    EditUnhashed,
    TensorEdit,
    apply_edits,
    unborne_edits,
)
from tests.faults import planted, proven_by

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "contract/fixtures/wr1_vectors.json").read_text())


def digest(text: str) -> Sha256:
    return Sha256(hashlib.sha256(text.encode()).hexdigest())


H = [digest(f"h{at}") for at in range(4)]
BASE = (TensorLine("a", "F32", (2,), H[0]), TensorLine("b", "BF16", (4,), H[0]))
HELD = tuple((line.name, line.sha256) for line in BASE)


def edit(number: int, tensor: str, before: Sha256 | None, after: Sha256 | None, **more: Any) -> TensorEdit:
    return TensorEdit(f"edits:{number}", tensor, before, after, **more)


def test_the_recorded_vector_composes() -> None:
    base = [TensorLine(name, one["dtype"], tuple(one["shape"]), Sha256(one["sha256"])) for name, one in VECTORS["tensors"].items()]
    said = VECTORS["edit"]
    after = apply_edits(base, [edit(1, said["tensor"], Sha256(said["before_sha256"]), Sha256(said["after_sha256"]))])
    assert not isinstance(after, Refused)
    root = weights_root(after)
    assert not isinstance(root, Refused)
    assert root.hex == VECTORS["root_after_edit"]


def test_a_chain_composes_also_back_to_where_it_began() -> None:
    chain = [edit(1, "a", H[0], H[1]), edit(2, "b", H[0], H[3]), edit(3, "a", H[1], H[2]), edit(4, "a", H[2], H[0])]
    assert apply_edits(BASE, chain) == (BASE[0], TensorLine("b", "BF16", (4,), H[3]))
    assert apply_edits(BASE, []) == BASE


def first_alone(line: TensorLine, one: TensorEdit) -> tuple[object, ...]:
    return judged(line, one)[:1]


judged = edits._against


@proven_by(planted(edits, "_against", first_alone))
def test_every_edit_that_does_not_fit_is_named_with_everything_against_it() -> None:
    record = [
        edit(1, "a", H[0], H[1], dtype="F32", shape=(2,)),
        edit(2, "gone", H[0], H[1]),
        edit(3, "a", H[0], H[2]),
        edit(4, "a", H[2], H[3], dtype="F16"),
        edit(5, "b", None, H[1], shape=(5,)),
    ]
    refused = apply_edits(BASE, record)
    assert refused == Refused(
        NonEmpty(
            EditOfUnknownTensor("edits:2", "gone"),
            (
                EditDoesNotFit("edits:3", "a", H[0].spell(), H[1].spell()),
                EditOfOtherTensor("edits:4", "a", "F16 [2]", "F32 [2]"),
                EditDoesNotFit("edits:4", "a", H[2].spell(), H[1].spell()),
                EditOfOtherTensor("edits:5", "b", "BF16 [5]", "BF16 [4]"),
                EditUnhashed("edits:5", "b"),
            ),
        )
    )


def test_a_claim_is_held_against_the_artifact_by_the_last_edit_of_each_tensor() -> None:
    record = [
        edit(1, "a", H[0], H[1]),
        edit(2, "a", H[1], H[0]),
        edit(3, "b", H[0], H[1]),
        edit(4, "gone", H[0], H[1]),
        edit(5, "b", H[1], None),
    ]
    assert unborne_edits(HELD, record[:2]) == ()
    assert unborne_edits(HELD, record) == (
        EditNotInArtifact("edits:3", "b", H[1].spell(), H[0].spell()),
        EditNotInArtifact("edits:4", "gone", H[1].spell(), ""),
    )
