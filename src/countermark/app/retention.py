"""Retention: the sessions that are older than somebody wants to keep, looked at, and taken out where that was said.

Rules kept here:

1. A session is as old as what happened last in it, and goes only after nothing came to it for a day: what is sent again, or imported late,
   is there to be seen for that long, and then goes by the rule by which it went before.
2. What a sink still owes to somebody stays.
3. Looking and taking out are the same walk, so that what is told is what would go.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from countermark.lines.leaving import NAMED_MAX, Retired
from countermark.sessions.records import Outdated, Rule, SessionCursor
from countermark.store.sessions.interface import Forgotten, SessionStore

_DAY_NS: Final = 86_400 * 10**9


def rule_of(keep_days: int, now_ns: int, unsent: bool = False) -> Rule:
    """The rule of keeping sessions for so many days (1 or more)."""
    return Rule(now_ns - keep_days * _DAY_NS, now_ns - _DAY_NS, unsent)


def retire(store: SessionStore, rule: Rule, act: bool, between: Callable[[Forgotten], object] = lambda forgotten: None) -> Retired:
    """Look for what a rule takes out, and where ``act``, take it out; ``between`` is told after each transaction what went in all. Raises
    ``StoreError``."""
    gone = Forgotten(0, 0)
    owed: Counter[str] = Counter()
    first: list[Outdated] = []
    after: SessionCursor | None = None

    def so_far(forgotten: Forgotten) -> None:
        between(Forgotten(gone.sessions + forgotten.sessions, gone.events + forgotten.events))

    while True:
        page = store.outdated(rule, after)
        first += page.items[: NAMED_MAX - len(first)]
        going = [each for each in page.items if rule.unsent or not each.owed]
        owed.update(sink for each in page.items if not rule.unsent for sink in each.owed)
        more = Forgotten(len(going), sum(each.events for each in going))
        if act:
            more = store.forget([each.id for each in going], rule, so_far)
        gone = Forgotten(gone.sessions + more.sessions, gone.events + more.events)
        if (after := page.next) is None:
            return Retired(rule, act, gone.sessions, gone.events, dict(sorted(owed.items())), tuple(first))
