"""The persons of a simulated history: what they may ask for, each once, through the program's own operations.

Rule kept here: a person may believe a liar and give up what lives. What follows from that is theirs; that nothing else follows is judged.
"""

from collections.abc import Callable
from typing import Any, Final

from countermark.app import deciding, ruling
from countermark.run.claims import BelieveSource, SetAside
from countermark.verdict.kinds import Blocked
from tests.simulation.ledger import RUN
from tests.simulation.ports import SimPorts
from tests.simulation.world import Actor, World

WISHES: Final = ("reexecute", "retry", "resume", "abandon", "escalate", "cancel", "set aside", "believe")
#: Whom a person believes: one that tells the truth of what it knows, one that lies where a history says so, one that may say nothing.
SOURCES: Final = ("supervisor", "supervisor", "launcher", "scheduler")


def person(world: World, wish: str, number: int) -> Callable[[Actor], None]:
    """Ask for one thing, once, and be gone."""

    def body(actor: Actor) -> None:
        ports: Any = SimPorts(world, actor.host)
        answer = _asked(ports, world, wish, number, actor.name)
        if world.trace is not None:
            world.say(f"is told: {answer}")

    return body


def _asked(ports: Any, world: World, wish: str, number: int, by: str) -> object:
    claims = world.store.ledger.claims
    # Half of those who rule name the attempt, as one has to where conflicts are about several.
    named = claims[number % len(claims)].attempt.nonce.hex if claims else None
    match wish:
        case "reexecute":
            return deciding.reexecute_run(ports, RUN, None, by)
        case "retry":
            return deciding.retry_run(ports, RUN, None, False, by)
        case "resume":
            return deciding.resume_run(ports, RUN, None, by)
        case "abandon":
            return "there is nothing to give up" if named is None else deciding.abandon_attempt(ports, named, by)
        case "escalate":
            return deciding.retry_run(ports, RUN, "memory", True, by)
        case "cancel":
            return deciding.cancel_run(ports, RUN, by)
        case "set aside":
            return ruling.adjudicate(ports, RUN, named if number % 2 else None, SetAside(), "seen", by)
        case other:
            assert other == "believe"
            return ruling.adjudicate(ports, RUN, named if number % 2 else None, BelieveSource(SOURCES[number]), "seen", by)


def ask(world: World, wish: str) -> Actor:
    """A person comes and asks for something."""
    host = world.hosts[world.choices.pick(len(world.hosts))]
    actor = Actor(f"person {world.new_id()}@{host.name} ({wish})", host, person(world, wish, world.choices.pick(len(SOURCES))))
    world.actors.append(actor)
    world.figures[f"asked: {wish}"] += 1
    return actor


def called_at_the_end(world: World, verdict: object) -> str:
    """What the person asks for on whom a run at rest waits: to end it, or to rule on what blocks it."""
    if not isinstance(verdict, Blocked):
        return "cancel"
    return ("set aside", "believe", "cancel")[world.choices.pick(3)]
