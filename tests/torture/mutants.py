"""Controllers and supervisors that are wrong in one known way. Each must double in a storm; where one guard of several is taken away and
the others hold, that is said instead (``held_by``)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, final

from countermark.app import acting
from countermark.launch import local
from countermark.launch.local import Fenced, LocalLauncher
from countermark.run.attempts import AttemptKey, Nonce
from countermark.run.claims import ExecutionClaim, Transition
from tests.app.controller import claims_are_keyed_by_attempt
from tests.torture.scene import PERSONS, RACE, SLEEPERS, Weather


def launched_before_it_is_claimed() -> None:
    """The trainer first, the claim of what runs already after it."""
    honest = acting.start

    def start(ports: Any, record: Any, cause: Any, *more: Any) -> Any:
        demand, nonce = record.ledger.desired.demand, ports.new_nonce()
        attempt = AttemptKey(demand.work, Nonce(nonce))
        claim = ExecutionClaim(Transition(demand.id, demand.work, cause), attempt, record.ledger.version + 1)
        acting._launch(ports, record, claim, None)
        return honest(replace(ports, new_id=lambda: nonce), record, cause, *more)

    acting.start = start


def starts_are_not_looked_for() -> None:
    """The launcher starts a supervisor for a claim that has a start receipt, too."""
    seen = local.present
    local.present = lambda folder, name: name != local.START and seen(folder, name)


def nothing_is_fenced() -> None:
    LocalLauncher.fence = lambda self, nonce: Fenced()  # type: ignore[method-assign]


@final
@dataclass(frozen=True, slots=True)
class Mutant:
    """What is planted where, and the weather in which it shows. ``held_by``: the guard that still holds when only this one is taken away;
    empty where doubles must show. ``launches``: after how many at most it is done, where it is not the storm itself."""

    in_controllers: tuple[Callable[[], None], ...] = ()
    in_supervisors: tuple[str, ...] = ()
    held_by: str = ""
    weather: Weather = RACE
    launches: int = 80


MUTANTS: Final[dict[str, Mutant]] = {
    "": Mutant(held_by="the product", weather=Weather()),
    "none, but persons decide and clocks step": Mutant(held_by="the product", weather=PERSONS, launches=600),
    "key on the attempt": Mutant((claims_are_keyed_by_attempt,)),
    "launch first": Mutant((launched_before_it_is_claimed,)),
    "query first": Mutant((), ("receipts_are_looked_for_first", "lock_is_not_taken")),
    "no lock, no exclusive receipt": Mutant(
        (starts_are_not_looked_for,), ("start_is_not_exclusive", "process_is_not_exclusive", "lock_is_not_taken")
    ),
    "no fence": Mutant((nothing_is_fenced,), weather=SLEEPERS),
    "start receipt not exclusive": Mutant(
        (starts_are_not_looked_for,), ("start_is_not_exclusive",), held_by="the lock and the exclusive process receipt"
    ),
}

WEATHERS: Final[dict[str, Weather]] = {"storm": Weather(), "race": RACE, "sleepers": SLEEPERS, "persons": PERSONS}
