"""The map of layers by modules as one SVG picture that stands for itself: no script, no font and no address of another file.

Rules kept here:

1. Every text of a file goes through ``plain`` and is escaped for XML; nothing else from outside is in the picture.
2. Grey is unchanged, a colour is how far, hatching is what was expected to change and did not, a ringed cross is where values became NaN or
   infinite. The legend shows the scale, and each of these only where it occurs.
3. What a cell says in colour it also says in words, to whoever points at it. Unchanged cells of a row share one shape: a map of thousands
   of tensors stays a small file.
"""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

from countermark.lines.numbers import shown_norm
from countermark.lines.texts import counted, plain
from countermark.weights.heat import Cell, HeatMap, Look, Row, Scale, Section

#: Layers that a picture has columns for, and rows, at most.
COLUMNS_MAX: Final = 160
ROWS_MAX: Final = 240

#: From little to much.
_STOPS: Final = ((255, 237, 160), (254, 178, 76), (240, 59, 32), (122, 1, 38))
_GREY: Final = "#dfe2e6"
INK: Final = "#24292f"
SOFT: Final = "#57606a"
_MARK: Final = "#0b3ea8"
_FILLS: Final[dict[Look, str]] = {
    "missed": "url(#hatch)",
    "unmeasured": "#8250df",
    "removed": "url(#gone)",
    "added": "#2da44e",
    "unchanged": _GREY,
}
_SAID: Final[dict[Look, str]] = {
    "unchanged": "unchanged", "missed": "expected to change, unchanged", "unmeasured": "changed, without a norm", "removed": "only in A",
    "added": "only in B",
}  # fmt: skip
_CELL: Final = 16
_LABEL_MAX: Final = 44
_CHARACTER: Final = 6.7
_EDGE: Final = 20
_RAMP: Final = 240
STYLE: Final = 'font-family="ui-monospace, \'DejaVu Sans Mono\', Menlo, Consolas, monospace" font-size="11"'


def heat_svg(heat: HeatMap, a: str, b: str, verdict: str) -> str:
    """The picture of a difference of ``a`` and ``b``, with its verdict line above."""
    labels = [short_label(row.label) for section in heat.sections for row in section.rows]
    headings = [short_label(section.stack or "in no layer") for section in heat.sections]
    left = _EDGE + 12 + _CHARACTER * max([len(each) for each in (*labels, *headings)], default=0) + 8
    step = min(max(900 // max(len(heat.columns), 1), 6), 22)
    width = max(left + step * len(heat.columns) + _EDGE, 760)
    head = [svg_text(_EDGE, 30, f"{short_label(a, 60)} → {short_label(b, 60)}", 'font-size="15" font-weight="600"')]
    y = 50.0
    for line in wrap(plain(verdict, 1000), int((width - 2 * _EDGE) / _CHARACTER)):
        head.append(svg_text(_EDGE, y, line, f'fill="{SOFT}"'))
        y += 16
    body: list[str] = []
    for section in heat.sections:
        y = _section(body, heat, section, left, step, y + 10)
    height = _legend(body, heat, y + 22) + 8
    return "\n".join([_open(width, height), *head, *body, "</svg>", ""])


def _open(width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f"{STYLE} "
        f'fill="{INK}" role="img" aria-label="Relative change of weights by layer and module"><defs>'
        f'<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5" '
        f'fill="#ffffff"/><rect width="1.8" height="5" fill="{_MARK}"/></pattern>'
        f'<pattern id="gone" width="4" height="4" patternUnits="userSpaceOnUse"><rect width="4" height="4" fill="#ffffff"/><circle cx="2" '
        f'cy="2" r="1.1" fill="{INK}"/></pattern></defs><rect width="100%" height="100%" fill="#ffffff"/>'
    )


def svg_text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{" " if more else ""}{more}>{escape(text)}</text>'


def escape(text: str) -> str:
    """Text as XML carries it, within an element and within quotes."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def short_label(text: str, length_max: int = _LABEL_MAX) -> str:
    """A name as a label: without what an XML file or a person could stumble on, and cut in its middle."""
    kept = plain(text, 300)
    half = length_max // 2
    return kept if len(kept) <= length_max else f"{kept[: half - 1]}…{kept[-half:]}"


def _section(body: list[str], heat: HeatMap, section: Section, left: float, step: int, top: float) -> float:
    """A stack's heading, axis and rows; the place where it ends."""
    y = top + 14
    body.append(svg_text(_EDGE, y, short_label("in no layer" if section.stack is None else section.stack or "layers"), 'font-weight="600"'))
    if section.stack is not None:
        every = 1 if step > 18 else 5 if len(heat.columns) <= 60 else 10
        body.extend(
            svg_text(left + step * (at + 0.5), y, str(first), f'fill="{SOFT}" font-size="9" text-anchor="middle"')
            for at, (first, _) in enumerate(heat.columns)
            if at % every == 0
        )
    y += 6
    for row in section.rows:
        body.append(svg_text(left - 8, y + _CELL - 4.5, short_label(row.label), 'text-anchor="end"'))
        body.extend(_row(heat, row, left, step, y))
        y += _CELL
    if section.folded:
        body.append(svg_text(left, y + 13, f"… {counted(section.folded, 'more row')}, of no greater change", f'fill="{SOFT}"'))
        y += _CELL + 2
    return y


def _row(heat: HeatMap, row: Row, left: float, step: int, y: float) -> Iterator[str]:
    wide, high = step - 1, _CELL - 1
    same = [at for at, cell in enumerate(row.cells) if cell is not None and cell.look == "unchanged" and not cell.non_finite]
    if same:
        drawn = "".join(f"M{left + step * at:.0f} {y:.0f}h{wide}v{high}h-{wide}z" for at in same)
        yield f'<path d="{drawn}" fill="{_GREY}"><title>{escape(plain(row.label, 300))}: unchanged</title></path>'
    for at, cell in enumerate(row.cells):
        if cell is None or at in same:
            continue
        x = left + step * at
        fill = _FILLS[cell.look] if cell.relative is None else _colour(0.0 if heat.scale is None else heat.scale.place(cell.relative))
        place = f'x="{x:.0f}" y="{y:.0f}" width="{wide}" height="{high}"'
        title = f"<title>{escape(_told(cell))}</title>"
        yield f'<rect {place} fill="{fill}">{title}</rect>'
        if cell.missed and cell.look != "missed":
            yield f'<rect x="{x:.0f}" y="{y + high / 2:.1f}" width="{wide}" height="{high / 2:.1f}" fill="url(#hatch)">{title}</rect>'
        if cell.non_finite:
            yield f"<g>{title}{_cross(x + wide / 2, y + high / 2, min(wide, high) / 2 - 0.5)}</g>"


def _cross(x: float, y: float, size: float) -> str:
    """A ringed cross: seen on every colour of the scale, and on grey."""
    arm = size * 0.5
    strokes = f"M{x - arm:.1f} {y - arm:.1f}L{x + arm:.1f} {y + arm:.1f}M{x - arm:.1f} {y + arm:.1f}L{x + arm:.1f} {y - arm:.1f}"
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="#ffffff" stroke="{_MARK}" stroke-width="1"/>'
        f'<path d="{strokes}" stroke="{_MARK}" stroke-width="1.6"/>'
    )


def _told(cell: Cell) -> str:
    """A cell in words."""
    said = [plain(cell.name, 300) if cell.tensors == 1 else f"{plain(cell.name, 300)} and {counted(cell.tensors - 1, 'more tensor')}"]
    if cell.changed:
        said.append("changed" if cell.tensors == 1 else f"{cell.changed:,} of {cell.tensors:,} changed")
    if cell.relative is not None:
        said.append(f"relative change {shown_norm(cell.relative)}")
    counts = ((cell.unmeasured, "without a norm"), (cell.removed, "only in A"), (cell.added, "only in B"),
              (cell.missed, "expected to change, unchanged"))  # fmt: skip
    said.extend(words if cell.tensors == 1 else f"{count:,} {words}" for count, words in counts if count)
    if cell.non_finite:
        said.append(f"{counted(cell.non_finite, 'value')} became NaN or infinite")
    return ", ".join(said)


def _colour(place: float) -> str:
    """A colour of the scale, from 0 to 1."""
    at = place * (len(_STOPS) - 1)
    first = min(int(at), len(_STOPS) - 2)
    part = at - first
    mixed = (round(one + (other - one) * part) for one, other in zip(_STOPS[first], _STOPS[first + 1], strict=True))
    return "#" + "".join(f"{each:02x}" for each in mixed)


def _looks(heat: HeatMap) -> Sequence[Look]:
    """The looks that the legend explains beside the scale."""
    found = {cell.look for cell in heat.cells()} | {"missed" for cell in heat.cells() if cell.missed}
    return tuple(look for look in _SAID if look in found)


def _legend(body: list[str], heat: HeatMap, y: float) -> float:
    """What the colours and marks mean; the place where it ends."""
    if heat.scale is not None:
        body.extend(_ramp(heat.scale, y))
        y += 34
    for look in _looks(heat):
        body.append(f'<rect x="{_EDGE}" y="{y:.0f}" width="21" height="14" fill="{_FILLS[look]}" stroke="#d0d7de" stroke-width="0.5"/>')
        body.append(svg_text(_EDGE + 30, y + 11, _SAID[look]))
        y += 20
    if any(cell.non_finite for cell in heat.cells()):
        body.append(_cross(_EDGE + 10.5, y + 7, 6.5))
        body.append(svg_text(_EDGE + 30, y + 11, "values became NaN or infinite"))
        y += 20
    if heat.columns and (layers := heat.columns[0][1] - heat.columns[0][0] + 1) > 1:
        body.append(svg_text(_EDGE, y + 11, f"each column is {layers:,} layers", f'fill="{SOFT}"'))
        y += 20
    return y


def _ramp(scale: Scale, y: float) -> Iterator[str]:
    """The scale: its colours, and numbers at its ends and at the powers of ten."""
    for at in range(0, _RAMP, 4):
        yield f'<rect x="{_EDGE + at}" y="{y:.0f}" width="4" height="12" fill="{_colour((at + 2) / _RAMP)}"/>'
    for each in scale.ticks():
        anchor = "start" if each == scale.low else "middle"
        yield svg_text(_EDGE + _RAMP * scale.place(each), y + 24, f"{each:g}", f'font-size="9" fill="{SOFT}" text-anchor="{anchor}"')
    yield svg_text(_EDGE + _RAMP + 26, y + 10, "relative change, ‖B − A‖ / ‖A‖")
