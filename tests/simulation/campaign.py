"""Many histories: counting what they reached, and showing the first that fails in its shortest form.

``python -m tests.simulation.campaign`` is what ``make simulate`` runs.

Rules kept here:

1. A seed is a history: the same seed fails the same way for ever, or never. Seeds are numbered from the first one on, so a campaign is
   told apart from another by two numbers, and goes on where it stopped.
2. A failure is shrunk and told in the order in which things happened; its decisions can be lived again.
3. At the end stands what was not covered, beside what was.
"""

import argparse
import gc
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.simulation.broken import Broken
from tests.simulation.choices import Choices, Shrinking
from tests.simulation.living import live, simulated
from tests.simulation.told import Failure, Told, lines

CHUNK: Final = 250


@contextmanager
def _collected_seldom() -> Iterator[None]:
    """Without looking for cycles at every few hundred allocations: a history is made of them and gone as a whole."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def histories(first: int, number: int, shrinking: bool = True) -> Told:
    """Live the histories of these seeds, up to the first that fails."""
    figures: Counter[str] = Counter()
    steps = 0
    past: set[str] = set()
    with simulated(), _collected_seldom():
        for seed in range(first, first + number):
            if seed % 100 == 0:
                gc.collect(1)
            choices = Choices(seed)
            try:
                world = live(choices)
            except AssertionError as broken:
                failure = shortest(seed, choices.taken, broken) if shrinking else Failure(seed, str(broken), tuple(choices.taken), "")
                return Told(seed - first + 1, steps, figures, failure)
            figures.update(world.figures)
            past |= world.past()
            steps += world.steps
    figures.update({f"came past: {point}": 1 for point in past})
    return Told(number, steps, figures, None)


def shortest(seed: int, decisions: Sequence[int], broken: AssertionError) -> Failure:
    """The failure in the shortest form that breaks the same rule."""
    kind = _kind(broken)

    def fails(candidate: Sequence[int]) -> bool:
        try:
            live(Choices(given=candidate))
        except AssertionError as other:
            return _kind(other) == kind
        return False

    best = Shrinking(fails, 2_000).shrink(decisions)
    try:
        live(Choices(given=best), tracing=True)
    except AssertionError as told:
        return Failure(seed, str(told), tuple(best), "\n".join(getattr(told, "__notes__", ())))
    raise AssertionError("a failing history passed when it was lived again")


def _kind(broken: AssertionError) -> str:
    """What was broken, without the names in it."""
    return f"{isinstance(broken, Broken)} {''.join(letter for letter in str(broken)[:60] if not letter.isdigit())[:28]}"


# ---------------------------------------------------------------------------------------------------------- campaign


def _chunk(first: int) -> tuple[int, Told]:
    return first, histories(first, CHUNK)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description="Live many simulated histories.")
    parser.add_argument("--histories", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--state", type=Path, default=Path(".simulation.json"), help="where a campaign that was interrupted goes on")
    parser.add_argument("--again", type=str, default="", help="decisions of one history, to be lived again and told")
    options = parser.parse_args(arguments)
    if options.again:
        return _again([int(number) for number in options.again.replace("[", "").replace("]", "").split(",")])
    return _campaign(options.histories, options.seed, options.jobs, options.state)


def _again(decisions: Sequence[int]) -> int:
    with simulated():
        try:
            world = live(Choices(given=decisions), tracing=True)
        except AssertionError as broken:
            print("\n".join((str(broken), *getattr(broken, "__notes__", ()))))
            return 1
    print("\n".join(world.trace or ()))
    return 0


def _campaign(wanted: int, seed: int, jobs: int, state: Path) -> int:
    done, steps, figures = _resumed(state, seed)
    began, shown = time.monotonic(), time.monotonic()
    before = done
    firsts = range(seed + done, seed + wanted, CHUNK)
    status = 0
    print(f"seeds {seed} to {seed + wanted - 1}" + (f", going on after {done:,}" if done else ""), flush=True)
    try:
        with multiprocessing.Pool(jobs) as pool:
            # In the order of the seeds, so that what is done is always everything up to one seed.
            for first, told in pool.imap(_chunk, firsts):
                if told.failure is not None:
                    print(f"\n{told.failure.text()}", flush=True)
                    status = 1
                    break
                done, steps = first + CHUNK - seed, steps + told.steps
                figures.update(told.figures)
                if time.monotonic() - shown > 10:
                    shown = time.monotonic()
                    speed = (done - before) / (shown - began)
                    left = (wanted - done) / speed
                    print(f"{done:,} of {wanted:,} histories, {speed:,.0f}/s, {left:,.0f} s to go", flush=True)
                    state.write_text(json.dumps({"seed": seed, "done": done, "steps": steps, "figures": figures}))
    except KeyboardInterrupt:
        state.write_text(json.dumps({"seed": seed, "done": done, "steps": steps, "figures": figures}))
        print(f"\ninterrupted; {done:,} histories are done, and the same call goes on with the next", flush=True)
        status = 130
    if status == 0:
        state.unlink(missing_ok=True)
    print("\n".join(lines(Told(done, steps, figures, None))), flush=True)
    return status


def _resumed(state: Path, seed: int) -> tuple[int, int, Counter[str]]:
    if state.exists():
        kept = json.loads(state.read_text())
        if kept["seed"] == seed:
            return kept["done"], kept["steps"], Counter(kept["figures"])
    return 0, 0, Counter()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
