"""The difference of two weights, against others: ``python bench/weights_diff.py [--quick] [--keep] [--peers FOLDER] [--into FOLDER]``.

Whole processes on pairs of about 1 GB a side, made on the spot (``bench/pairs.py``), bf16 and f32, a sparse edit and a dense one, with the
files in the page cache. Beside ours: torch that says the same (``bench/peer_torch.py``), ``openssl dgst -sha256`` over both files one
after the other and side by side, ``sha256sum``, and ``sft diff --delta`` of an environment with sft-cli that ``--peers`` names. Ours is
measured as it is, with the base's digests recorded before, with the spectrum, and without hashing (which no option gives: what is left is
what sft-cli does). At the end a pair of about 4 GB a side shows that memory stays flat.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from bench.report import Report  # noqa: E402
from bench.spent import OURS, Contender, Costs, asked, interleaved, ratio, spent  # noqa: E402

#: The peer, as pip is asked for it; it lives in an environment of its own, which this names.
SFT: Final = "sft-cli==0.2.2"
SIZE: Final = 1 << 30
QUICK_SIZE: Final = 96 << 20
#: Ours with a hash that does nothing, to see what the numbers alone cost.
UNHASHED: Final = """
import os, sys
# Its digests are none: they are kept nowhere, and held against none that were kept.
os.environ["XDG_CACHE_HOME"] = os.environ["HOME"] = ""
from countermark.cli.main import main
from countermark.files import comparing
class Nothing:
    def update(self, data): pass
    def copy(self): return Nothing()
    def hexdigest(self): return os.urandom(32).hex()
class Hashes:
    sha256 = staticmethod(Nothing)
comparing.hashlib = Hashes
sys.exit(main(sys.argv[1:]))
"""
BASE_ROOT: Final = "--base-root"


def made(folder: Path, dtype: str, kind: str, size: int) -> tuple[str, str]:
    """A pair, read once so that it is in the page cache."""
    subprocess.run([sys.executable, str(ROOT / "bench/pairs.py"), str(folder), dtype, kind, str(size)], check=True)
    pair = (str(folder / "A.safetensors"), str(folder / "B.safetensors"))
    for path in pair:
        subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
    return pair


def contenders(a: str, b: str, recorded: str | None, peers: Path | None) -> dict[str, Contender]:
    ours = (*OURS, "weights", "diff", a, b, "--json", "--fresh", "--no-spectrum")
    found = {
        "ours": Contender(ours),
        "ours with the spectrum": Contender((*ours[:-1], "--spectrum")),
        "ours without hashing": Contender((sys.executable, "-c", UNHASHED, *ours[len(OURS) :])),
        "torch": Contender((sys.executable, str(ROOT / "bench/peer_torch.py"), "diff", a, b)),
        "openssl": Contender(("openssl", "dgst", "-sha256", a, b)),
        "openssl side by side": Contender(("sh", "-c", 'openssl dgst -sha256 "$1" & openssl dgst -sha256 "$2" & wait', "sh", a, b)),
        "sha256sum": Contender(("sha256sum", a, b)),
    }
    if recorded is not None:
        found["ours with the base recorded"] = Contender((*ours, BASE_ROOT, recorded))
    if peers is not None:
        # It ends with 1 where it found a difference.
        found["sft --delta"] = Contender((str(peers / "bin/sft"), "diff", a, b, "--delta", "--json"), (0, 1))
    return found


def recording(folder: Path, a: str, more: dict[str, str]) -> str | None:
    """The base's lines as ``weights root --lines`` writes them; None where the program has no such option."""
    told = subprocess.run(
        [*OURS, "weights", "diff", "--help"], capture_output=True, text=True, check=True, env={**os.environ, **more}
    ).stdout
    if BASE_ROOT not in told:
        return None
    lines = folder / "base.lines"
    spent(Contender((*OURS, "weights", "root", a, "--lines", str(lines), "--json")), more)
    return str(lines)


def against_others(report: Report, folder: Path, dtype: str, kind: str, options: argparse.Namespace) -> None:
    a, b = made(folder, dtype, kind, QUICK_SIZE if options.quick else SIZE)
    more = {"PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": str(folder / "cache")}
    recorded = recording(folder, a, more)
    costs = interleaved(contenders(a, b, recorded, options.peers), 2 if options.quick else options.rounds, more)
    report.say(f"{kind}, {dtype}, {os.path.getsize(a) / 1e6:,.0f} MB a side:")
    for name, each in costs.items():
        report.say(f"  {name:28} {each.told()}")
    for line in verdicts(kind, costs):
        report.say(f"  {line}")
    for path in (a, b):
        os.unlink(path)


def verdicts(kind: str, costs: dict[str, Costs]) -> list[str]:
    """The ratios that are held against a target."""
    sparse = kind == "sparse"
    lines = [ratio(costs, "ours", "torch", "≥ 4×" if sparse else "≥ 1.8×")]
    lines.append(ratio(costs, "ours", "openssl", "≥ 1.3×" if sparse else "≥ 0.62×: at most 1.6 times its time"))
    lines.append(ratio(costs, "ours", "openssl side by side", ""))
    if "ours with the base recorded" in costs:
        lines.append(ratio(costs, "ours with the base recorded", "openssl", "≥ 4×" if sparse else ""))
    if "sft --delta" in costs:
        lines.append(ratio(costs, "ours without hashing", "sft --delta", "≥ 10×"))
    share = costs["torch"].peak_mib / costs["ours"].peak_mib
    return [*lines, f"memory: {costs['ours'].peak_mib:,.0f} MiB, 1/{share:.0f} of torch's (wanted: ≤ 1/30)"]


def flat(report: Report, folder: Path, options: argparse.Namespace) -> None:
    """The highest memory over the size, with everything asked for that reads a matrix."""
    size = QUICK_SIZE if options.quick else SIZE
    told: list[str] = []
    for part in (size // 2, size, 4 * size):
        a, b = made(folder, "BF16", "dense", part)
        command = (*OURS, "weights", "diff", a, b, "--json")
        plain, whole = (
            spent(Contender((*command, each)), {"XDG_CACHE_HOME": str(folder / "cache")}) for each in ("--no-spectrum", "--spectrum")
        )
        told.append(f"{os.path.getsize(a) / 1e6:,.0f} MB a side: {plain.peak_mib:.0f} MiB in {plain.wall_s:.1f} s, "
                    f"with the spectrum {whole.peak_mib:.0f} MiB in {whole.wall_s:.1f} s")  # fmt: skip
        for path in (a, b):
            os.unlink(path)
    empty = spent(Contender((sys.executable, "-c", "import numpy, countermark.app.weights, countermark.cli.main")), {})
    report.figure("memory", "; ".join(told), f"flat; the interpreter with what it imports has {empty.peak_mib:.0f} MiB before it reads")


def main() -> None:
    options = asked(__doc__, 5, "the pairs, 8 GB", SFT)
    report = Report("weights_diff")
    with tempfile.TemporaryDirectory(dir=options.into) as folder:
        for kind in ("sparse", "dense"):
            for dtype in ("BF16", "F32"):
                against_others(report, Path(folder) / f"{kind}-{dtype}", dtype, kind, options)
        flat(report, Path(folder) / "flat", options)
    told = subprocess.run([sys.executable, str(ROOT / "bench/sketching.py")], capture_output=True, text=True, check=True).stdout.strip()
    report.figure("the spectrum of a matrix of 1,024 × 3,072 on one core", told, "about 15 ms")
    if options.peers is None:
        report.say(f"  {SFT} was not measured: name its environment by --peers")
    if options.keep:
        report.keep()


if __name__ == "__main__":
    main()
