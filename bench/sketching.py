"""What the spectrum of one matrix costs, without reading: ``python bench/sketching.py`` prints the median and the least in milliseconds.

One core, 1,024 × 3,072 numbers in float32, in blocks as a comparison hands them over.
"""

import os
import statistics
import sys
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np

from countermark.files.spectra import BLOCK_ELEMENTS
from countermark.weights.sketch import Sketch

ROWS, COLUMNS, TIMES = 1_024, 3_072, 25


def main() -> None:
    chance = np.random.default_rng(0)
    before = chance.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    after = before + np.float32(0.01) * chance.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    a, b, largest = memoryview(before.tobytes()), memoryview(after.tobytes()), float(np.abs(after - before).max())
    step = BLOCK_ELEMENTS // COLUMNS // 8 * 8 * COLUMNS * 4
    spent: list[float] = []
    for _ in range(TIMES):
        began = time.perf_counter()
        sketch = Sketch(COLUMNS, largest, "F32", "F32")
        for at in range(0, len(a), step):
            sketch.first(a[at : at + step], b[at : at + step])
        sketch.turn()
        for at in range(0, len(a), step):
            sketch.second(a[at : at + step], b[at : at + step])
        sketch.result(1.0)
        spent.append(1e3 * (time.perf_counter() - began))
    print(f"{statistics.median(spent):.1f} ms median, {min(spent):.1f} ms least")


if __name__ == "__main__":
    main()
