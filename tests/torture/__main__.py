"""``make torture``: the whole storm over each ledger, then the mutants, with the figures. ``--help`` says what can be chosen."""

import argparse
import contextlib
import itertools
import json
import secrets
import sys
import tempfile
import time
from collections import Counter
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.torture.database import Database, database
from tests.torture.mutants import MUTANTS, WEATHERS
from tests.torture.scene import Scene
from tests.torture.storm import Storm
from tests.torture.tally import NOT_COVERED, Count, Figures

LEDGERS: Final = ("sqlite", "postgresql")


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
    parser.add_argument("--launches", type=int, default=2100, help="of the product over each ledger, counted by the trainers")
    parser.add_argument("--kills", type=int, default=1100, help="over each ledger")
    parser.add_argument("--seconds-max", type=float, default=3600, help="for the storm over each ledger")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9))
    parser.add_argument("--ledger", choices=LEDGERS, action="append", help="both unless named")
    parser.add_argument("--mutant", choices=tuple(MUTANTS), action="append", help="only these; the product and all mutants unless named")
    parser.add_argument("--restarts", type=int, default=12, help="of the PostgreSQL server, spread over the storm of the product")
    parser.add_argument("--weather", choices=tuple(WEATHERS), help="another weather than the one in which it shows most")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--resume", action="store_true", help="keep what stands in the file of --json, and go on after it with its seed")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    done: list[Figures] = kept(given.json) if given.resume and given.json else []
    given.seed = done[0].seed if done else given.seed
    print(f"seed {given.seed}", flush=True)
    ledgers = given.ledger or list(LEDGERS)
    names = {figures.ledger.lower() + "/" + figures.mutant for figures in done}
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True))
        server = stack.enter_context(database()) if "postgresql" in ledgers else None
        for mutant, ledger in itertools.product(given.mutant or MUTANTS, ledgers):
            if f"{ledger}/{mutant}" in names:
                continue
            place = Path(root) / f"{ledger}-{len(done)}"
            done.append(blown(given, place, mutant, server if ledger == "postgresql" else None))
            if given.json:
                given.json.write_text(json.dumps([document(figures) for figures in done]), encoding="utf-8")
            if done[-1].broken_off:
                break
    print("not covered:\n" + "\n".join(f"  {line}" for line in NOT_COVERED))
    return int(not all(as_it_should_be(figures) for figures in done))


def blown(given: argparse.Namespace, place: Path, mutant: str, server: Database | None) -> Figures:
    """The figures of one storm, which are printed, too."""
    weather = WEATHERS[given.weather] if given.weather else MUTANTS[mutant].weather
    scene = Scene(place, given.seed, weather, url="" if server is None else server.url(), mutant=mutant)
    launches, kills = (given.launches, given.kills) if mutant == "" else (min(given.launches, MUTANTS[mutant].launches), 0)
    storm = Storm(scene, launches, kills, given.seconds_max)
    if server is not None and mutant == "":
        storm.restart, storm.restarts = server.restart, given.restarts
    if not given.quiet:
        storm.say = Progress()
    figures = storm.run()
    print("\n".join(("", *figures.lines())), flush=True)
    return replace(figures, findings=[*figures.findings, *crashes(scene)])


def kept(path: Path) -> list[Figures]:
    """The figures of the storms that an earlier call brought to their end, said once more."""
    if not path.exists():
        return []
    names = {field.name for field in dataclass_fields(Figures)}
    documents = [document for document in json.loads(path.read_text(encoding="utf-8")) if not document["broken_off"]]
    found = [Figures(**{name: value for name, value in document.items() if name in names}) for document in documents]
    for figures in found:
        for name in ("kills", "verdicts", "causes", "decisions", "answers"):
            setattr(figures, name, Counter(getattr(figures, name)))
        print("\n".join(("", "(kept)", *figures.lines())), flush=True)
    return found


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
