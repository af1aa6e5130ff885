"""Where a simulated history gets its decisions from, so that it can be lived again and made shorter.

Rules kept here:

1. A history is a function of its decisions, and these are a list of numbers. Drawn from a seed they are recorded; a recorded list gives
   the same history again, to the last step.
2. Of every decision 0 is the plain choice: no fault, the first in turn. A list that ends goes on with zeros, so a shorter list, and one
   with smaller numbers, is a simpler history.
3. Shrinking keeps a change only where the history still fails in the same way, and tries a bounded number of histories.
"""

import random
from collections.abc import Callable, Sequence
from typing import final


class Choices:
    """Decisions, drawn or given."""

    def __init__(self, seed: int | None = None, given: Sequence[int] = ()) -> None:
        self.random = None if seed is None else random.Random(seed).random
        self.given = given
        self.taken: list[int] = []

    def pick(self, number: int) -> int:
        """One of 0 … number - 1, each as likely as the others."""
        if number < 2:
            return 0
        if self.random is not None:
            value = int(self.random() * number)
        else:
            at = len(self.taken)
            value = self.given[at] % number if at < len(self.given) else 0
        self.taken.append(value)
        return value

    def chance(self, often: float) -> bool:
        """True so often (0 … 1); False is the plain choice."""
        if often <= 0.0:
            return False
        if self.random is not None:
            value = int(self.random() < often)
        else:
            at = len(self.taken)
            value = self.given[at] & 1 if at < len(self.given) else 0
        self.taken.append(value)
        return value == 1


@final
class Shrinking:
    """Makes a list of decisions shorter and smaller while ``fails`` holds of it."""

    def __init__(self, fails: Callable[[Sequence[int]], bool], tries_max: int = 3_000) -> None:
        self.fails = fails
        self.tries_left = tries_max

    def _try(self, candidate: list[int]) -> bool:
        if self.tries_left <= 0:
            return False
        self.tries_left -= 1
        return self.fails(candidate)

    def shrink(self, decisions: Sequence[int]) -> list[int]:
        """The simplest list found. ``decisions`` fails; so does what is returned."""
        best = list(decisions)
        while True:
            before = list(best)
            best = self._without_chunks(self._cut_off(best))
            best = self._smaller(best)
            if best == before or self.tries_left <= 0:
                return best

    def _cut_off(self, best: list[int]) -> list[int]:
        """Leave the end away, by halves."""
        length = len(best) // 2
        while length:
            while length <= len(best) and self._try(best[:-length]):
                best = best[:-length]
            length //= 2
        return best

    def _without_chunks(self, best: list[int]) -> list[int]:
        """Leave runs of decisions out, or make them plain, long runs first."""
        length = max(1, len(best) // 4)
        while length:
            at = 0
            while at < len(best):
                plain = best[:at] + [0] * min(length, len(best) - at) + best[at + length :]
                if self._try(best[:at] + best[at + length :]):
                    best = best[:at] + best[at + length :]
                elif plain != best and self._try(plain):
                    best, at = plain, at + length
                else:
                    at += length
            length //= 2
        return best

    def _smaller(self, best: list[int]) -> list[int]:
        for at in range(len(best)):
            for value in (best[at] // 2, best[at] - 1):
                smaller = [*best[:at], value, *best[at + 1 :]]
                if 0 <= value < best[at] and self._try(smaller):
                    best = smaller
                    break
        return best
