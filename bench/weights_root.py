"""Both digests of weights, against others: ``python bench/weights_root.py [--quick] [--keep] [--peers FOLDER] [--into FOLDER]``.

Whole processes on a file of about 1 GB and on the same weights in eight shards, made on the spot (``bench/pairs.py``), in the page cache.
Ours gives two digests (``wr1`` of the tensors and ``fd1`` of the files); it is measured with nothing kept and with its digests kept from
the time before. Beside it: ``openssl dgst -sha256`` one file after the other and two at a time, ``sha256sum``, torch that loads and hashes
each tensor (``bench/peer_torch.py``), and the hashing of model-signing from an environment that ``--peers`` names.
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
from bench.spent import OURS, Contender, asked, interleaved, ratio, spent  # noqa: E402

#: The peer, as pip is asked for it (it needs pyOpenSSL, which it does not name); it lives in an environment of its own.
MODEL_SIGNING: Final = "model-signing==1.1.1"
SIZE: Final = 1 << 30
QUICK_SIZE: Final = 96 << 20
SHARDS: Final = 8
SIGNING: Final = "import sys, model_signing; model_signing.hashing.Config().hash(sys.argv[1])"


def contenders(path: Path, files: list[str], peers: Path | None) -> dict[str, Contender]:
    found = {
        "ours": Contender((*OURS, "weights", "root", str(path), "--json", "--fresh")),
        "openssl": Contender(("openssl", "dgst", "-sha256", *files)),
        "sha256sum": Contender(("sha256sum", *files)),
    }
    if len(files) > 1:
        found["openssl, two at a time"] = Contender(
            ("sh", "-c", 'printf "%s\\0" "$@" | xargs -0 -n1 -P2 openssl dgst -sha256', "sh", *files)
        )
    else:
        found["torch"] = Contender((sys.executable, str(ROOT / "bench/peer_torch.py"), "root", *files))
    if peers is not None:
        found["model-signing"] = Contender((str(peers / "bin/python"), "-c", SIGNING, str(path)))
    return found


def measured(report: Report, path: Path, files: list[str], options: argparse.Namespace, more: dict[str, str]) -> None:
    """One form of the weights against everybody."""
    costs = interleaved(contenders(path, files, options.peers), 2 if options.quick else options.rounds, more)
    size = sum(os.path.getsize(each) for each in files)
    report.say(f"{len(files)} × {size / len(files) / 1e6:,.0f} MB, bf16:")
    for name, each in costs.items():
        report.say(f"  {name:28} {each.told()}")
    for name in costs:
        if name != "ours":
            report.say(f"  {ratio(costs, 'ours', name, '')}")


def kept(report: Report, path: Path, more: dict[str, str]) -> None:
    """The same again, with digests that were kept."""
    command = Contender((*OURS, "weights", "root", str(path), "--json"))
    first, second = spent(command, more), spent(command, more)
    report.say(f"  kept from the time before: {second.wall_s:.2f} s instead of {first.wall_s:.2f} s")


def main() -> None:
    options = asked(__doc__, 7, "the weights, 3 GB", MODEL_SIGNING)
    report = Report("weights_root")
    with tempfile.TemporaryDirectory(dir=options.into) as folder:
        size = QUICK_SIZE if options.quick else SIZE
        made = [sys.executable, str(ROOT / "bench/pairs.py"), folder, "BF16", "sparse", str(size), str(SHARDS)]
        subprocess.run(made, check=True)
        one, shards = Path(folder) / "A.safetensors", Path(folder) / "shards"
        (Path(folder) / "B.safetensors").unlink()
        more = {"XDG_CACHE_HOME": str(Path(folder) / "cache")}
        for path, files in ((one, [str(one)]), (shards, sorted(map(str, shards.glob("*.safetensors"))))):
            measured(report, path, files, options, more)
            kept(report, path, {"XDG_CACHE_HOME": f"{folder}/kept-{path.name}"})
    if options.peers is None:
        report.say(f"  {MODEL_SIGNING} was not measured: name its environment by --peers")
    if options.keep:
        report.keep()


if __name__ == "__main__":
    main()
