"""Which sessions leave a store, as a document, as rows and as lines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from countermark.lines.texts import Document, JsonValue, counted, listed, number, plain
from countermark.sessions.records import Outdated, Rule
from countermark.sessions.times import spell_time

#: So many sessions are named, those to which nothing came for longest.
NAMED_MAX: Final = 50


@final
@dataclass(frozen=True, slots=True)
class Retired:
    """What a rule takes out, or took out where it was ``acted`` upon; how many sessions stay for each sink that still owes something of
    them; and the first of all these."""

    rule: Rule
    acted: bool
    sessions: int
    events: int
    owed: Mapping[str, int]
    first: tuple[Outdated, ...]


def _fate(retired: Retired, session: Outdated) -> str:
    if session.owed and not retired.rule.unsent:
        return f"stays for {listed(map(plain, session.owed))}"
    return "went" if retired.acted else "would go"


def leaving_rows(retired: Retired) -> tuple[tuple[str, str, str, str], ...]:
    """Session, how many events it has, when what happened last in it happened, and what becomes of it."""
    return tuple((plain(each.id), f"{each.events:,}", spell_time(each.last_ns), _fate(retired, each)) for each in retired.first)


def leaving_lines(retired: Retired) -> tuple[str, ...]:
    """What it comes to."""
    lines: list[str] = []
    more = retired.sessions + sum(retired.owed.values()) - len(retired.first)
    if len(retired.first) == NAMED_MAX and more > 0:
        lines.append(f"and {counted(more, 'more session')}")
    what = f"{counted(retired.sessions, 'session')} with {counted(retired.events, 'event')}"
    since = f"in which nothing happened since {spell_time(max(0, retired.rule.before_ns))}"
    end = "went" if retired.acted else "would go; nothing was taken out: --yes does it" if retired.sessions else "would go"
    lines.append(f"{what}, {since}, {end}")
    for sink, sessions in retired.owed.items():
        stay = f"{counted(sessions, 'older session')} {'stays' if sessions == 1 else 'stay'}"
        lines.append(f"{stay}: {plain(sink)} has not sent everything of them yet")
    return tuple(lines)


def leaving_document(retired: Retired) -> Document:
    """The whole of it; ``outdated`` names the first of the sessions alone."""
    first: list[JsonValue] = [
        {"session": each.id, "events": number(each.events), "last": spell_time(each.last_ns), "owed": list(each.owed)}
        for each in retired.first
    ]
    owed: list[JsonValue] = [{"sink": sink, "sessions": number(sessions)} for sink, sessions in retired.owed.items()]
    return {
        "before": spell_time(max(0, retired.rule.before_ns)),
        "dryRun": not retired.acted,
        "sessions": number(retired.sessions),
        "events": number(retired.events),
        "unsent": owed,
        "outdated": first,
    }
