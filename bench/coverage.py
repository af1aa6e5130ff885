"""How often the intervals of comparisons hold what is true: ``python bench/coverage.py [--draws N] [--keep]``.

For proportions from the middle to the ceiling, with pairs that hang together and without: the share of simulated tables whose interval
holds the true difference, by Newcombe's method (ours) and by Wald's, which has no width where no pair is discordant; and how often exact
McNemar falls to 5 % where there is no difference. For continuous scores: the paired t and the clustered t over the same pairs, of which
some came in clusters that the paired t does not know of.
"""

import argparse
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from countermark.experiments.statistics import Fourfold, clustered_t, mcnemar, newcombe, paired_t

_Z: Final = 1.959963984540054


def tables(p_a: float, p_b: float, hold: float, n: int, draws: int, seed: int) -> Iterator[Fourfold]:
    """Tables of n pairs. ``hold`` is the share of what the margins allow that both sides are right together, beyond chance."""
    both = p_a * p_b + hold * (min(p_a, p_b) - p_a * p_b)
    shares = (both, p_a - both, p_b - both, 1 - p_a - p_b + both)
    drawn = random.Random(seed)
    for _ in range(draws):
        found = drawn.choices(range(4), shares, k=n)
        yield Fourfold(*(found.count(each) for each in range(4)))


def wald(table: Fourfold) -> tuple[float, float]:
    diff = (table.only_b - table.only_a) / table.n
    error = math.sqrt(max(0.0, (table.only_a + table.only_b) / table.n - diff * diff) / table.n)
    return diff - _Z * error, diff + _Z * error


def proportions(draws: int) -> Iterator[str]:
    yield f"{'n':>5} {'p A':>6} {'p B':>6} {'hold':>5}  {'Newcombe':>9} {'Wald':>7} {'Wald of no width':>17} {'McNemar < 5 %':>14}"
    for n in (20, 50, 200):
        for p_a, p_b in ((0.5, 0.5), (0.5, 0.6), (0.9, 0.9), (0.9, 0.95), (0.98, 0.98), (0.98, 1.0), (0.995, 0.995)):
            for hold in (0.0, 0.7):
                true, held, held_wald, none, below = p_b - p_a, 0, 0, 0, 0
                for table in tables(p_a, p_b, hold, n, draws, n):
                    interval = newcombe(table)
                    assert interval is not None
                    held += interval.low - 1e-12 <= true <= interval.high + 1e-12
                    low, high = wald(table)
                    held_wald += low - 1e-12 <= true <= high + 1e-12
                    none += low == high
                    below += (mcnemar(table) or 0.0) <= 0.05
                said = f"{100 * below / draws:>13.1f}%" if p_a == p_b else f"{'-':>14}"
                yield (
                    f"{n:>5} {p_a:>6} {p_b:>6} {hold:>5}  {100 * held / draws:>8.1f}% {100 * held_wald / draws:>6.1f}% "
                    f"{100 * none / draws:>16.1f}% {said}"
                )


def continuous(draws: int) -> Iterator[str]:
    yield f"{'n':>5} {'clusters':>9}  {'paired t':>9} {'clustered t':>12}"
    drawn = random.Random(9)
    for n, count in ((10, 0), (40, 0), (40, 10), (200, 20), (200, 50)):
        held = held_clustered = 0
        for _ in range(draws):
            shift = [drawn.gauss(0.0, 1.0) for _ in range(count)]
            clusters = [at % count if count else at for at in range(n)]
            differences = [drawn.gauss(0.3, 1.0) + (shift[cluster] if count else 0.0) for cluster in clusters]
            plain, known = paired_t(differences), clustered_t(differences, clusters)
            assert plain is not None and known is not None and plain.interval is not None and known.interval is not None
            held += plain.interval.low <= 0.3 <= plain.interval.high
            held_clustered += known.interval.low <= 0.3 <= known.interval.high
        yield f"{n:>5} {count or '-':>9}  {100 * held / draws:>8.1f}% {100 * held_clustered / draws:>11.1f}%"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=4_000)
    parser.add_argument("--keep", action="store_true", help="write what is printed to bench/results/coverage.txt")
    options = parser.parse_args()
    lines = [f"coverage of 95 % intervals, {options.draws:,} draws a row", "", *proportions(options.draws), "", *continuous(options.draws)]
    print("\n".join(lines))
    if options.keep:
        (Path(__file__).parent / "results" / "coverage.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
