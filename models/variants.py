"""The roster of what is checked: the claim protocol as it is, and with one rule broken each.

Rules kept here:

1. Whatever is said to be safe is checked with every number of kills, stops and refusals, unless its bounds say otherwise.
2. A broken rule is looked for in the smallest bounds that show it. Where only kills or only stops are to show it, the others are barred.
3. ``WITNESS`` variants break no rule: that they are "found out" shows that the model reaches what its rules are about.
"""

from dataclasses import dataclass
from typing import Final, Literal, final

Search = Literal["every state", "breadth first", "hashes of states", "one bit a state", "liveness"]

_HOW: Final[dict[Search, str]] = {
    "every state": "exhaustive",
    "breadth first": "breadth first to the shortest story",
    "hashes of states": "states told apart by a 64-bit hash: nearly exhaustive",
    "one bit a state": "bitstate: NOT exhaustive",
    "liveness": "exhaustive, cycles under weak fairness",
}


@final
@dataclass(frozen=True)
class Variant:
    """The protocol with some switches, and whether it is to hold. ``group``: ``quick`` takes part in the gate, ``long`` only when asked."""

    name: str
    safe: bool
    switches: tuple[str, ...]
    bounds: tuple[str, ...]
    search: Search
    group: Literal["quick", "whole", "long"]
    timeout_s: int

    def how(self) -> str:
        """How the search looked, in words."""
        return _HOW[self.search]


def _holds(name: str, switches: str, bounds: str, group: Literal["quick", "whole", "long"], search: Search = "every state") -> Variant:
    return Variant(name, True, tuple(switches.split()), tuple(bounds.split()), search, group, 7200 if group == "long" else 3600)


def _broken(name: str, switches: str, bounds: str = "CONTROLLERS=2") -> Variant:
    """Controllers keep their numbers in a story, so they are not sorted."""
    return Variant(name, False, ("COARSE", "STORY", *switches.split()), tuple(bounds.split()), "breadth first", "quick", 300)


#: Jobs of a launcher that starts one for every call and nothing in the job looks whether it is the first.
_PLAIN: Final = "START_NOT_EXCLUSIVE PROCESS_NOT_EXCLUSIVE"

#: The quick ones first: in seconds, inside the gate.
VARIANTS: Final = (
    _holds("create or get, two controllers", "COARSE", "CONTROLLERS=2 CAUSES=1", "quick"),
    _holds("a one-shot intent, two controllers", f"COARSE ONE_SHOT {_PLAIN}", "CONTROLLERS=2 CAUSES=1", "quick"),
    _holds("a one-shot intent goes on", f"COARSE STORY GOES_ON ONE_SHOT {_PLAIN}", "KILLS=1 HOLDS=0 REFUSALS=0", "quick", "liveness"),
    _holds("create or get goes on", "COARSE STORY GOES_ON", "KILLS=1 HOLDS=0 REFUSALS=0", "quick", "liveness"),
    _broken("witness: a trainer runs", "WITNESS_FIRST"),
    _broken("witness: an intent that was never launched is lost and relaunched", f"WITNESS_RELAUNCH ONE_SHOT {_PLAIN}"),
    _broken("query, then launch", f"QUERY_FIRST {_PLAIN} NO_LOCK", "LINES=2"),
    _broken("a lease without fencing", f"LEASES {_PLAIN} NO_LOCK", "LINES=2"),
    _broken("uniqueness on the attempt", "KEY_ON_ATTEMPT ONLY_TRAINERS"),
    _broken("launch first", "LAUNCH_FIRST ONLY_TRAINERS"),
    _broken("a relaunch without the fence: the supervisor is stopped and wakes up", "NO_FENCE", "KILLS=0 HOLDS=1 REFUSALS=0"),
    _broken("a relaunch without the fence: the supervisor is killed, its child is late", "NO_FENCE", "KILLS=1 HOLDS=0 REFUSALS=0"),
    _broken("a fence that is not put up under the lock", "FENCE_UNLOCKED"),
    _broken("a fence that is looked for before the lock is taken", "FENCE_BEFORE_LOCK"),
    _broken("a fence that nobody looks for", "FENCE_NOT_CHECKED"),
    _broken("a child without the lock", "NO_LOCK"),
    _broken("no fence behind a refused launch", "NO_FENCE_AFTER_REFUSAL", "KILLS=0 HOLDS=0 REFUSALS=1"),
    _broken("a start that is not exclusive", _PLAIN, "LINES=2"),
    _broken("a key that expires, and an attempt with an outcome dispatched again", f"KEYED DISPATCH_AFTER_OUTCOME {_PLAIN}", "LINES=2"),
    _broken("a key that expires before the outcome is recorded", f"KEYED KEY_EXPIRES_EARLY {_PLAIN}", "LINES=2"),
    _broken("a key that expires while a call may still come", f"KEYED KEY_EXPIRES_AFTER_OUTCOME {_PLAIN}", "LINES=2"),
    _broken("neither slot nor version", "NO_SLOT NO_VERSION ONLY_TRAINERS"),
    _broken("neither version nor one successor", "NO_VERSION NO_SUCCESSOR_RULE ONLY_TRAINERS", "ATTEMPTS=3"),
    _holds("a key that outlives every call", f"COARSE KEYED {_PLAIN}", "ATTEMPTS=1", "quick"),
    _holds("a cancellation that every controller carries out", "COARSE PERSON=1", "ATTEMPTS=1", "quick"),
    _broken(
        "a cancellation that only its command carries out, and the command is killed",
        "PERSON=1 CANCELLED_UNBARRED",
        "KILLS=1 HOLDS=0 REFUSALS=0 ATTEMPTS=1",
    ),
    _holds("create or get, three controllers", "COARSE", "CONTROLLERS=3", "whole"),
    _holds("a one-shot intent, three controllers", f"COARSE ONE_SHOT {_PLAIN}", "CONTROLLERS=3", "whole"),
    _holds("create or get, two controllers, every single step", "", "CONTROLLERS=2", "whole"),
    _holds("create or get, three controllers, each step of supervisors", "COARSE_LOOKS", "CONTROLLERS=3", "long", "hashes of states"),
    _holds("create or get, three controllers, every single step", "", "CONTROLLERS=3", "long", "one bit a state"),
    _holds("create or get, two controllers, three attempts", "COARSE", "CONTROLLERS=2 ATTEMPTS=3 CAUSES=1", "long", "hashes of states"),
)
