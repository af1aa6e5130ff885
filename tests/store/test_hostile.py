"""Ids and prefixes that no store holds are answered like any other that is absent, on every kind of store: no text reaches a database that
it would refuse to be asked for."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from countermark.run.claims import Adjudication, SetAside
from countermark.run.records import FieldUnwritable, RunUnknown, StoredVerdict, SweepUnknown
from countermark.store import Store, rows
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.run.examples import key, transition
from tests.store.examples import RUN, loaded, recorded

#: NUL, lone surrogates as stray bytes give them, other letters, wildcards, quotes, nothing, and a text as large as a model.
TEXTS = [
    "\0",
    f"{RUN}\0",
    "\udcff",
    f"{RUN[:31]}\ud800",
    "ſ",
    "İ" * 32,
    "%",
    "_" * 32,
    "'; DROP TABLE runs; --",
    "",
    "x" * 2**24,
    "f" * 2**24,
]
NAMES = [
    "NUL",
    "NUL behind an id",
    "stray byte",
    "surrogate",
    "long s",
    "dotted I",
    "percent",
    "underscores",
    "quote",
    "empty",
    "huge",
    "huge hex",
]


def everything_is_askable() -> AbstractContextManager[object]:
    """A store that hands any text on to its database."""
    return planted(rows, "is_askable", lambda text: True)()


def answer(act: Callable[[], object]) -> object:
    """What a call gives; an exception of the driver's is no answer."""
    try:
        return act()
    except (ValueError, UnicodeError) as error:
        return error


def asked(store: Store, text: str) -> dict[str, object]:
    """Every call that takes an id."""
    calls: dict[str, Callable[[], object]] = {
        "load_run": lambda: store.load_run(text),
        "claim_start": lambda: store.claim_start(text, 0, transition(), key(1), 1),
        "cancel": lambda: store.cancel(text, "ada", 1),
        "abandon": lambda: store.abandon(text, key(1), "ada", 1),
        "adjudicate": lambda: store.adjudicate(text, Adjudication(key(1), SetAside(), ("b",), "ada", "", 1)),
        "look_again": lambda: store.look_again(text, 1),
        "record_sweep": lambda: store.record_sweep(text, "s1", b"{}", 1, 2),
        "latest_sweep": lambda: store.latest_sweep(text),
        "load_sweep": lambda: store.load_sweep(text),
        "record_verdict": lambda: store.record_verdict(text, StoredVerdict("Lost", False, 0, b"")),
        "verdicts": lambda: store.verdicts(text),
    }
    return {name: answer(act) for name, act in calls.items()}


def absent(text: str) -> dict[str, object]:
    run, sweep = Refused(NonEmpty(RunUnknown(text))), Refused(NonEmpty(SweepUnknown(text)))
    of_a_run = ("load_run", "claim_start", "cancel", "abandon", "adjudicate", "record_sweep")
    return dict.fromkeys(of_a_run, run) | {
        "look_again": None,
        "latest_sweep": None,
        "load_sweep": sweep,
        "record_verdict": sweep,
        "verdicts": (),
    }


@pytest.mark.parametrize("text", TEXTS, ids=NAMES)
def test_an_id_that_nothing_has_is_absent_from_every_call(store: Store, text: str) -> None:
    recorded(store)
    found = asked(store, text)
    wanted = absent(text)
    assert [name for name, given in found.items() if given != wanted[name]] == []
    assert loaded(store).ledger.version == 0
    assert store.check() == ()


@proven_by(everything_is_askable)
@pytest.mark.parametrize("text", ["\udcff", f"{RUN[:31]}\ud800"], ids=["stray byte", "surrogate"])
def test_a_text_that_no_database_takes_never_reaches_one(store: Store, text: str) -> None:
    recorded(store)
    assert asked(store, text) == absent(text)


@pytest.mark.parametrize("text", TEXTS, ids=NAMES)
def test_a_prefix_that_nothing_begins_with_finds_nothing(store: Store, text: str) -> None:
    recorded(store)
    store.claim_start(RUN, 0, transition(), key(1), 1)
    store.record_sweep(RUN, "s1", b"{}", 1, 2)
    found = (len(store.find_runs(text)), len(store.find_attempt(text)), len(store.find_sweeps(text)))
    assert found == ((1, 1, 1) if text == "" else (0, 0, 0))


@pytest.mark.parametrize("text", [each for each in TEXTS if each], ids=[name for name in NAMES if name != "empty"])
def test_a_sweep_under_no_short_name_is_refused(store: Store, text: str) -> None:
    recorded(store)
    refused = store.record_sweep(RUN, text, b"{}", 1, 2)
    assert isinstance(refused, Refused)
    assert [type(each) for each in refused.defects] == [FieldUnwritable]
