"""What the scripts beside it share: a report that is printed as it grows and kept with its machine, and a picture of curves.

Rules kept here:

1. A figure is a ratio against a baseline that is named and was measured in the same run, or it stands beside the target that it has.
2. What is kept says on which machine, under which load, and by which command line it came about.
3. Nothing is asserted: a machine that is slow today fails nobody's tests.
"""

import math
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, final

RESULTS: Final = Path(__file__).resolve().parent / "results"
_COLOURS: Final = ("#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6")


def machine() -> str:
    """The machine in one line."""
    words = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = [int(line.split()[1]) >> 20 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    cpu = words[0] if words else platform.machine()
    size = f"{memory[0]} GiB" if memory else "memory unknown"
    return f"{os.cpu_count()} × {cpu}, {size}, {platform.system()}, Python {platform.python_version()}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


@final
class Report:
    """Lines that are printed at once and can be kept at the end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lines: list[str] = []
        self._before = os.getloadavg()
        self._began_s = time.monotonic()
        self.say(f"{name}: {machine()}")

    def say(self, line: str = "") -> None:
        """Print a line, and remember it."""
        print(line, flush=True)
        self._lines.append(line)

    def ratio(self, what: str, ours: float, baseline: str, theirs: float, wanted: str) -> None:
        """A ratio of two rates (higher is better) with what is wanted of it."""
        times = ours / theirs if theirs else math.inf
        self.say(f"  {what}: {ours:,.1f} against {theirs:,.1f} of {baseline}: {times:.2f}× (wanted: {wanted})")

    def figure(self, what: str, figure: str, wanted: str) -> None:
        """A figure that is held against a target and no baseline."""
        self.say(f"  {what}: {figure} (wanted: {wanted})")

    def keep(self) -> None:
        """Write what was said under ``results``, with the load before and after, and the command line."""
        loads = " → ".join(f"{load[0]:.2f}" for load in (self._before, os.getloadavg()))
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        command = " ".join(["python", f"bench/{Path(sys.argv[0]).name}", *sys.argv[1:]])
        tail = f"{when}; load (1 min) {loads} on {os.cpu_count()} cores; {time.monotonic() - self._began_s:.0f} s; {command}"
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{self.name}.txt").write_text("\n".join([*self._lines, tail, ""]), encoding="utf-8")


def slope(points: Sequence[tuple[float, float]]) -> float:
    """How the cost grows, as the exponent of a power fitted to (size, cost): 1 is linear, 0 is not at all."""
    logs = [(math.log(size), math.log(max(cost, 1e-9))) for size, cost in points]
    mean_x, mean_y = (sum(each) / len(logs) for each in zip(*logs, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / spread


def curves(report: Report, title: str, unit: str, lines: Mapping[str, Sequence[tuple[float, float]]], keep: bool) -> None:
    """Say how each curve of (size, cost) grows and what an element costs at each size, and draw them on logarithmic axes."""
    report.say(f"{title} ({unit}):")
    for name, points in lines.items():
        each = ", ".join(f"{size:,.0f}: {cost:.3g} ({cost / size * 1e6:.3g} per million)" for size, cost in points)
        report.say(f"  {name}: {each}; grows with the power {slope(points):.2f} of the size")
    if keep:
        RESULTS.mkdir(exist_ok=True)
        place = RESULTS / f"{report.name}.svg"
        place.write_text(_svg(title, unit, lines), encoding="utf-8")


def _svg(title: str, unit: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    width, height, left, top, right, bottom = 760, 460, 80, 50, 200, 60
    sizes = [math.log10(size) for points in lines.values() for size, _ in points]
    costs = [math.log10(max(cost, 1e-9)) for points in lines.values() for _, cost in points]
    x0, x1, y0, y1 = math.floor(min(sizes)), math.ceil(max(sizes)), math.floor(min(costs)), math.ceil(max(costs))

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            left + (x - x0) / max(x1 - x0, 1) * (width - left - right),
            height - bottom - (y - y0) / max(y1 - y0, 1) * (height - top - bottom),
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/><text x="{left}" y="24" font-size="15">{title}, {unit}</text>',
    ]
    for power in range(x0, x1 + 1):
        x, low = at(power, y0)
        parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{low:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{low + 18:.1f}" text-anchor="middle">{10**power:,}</text>')
    for power in range(y0, y1 + 1):
        far, y = at(x1, power)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{far:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for number, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [at(math.log10(size), math.log10(max(cost, 1e-9))) for size, cost in points]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places]
        parts.append(f'<text x="{width - right + 12}" y="{top + 12 + 20 * number}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])
