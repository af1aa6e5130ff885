"""Check the model of the claim protocol with Spin: the safe variants hold, and each broken rule is betrayed by a story.

``python -m models.check [--quick | --long] [NAME…]`` runs the variants of the gate, all, all and the long ones, or those named.
Rules kept here:

1. A check is exhaustive or it failed: a search that was cut (depth, memory, time) never counts as one that found nothing. A search that may
   have missed states (hash compaction, bits) is called so, beside its figures.
2. A variant that breaks a rule must be found out. Its shortest story is looked for breadth first, and told.
3. Bounds stand beside every figure: within them the check says everything, beyond them nothing. Kills, stops and refusals that no bound
   names have none.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from models.variants import VARIANTS, Variant

HERE: Final = Path(__file__).parent
MEMORY_MB: Final = 5800
DEPTH_MAX: Final = 1_000_000
#: A state's hash has 64 bits; with n states the chance that one was missed is below n²/2⁶⁵.
_SEARCHES: Final = {
    "every state": ("-DSAFETY",),
    "breadth first": ("-DSAFETY", "-DBFS"),
    "hashes of states": ("-DSAFETY", "-DHC4"),
    "one bit a state": ("-DSAFETY", "-DBITSTATE"),
    "liveness": ("-DNFAIR=4",),
}


@final
@dataclass(frozen=True)
class Found:
    """What a search found: the rule that was broken and the story of it, whether the search was whole, and what it cost."""

    broken: str
    story: tuple[str, ...]
    whole: bool
    states: int
    seconds: float

    def expected_of(self, variant: Variant) -> bool:
        """Whether it is what the variant is there to show."""
        return self.whole and not self.broken if variant.safe else bool(self.broken)


def build(variant: Variant, folder: Path, optimise: str) -> None:
    """Generate and compile the search of a variant. Raises ``CalledProcessError`` where it cannot be built."""
    for source in HERE.glob("*.pml"):
        shutil.copy(source, folder)
    given = [f"-D{one}" for one in (*variant.switches, *variant.bounds)]
    subprocess.run(["spin", "-a", *given, "claim.pml"], cwd=folder, check=True, capture_output=True, text=True)
    flags = (*_SEARCHES[variant.search], optimise, "-DVECTORSZ=4096", f"-DMEMLIM={MEMORY_MB}")
    subprocess.run(["gcc", *flags, "-o", "pan", "pan.c"], cwd=folder, check=True, capture_output=True, text=True)


def run(variant: Variant) -> Found:
    """Search one variant in a folder of its own. Raises ``CalledProcessError`` where it cannot be built."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(variant, folder, "-O0" if variant.group == "quick" else "-O2")
        # The options: fair cycles; a table of 2³³ bits, that is 1 GB.
        options = {"liveness": ("-a", "-f"), "one bit a state": ("-w33",)}.get(variant.search, ())
        began = time.monotonic()
        try:
            said = subprocess.run(
                ["./pan", f"-m{DEPTH_MAX}", *options],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=variant.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Found("", (), False, 0, time.monotonic() - began)
        took = time.monotonic() - began
        told = report(said.stdout + said.stderr)
        return Found(told.broken, story(folder) if told.broken else (), told.whole, told.states, took)


def report(text: str) -> Found:
    """What Spin's report says."""
    broken = re.search(r"pan:\d+: (.*) \(at depth \d+\)", text)
    states = re.search(r"([\d.e+]+) states, stored", text)
    cut = "Search not completed" in text and broken is None
    whole = states is not None and not cut and "max search depth too small" not in text and "MEMLIM" not in text
    return Found(" ".join(broken.group(1).split()) if broken else "", (), whole, int(float(states.group(1))) if states else 0, 0)


def story(folder: Path) -> tuple[str, ...]:
    """The sentences along the trail that the search left."""
    told = subprocess.run(["./pan", "-r"], cwd=folder, capture_output=True, text=True, timeout=60, check=False).stdout
    lines = (line.strip() for line in told.splitlines())
    return tuple(line for line in lines if re.match(r"(A|The|Controller|COMMAND)\b.*\.$", line))


def tell(variant: Variant, found: Found) -> str:
    """A variant's lines."""
    expected = "holds" if variant.safe else "is broken"
    what = f"broken: {found.broken[:100]}" if found.broken else "holds" if found.whole else "THE SEARCH WAS CUT, so it shows nothing"
    lines = [
        f"{'ok   ' if found.expected_of(variant) else 'WRONG'} {variant.name}: to be shown that it {expected}; {what}",
        f"      {found.states:,} states in {found.seconds:.1f} s; {variant.how()}; {' '.join((*variant.switches, *variant.bounds))}",
        *(f"      | {line}" for line in found.story),
    ]
    return "\n".join(lines)


def chosen(arguments: Sequence[str]) -> tuple[Variant, ...] | str:
    """The variants that the arguments ask for, or why there are none."""
    parser = argparse.ArgumentParser(description="Check the model of the claim protocol.")
    parser.add_argument("--quick", action="store_true", help="only those that take a second or two")
    parser.add_argument("--long", action="store_true", help="also those that take many minutes")
    parser.add_argument("name", nargs="*")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.name) - {variant.name for variant in VARIANTS})
    if unknown:
        return f"no variant is called {', '.join(unknown)}; there are: {'; '.join(each.name for each in VARIANTS)}"
    if options.name:
        return tuple(variant for variant in VARIANTS if variant.name in options.name)
    groups = {"quick"} if options.quick else {"quick", "whole", "long"} if options.long else {"quick", "whole"}
    return tuple(variant for variant in VARIANTS if variant.group in groups)


def main(arguments: Sequence[str]) -> int:
    """Print what each variant shows; 1 where one is not as expected, 2 where a name is unknown, 3 where the tools are missing."""
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if missing:
        print(f"missing: {', '.join(missing)}; install them: apt-get install spin gcc", file=sys.stderr)
        return 3
    variants = chosen(arguments)
    if isinstance(variants, str):
        print(variants, file=sys.stderr)
        return 2
    wrong = 0
    for variant in variants:
        found = run(variant)
        wrong += not found.expected_of(variant)
        print(tell(variant, found), flush=True)
    print(f"{len(variants)} variants, {wrong} not as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
