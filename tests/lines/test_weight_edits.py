"""One edit, one line: whatever a row holds, it can be read and moves no terminal's cursor."""

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from countermark.lines import weight_edits
from countermark.lines.weight_edits import format_weight_edit
from countermark.sessions.edits import FIELDS
from tests.faults import planted, proven_by

LINES: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({"tensor": "layers.0.w", "shape": [1024, 4096], "changed": 3, "l2": 0.012, "maxAbs": 0.005},
     "layers.0.w: 3 of 4,194,304 weights changed, ‖Δ‖ 0.0120, max 0.00500"),
    ({"tensor": "w", "changed": 1234567}, "w: 1,234,567 weights changed"),
    ({"tensor": "b", "shape": [1], "changed": 1}, "b: 1 of 1 weight changed"),
    # A scalar holds one weight.
    ({"tensor": "s", "shape": [], "changed": 1}, "s: 1 of 1 weight changed"),
    ({"tensor": "w", "shape": [0], "changed": 3}, "w: 3 weights changed"),
    ({"tensor": "w", "shape": [2], "changed": 3}, "w: 3 weights changed"),
    ({"tensor": "w", "shape": [2**40, 2**40], "changed": 3}, "w: 3 weights changed"),
    ({"tensor": "w", "shape": "2,3", "changed": 3}, "w: 3 weights changed"),
    ({"tensor": "w", "shape": [1] * 17, "changed": 1}, "w: 1 weight changed"),
    ({"tensor": "w", "shape": [4], "changed": 3, "valueChanged": 2}, "w: 3 of 4 weights changed (2 in value)"),
    ({"tensor": "w", "changed": 3, "valueChanged": 3}, "w: 3 weights changed"),
    ({"tensor": "w", "changed": 1, "l2": 1e308, "maxAbs": 5e-324}, "w: 1 weight changed, ‖Δ‖ 1e308, max 4.94e-324"),
    ({"tensor": "w", "changed": 0, "l2": 0, "maxAbs": 0.0}, "w: 0 weights changed, ‖Δ‖ 0, max 0"),
    ({"tensor": "w", "changed": 1, "l2": float("nan"), "maxAbs": float("inf")}, "w: 1 weight changed"),
    ({"tensor": "w", "changed": 2, "nonFiniteCreated": 1, "nonFiniteCleared": 1000},
     "w: 2 weights changed, 1 became NaN or infinite, 1,000 finite again"),
    ({"tensor": "w", "changed": 2, "nonFiniteCreated": 0, "note": "by hand"}, "w: 2 weights changed, note: by hand"),
    ({"tensor": "a\x1b[2J\u202e", "changed": 1, "note": "x\ny\x07"}, "a\\x1b[2J\\u202e: 1 weight changed, note: x\\ny\\x07"),
    ({"changed": 9007199254740993}, "a tensor without a name: 9,007,199,254,740,993 weights changed"),
    ({"tensor": 5, "changed": -1, "l2": "x"}, "a tensor without a name: edited"),
    ({}, "a tensor without a name: edited"),
)  # fmt: skip


@proven_by(
    planted(weight_edits, "shown_norm", lambda value: f"{value:.3f}"),
    planted(weight_edits, "plain", lambda text, most: text),
    planted(weight_edits, "COUNT_MAX", 2**200),
)
def test_each_payload_has_its_line() -> None:
    for payload, line in LINES:
        assert format_weight_edit(payload) == line


@given(
    st.dictionaries(
        st.sampled_from([*(field.key for field in FIELDS), "kind"]),
        st.none() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())) | st.lists(st.integers(), max_size=20),
    )
)
def test_every_payload_has_one_printable_line(payload: dict[str, object]) -> None:
    line = format_weight_edit(payload)
    assert line.isprintable()
    assert ": " in line
