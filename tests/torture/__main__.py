"""``make torture``: the whole storm over each ledger, then the mutants, with the figures. ``--help`` says what can be chosen."""

import argparse
import json
import secrets
import sys
import tempfile
import time
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.torture.mutants import MUTANTS, WEATHERS
from tests.torture.scene import Scene
from tests.torture.storm import Storm
from tests.torture.tally import NOT_COVERED, Count, Figures


class Progress:
    """One line that is written over on a terminal, and one every ten seconds elsewhere."""

    def __init__(self) -> None:
        self.said = 0.0

    def __call__(self, figures: Figures, count: Count) -> None:
        what = f"{figures.ledger}, {figures.mutant}" if figures.mutant else figures.ledger
        text = f"{what}: {count.launches} launches, {figures.kills.total()} kills, {sum(count.doubles().values())} doubles"
        if sys.stdout.isatty():
            print(f"\r\033[K{text}", end="", flush=True)
        elif time.monotonic() - self.said >= 10:
            self.said = time.monotonic()
            print(text, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.torture", description=__doc__)
    parser.add_argument("--launches", type=int, default=2100, help="of the product, over all ledgers, counted by the trainers")
    parser.add_argument("--kills", type=int, default=1100, help="over all ledgers")
    parser.add_argument("--seconds-max", type=float, default=3600, help="for the storm over each ledger")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9))
    parser.add_argument("--ledger", choices=("sqlite",), action="append", help="all of them unless named")
    parser.add_argument("--mutant", choices=tuple(MUTANTS), action="append", help="only these; the product and all mutants unless named")
    parser.add_argument("--weather", choices=tuple(WEATHERS), help="another weather than the one in which it shows most")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    print(f"seed {given.seed}", flush=True)
    done: list[Figures] = []
    ledgers = given.ledger or ["sqlite"]
    with tempfile.TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True) as root:
        for number, (ledger, mutant) in enumerate((ledger, mutant) for mutant in given.mutant or MUTANTS for ledger in ledgers):
            weather = WEATHERS[given.weather] if given.weather else MUTANTS[mutant].weather
            scene = Scene(Path(root) / f"{ledger}-{number}", given.seed, weather, mutant=mutant)
            wanted = (given.launches // len(ledgers), given.kills // len(ledgers)) if mutant == "" else (min(given.launches, 80), 0)
            storm = Storm(scene, *wanted, given.seconds_max)
            if not given.quiet:
                storm.say = Progress()
            figures = storm.run()
            print("\n".join(("", *figures.lines())), flush=True)
            done.append(replace(figures, findings=[*figures.findings, *crashes(scene)]))
            if figures.broken_off:
                break
    print("not covered:\n" + "\n".join(f"  {line}" for line in NOT_COVERED))
    if given.json:
        given.json.write_text(json.dumps([document(figures) for figures in done]), encoding="utf-8")
    return int(not all(as_it_should_be(figures) for figures in done))


def crashes(scene: Scene) -> list[str]:
    """What controllers wrote before they ended otherwise than by a signal."""
    path = scene.root / "crashes"
    return [path.read_text(encoding="utf-8")[-4000:]] if path.exists() else []


def document(figures: Figures) -> dict[str, Any]:
    fields = {field.name: getattr(figures, field.name) for field in dataclass_fields(figures)}
    return fields | {"doubled": figures.doubled}


def as_it_should_be(figures: Figures) -> bool:
    """Nothing doubled and nothing found in the product; a mutant that nothing else holds doubled."""
    if figures.broken_off:
        return False
    if MUTANTS[figures.mutant].held_by:
        return figures.doubled == 0 and not figures.findings
    return figures.doubled > 0


if __name__ == "__main__":
    sys.exit(main())
