"""Looking at checkpoints, against hashing them: ``python bench/checkpoint_inspect.py [--quick] [--keep] [--into FOLDER]``.

Whole processes on checkpoints as a Transformers trainer writes them (``bench/checkpoints.py``), in the page cache, with nothing kept. Each
one's five components are opened, parsed and hashed, and every checksum inside is held against its bytes; ``openssl dgst -sha256`` reads
the same files and hashes them, one after the other. Then the same once more, with digests kept from the time before; and how the cost
grows with the number of checkpoints, of a size at which hashing costs nothing.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from bench.report import Report, slope  # noqa: E402
from bench.spent import OURS, Contender, asked, interleaved, ratio, spent  # noqa: E402

NUMBER: Final = 8
SIZE: Final = 192 << 20
QUICK_SIZE: Final = 24 << 20
SMALL: Final = 96 << 10
NUMBERS: Final = (100, 200, 400, 800)
QUICK_NUMBERS: Final = (20, 40, 80)
#: A checkpoint in place is refused as one whose publication nobody saw, which is what is measured here.
VOUCHED: Final = (*OURS, "checkpoint", "inspect", "--vouch", "--json")
#: The second look alone, without the start of the interpreter and what it imports.
WITHIN: Final = """
import sys, time
from pathlib import Path
from countermark.app.inspect import inspect_checkpoints
from countermark.files.digest_cache import DigestCache
began = time.perf_counter()
found = inspect_checkpoints(sys.argv[2:], None, True, None, cache=DigestCache(Path(sys.argv[1])))
print(time.perf_counter() - began)
"""


def made(folder: Path, number: int, size: int) -> list[str]:
    """Checkpoints under a folder; returns the paths of all their files. They are older than what a cache calls too fresh to keep."""
    subprocess.run([sys.executable, str(ROOT / "bench/checkpoints.py"), str(folder), str(number), str(size)], check=True)
    return sorted(str(path) for path in folder.rglob("*") if path.is_file())


def against_hashing(report: Report, scratch: Path, options: argparse.Namespace) -> Path:
    """All of them at once, and one alone, against hashing; returns the folder."""
    folder = scratch / "several"
    files = made(folder, NUMBER, QUICK_SIZE if options.quick else SIZE)
    more = {"XDG_CACHE_HOME": str(scratch / "cache")}
    alone = [path for path in files if "/checkpoint-1/" in path]
    for named, of in ((folder, files), (folder / "checkpoint-1", alone)):
        contenders = {
            "ours": Contender((*VOUCHED, "--fresh", str(named))),
            "openssl": Contender(("openssl", "dgst", "-sha256", *of)),
            "sha256sum": Contender(("sha256sum", *of)),
        }
        costs = interleaved(contenders, 2 if options.quick else options.rounds, more)
        report.say(f"{named.name}: {len(of)} files, {sum(map(os.path.getsize, of)) / 1e6:,.0f} MB:")
        for name, each in costs.items():
            report.say(f"  {name:28} {each.told()}")
        times = costs["ours"].wall_s / costs["openssl"].wall_s
        report.figure(
            "time of ours over that of openssl", f"{times:.2f}", "at most 1.5" if named is folder else "nothing: it starts Python"
        )
        report.say(f"  {ratio(costs, 'ours', 'sha256sum', '')}")
    return folder


def second_look(report: Report, scratch: Path, folder: Path) -> None:
    """The same again, with digests that were kept."""
    time.sleep(2.1)
    kept = scratch / "kept"
    more = {"XDG_CACHE_HOME": str(kept)}
    first, second = (spent(Contender((*VOUCHED, str(folder))), more) for _ in range(2))
    report.say(f"kept from the time before: {second.wall_s:.2f} s instead of {first.wall_s:.2f} s, most of it the start of the process")
    command = [sys.executable, "-c", WITHIN, str(kept / "countermark" / "digests"), str(folder)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=True)
    report.figure(f"the second look at {NUMBER} checkpoints itself", f"{float(done.stdout) * 1000:.1f} ms", "milliseconds")


def growth(report: Report, scratch: Path, options: argparse.Namespace) -> None:
    """How the cost grows with the number, without what a process costs that looks at one."""
    numbers = QUICK_NUMBERS if options.quick else NUMBERS
    folder = scratch / "many"
    made(folder, numbers[-1], SMALL)
    more = {"XDG_CACHE_HOME": str(scratch / "cache")}
    contenders = {
        str(number): Contender((*VOUCHED, "--fresh", *(str(folder / f"checkpoint-{step}") for step in range(1, number + 1))))
        for number in (1, *numbers)
    }
    costs = {int(name): each.least_s for name, each in interleaved(contenders, 2 if options.quick else 5, more).items()}
    points = [(float(number), max(costs[number] - costs[1], 1e-4)) for number in numbers]
    each = ", ".join(f"{number:,.0f}: {cost:.2f} s ({cost / number * 1000:.2f} ms each)" for number, cost in points)
    report.say(f"checkpoints of {SMALL >> 10} KiB, beyond what one costs: {each}")
    report.figure("the cost grows with the power of the number", f"{slope(points):.2f}", "1, which is linear")


def main() -> None:
    options = asked(__doc__, 7, "the checkpoints, 2 GB", "nothing")
    report = Report("checkpoint_inspect")
    with tempfile.TemporaryDirectory(dir=options.into) as name:
        scratch = Path(name)
        folder = against_hashing(report, scratch, options)
        second_look(report, scratch, folder)
        growth(report, scratch, options)
    if options.keep:
        report.keep()


if __name__ == "__main__":
    main()
