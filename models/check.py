"""Check the model of the claim protocol exhaustively with Spin: the safe variants hold, and each broken rule is betrayed.

``python models/check.py [NAME…]`` runs all variants, or those named. Rules kept here:

1. A check is exhaustive or it failed: a search that was cut (depth, memory, time) never counts as one that found nothing.
2. A variant that breaks a rule must be found out. Its shortest tale is not looked for; the depth of the first one is told.
3. Bounds stand beside every figure: within them the check says everything, beyond them nothing.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

HERE: Final = Path(__file__).parent
SOURCES: Final = ("claim.pml", "ledger.pml", "bounds.pml")
TIMEOUT_S: Final = 1800
MEMORY_MB: Final = 6000
DEPTH_MAX: Final = 100_000


@final
@dataclass(frozen=True)
class Variant:
    """The protocol with some switches, and whether it is to hold. ``COARSE`` joins steps between which nobody can interfere."""

    name: str
    safe: bool
    switches: tuple[str, ...]
    bounds: tuple[str, ...] = ("KILLS=1", "HOLDS=1", "REFUSALS=1")


VARIANTS: Final = (
    Variant("create or get, one kill", True, ("COARSE",), ("KILLS=1", "HOLDS=0", "REFUSALS=0")),
    Variant("a one-shot intent", True, ("COARSE", "ONE_SHOT")),
    Variant("uniqueness on the attempt", False, ("COARSE", "KEY_ON_ATTEMPT")),
    Variant("no fence (a lease)", False, ("COARSE", "NO_FENCE")),
    Variant("no fence behind a refused launch", False, ("COARSE", "NO_FENCE_AFTER_REFUSAL")),
    Variant("a start that is not exclusive", False, ("COARSE", "START_NOT_EXCLUSIVE", "LINES=2")),
)


@final
@dataclass(frozen=True)
class Found:
    """What a search found: whether a rule was broken and at which depth, whether the search was whole, and what it cost."""

    broken: str
    depth: int
    whole: bool
    states: int
    seconds: float


def run(variant: Variant) -> Found:
    """Generate, compile and search one variant, in a folder of its own. Raises ``CalledProcessError`` where it cannot be built."""
    with tempfile.TemporaryDirectory() as folder:
        for name in SOURCES:
            shutil.copy(HERE / name, folder)
        given = [f"-D{one}" for one in (*variant.switches, *variant.bounds)]
        subprocess.run(["spin", "-a", *given, SOURCES[0]], cwd=folder, check=True, capture_output=True, text=True)
        flags = ("-O2", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=4096", f"-DMEMLIM={MEMORY_MB}")
        subprocess.run(["gcc", *flags, "-o", "pan", "pan.c"], cwd=folder, check=True, capture_output=True, text=True)
        began = time.monotonic()
        try:
            said = subprocess.run(["./pan", f"-m{DEPTH_MAX}"], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return Found("", 0, False, 0, time.monotonic() - began)
        return told(said.stdout + said.stderr, time.monotonic() - began)


def told(text: str, seconds: float) -> Found:
    """What Spin's report says."""
    broken = re.search(r"pan:\d+: (.*) \(at depth (\d+)\)", text)
    states = re.search(r"([\d.e+]+) states, stored", text)
    cut = "Search not completed" in text and broken is None
    whole = states is not None and not cut and "max search depth too small" not in text and "out of memory" not in text
    return Found(
        broken.group(1) if broken else "",
        int(broken.group(2)) if broken else 0,
        whole,
        int(float(states.group(1))) if states else 0,
        seconds,
    )


def main(names: list[str]) -> int:
    """Print a line for every variant; 1 where one is not as expected, 3 where the tools are missing."""
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if missing:
        print(f"missing: {', '.join(missing)}; install them: apt-get install spin gcc", file=sys.stderr)
        return 3
    unknown = set(names) - {variant.name for variant in VARIANTS}
    if unknown:
        print(f"no variant is called {', '.join(sorted(unknown))}; there are: {'; '.join(each.name for each in VARIANTS)}", file=sys.stderr)
        return 2
    wrong = 0
    for variant in VARIANTS:
        if names and variant.name not in names:
            continue
        found = run(variant)
        as_expected = (found.whole and not found.broken) if variant.safe else bool(found.broken)
        wrong += not as_expected
        expected = "holds" if variant.safe else "is broken"
        what = f"broken at depth {found.depth}: {found.broken[:90]}" if found.broken else "holds" if found.whole else "the search was cut"
        print(f"{'ok   ' if as_expected else 'WRONG'} {variant.name}: to be shown that it {expected}; {what}")
        print(f"      {found.states:,} states, {found.seconds:.1f} s; {' '.join((*variant.switches, *variant.bounds))}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
