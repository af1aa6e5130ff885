"""The differences of a comparison as one SVG picture that stands for itself: a row for every metric, its interval beside zero.

Rules kept here:

1. Every name goes through ``plain`` and is escaped for XML; nothing else from outside is in the picture.
2. Each row has its own scale, because metrics have their own units: the middle is zero, and the numbers stand beside it.
3. What is resolved is filled, what is not is hollow; what has no interval is a point alone. Better is to the right, also for a metric
   that is better downwards, and its row says so.
"""

from collections.abc import Iterator
from typing import Final

from countermark.experiments.comparison import Comparison, MetricComparison
from countermark.lines.experiments import conclusion_line, shown_interval
from countermark.lines.heat_svg import INK, SOFT, STYLE, escape, short_label, svg_text
from countermark.lines.numbers import shown_number
from countermark.lines.texts import plain

#: Rows of a picture; the rest is counted.
ROWS_MAX: Final = 200
_BETTER: Final = "#1a7f37"
_WORSE: Final = "#cf222e"
_WIDTH: Final = 960
_LEFT: Final = 250
_RIGHT: Final = 620
_HIGH: Final = 24
_NAME_MAX: Final = 34


def interval_svg(found: Comparison) -> str:
    """The picture of every metric of every arm that was held against the first."""
    rows = [(f"{plain(pair.b.arm, 40)}: {plain(each.name, 80)}", each) for pair in found.pairs for each in pair.metrics]
    shown = rows[:ROWS_MAX]
    height = 74 + _HIGH * len(shown) + (_HIGH if len(rows) > ROWS_MAX else 0)
    middle = (_LEFT + _RIGHT) / 2
    opened = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" {STYLE} '
        f'fill="{INK}" role="img" aria-label="Differences of metrics with their intervals"><rect width="100%" height="100%" '
        f'fill="#ffffff"/>'
    )
    parts = [
        opened,
        svg_text(20, 26, f"against {plain(found.pairs.first.a.name, 80)}", 'font-size="14" font-weight="600"'),
        svg_text(middle, 46, "worse ←  0  → better", f'fill="{SOFT}" text-anchor="middle"'),
        f'<path d="M{middle:.0f} 52V{54 + _HIGH * len(shown)}" stroke="{SOFT}" stroke-dasharray="3 3"/>',
    ]
    for at, (name, each) in enumerate(shown):
        parts.extend(_row(name, each, 54 + _HIGH * at + _HIGH / 2))
    if len(rows) > ROWS_MAX:
        parts.append(svg_text(20, height - 14, f"… {len(rows) - ROWS_MAX:,} more", f'fill="{SOFT}"'))
    return "\n".join([*parts, "</svg>", ""])


def _row(name: str, found: MetricComparison, y: float) -> Iterator[str]:
    yield f"<g><title>{escape(conclusion_line(found))}</title>"
    yield svg_text(20, y + 4, short_label(name, _NAME_MAX))
    yield from _mark(found, y)
    said = "-" if found.estimate is None else f"{shown_number(found.estimate.diff)} {shown_interval(found.estimate.interval)}"
    yield svg_text(_RIGHT + 14, y + 4, said + ("" if found.higher_is_better else ", lower is better"), f'fill="{SOFT}"')
    yield "</g>"


def _mark(found: MetricComparison, y: float) -> Iterator[str]:
    estimate = found.estimate
    if estimate is None:
        return
    way = 1.0 if found.higher_is_better else -1.0
    ends = (estimate.diff, estimate.diff) if estimate.interval is None else (estimate.interval.low, estimate.interval.high)
    furthest = max(abs(each) for each in (*ends, estimate.diff)) or 1.0
    middle, half = (_LEFT + _RIGHT) / 2, (_RIGHT - _LEFT) / 2 - 8
    low, high, at = (middle + half * way * each / furthest for each in (*ends, estimate.diff))
    colour = SOFT if not found.is_resolved else _WORSE if found.is_regression else _BETTER
    if estimate.interval is not None:
        caps = "".join(f"M{x:.1f} {y - 5:.1f}v10" for x in (low, high))
        yield f'<path d="M{low:.1f} {y:.1f}H{high:.1f}{caps}" stroke="{colour}" stroke-width="1.6" fill="none"/>'
    fill = colour if found.is_resolved else "#ffffff"
    yield f'<circle cx="{at:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}" stroke-width="1.6"/>'
