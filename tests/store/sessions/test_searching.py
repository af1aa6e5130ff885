"""Events are found by the words in their texts, and sessions by filters: the same on every store, whatever a person types."""

import pytest

from countermark.sessions import words
from countermark.sessions.filters.binding import read_where
from countermark.sessions.filters.condition import Where
from countermark.sessions.records import Rule
from countermark.sessions.words import WORD_LENGTH_MAX
from countermark.store.sessions.interface import Forgotten, SessionStore
from countermark.values import Refused
from tests.faults import planted, proven_by
from tests.store.sessions.examples import NOW, chat, edit, event, found

TEXTS = {
    "dotted": "layers.0.w: written by a:b",
    "loud": "STRASSE straße İstanbul",
    "quotes": 'it\'s "quoted" AND near/2 -not * ^col:on',
    "foreign": "данные 重み データ 1e-5",
    "long": "x" * 250 + " end",
    "signs": "\n\t\\ <b>%_</b>",
}
ASKED = {
    "layers.0.w": ["dotted"],
    "w 0 LAYERS": ["dotted"],
    "a:b": ["dotted"],
    "layers.1.w": [],
    "layer": [],
    "straße": ["loud"],
    "Strasse": ["loud"],
    "İSTANBUL": ["loud"],
    '"quoted"': ["quotes"],
    "AND": ["quotes"],
    "NOT": ["quotes"],
    "quoted OR nothing": [],
    "col:on": ["quotes"],
    "near/2": ["quotes"],
    "ДАННЫЕ": ["foreign"],
    "重み データ": ["foreign"],
    "重": [],
    "1e": ["foreign"],
    "x" * 250: ["long"],
    "x" * 251: [],
    "b": ["signs", "dotted"],
    "nothing": [],
    "": [],
    " .:-_*\"'%\0\ud800": [],
    " ".join(f"w{number}" for number in range(3_000)): [],
}


@pytest.fixture
def searched(store: SessionStore) -> SessionStore:
    store.ingest([event(name, {"kept as a key": text, "deep": [{"n": 1}, "deep down"]}) for name, text in TEXTS.items()])
    return store


@proven_by(planted(words, "words_of", lambda text: tuple(text.split())))
def test_an_events_words_are_its_runs_of_letters_and_digits() -> None:
    assert words.event_words(event("e-1", {"a": "layers.0.w, Layers"}, source="svc-1")) == ("svc", "1", "s", "main", "layers", "0", "w")


def test_every_word_must_be_there_and_no_sign_means_anything(searched: SessionStore) -> None:
    assert {asked: found(searched, asked) for asked in ASKED} == ASKED


def test_names_sources_and_texts_within_texts_are_found_and_keys_are_not(searched: SessionStore) -> None:
    searched.ingest([event("e-1", {"a": 7}, name="fine.tune", source="host-7", session="talk/é")])
    assert [found(searched, asked) for asked in ("tune fine", "HOST 7", "talk É", "deep down", "kept")] == [
        ["e-1"],
        ["e-1"],
        ["e-1"],
        list(reversed(TEXTS)),
        [],
    ]


def test_a_long_word_is_found_whole_or_not_at_all_and_the_pages_are_one_list(store: SessionStore) -> None:
    store.ingest([event(f"e-{number}", {"t": "same " + "y" * (WORD_LENGTH_MAX + number)}) for number in range(7)])
    assert found(store, "y" * (WORD_LENGTH_MAX + 3)) == ["e-3"]
    first = store.search("same", limit=4)
    assert first.next is not None
    rest = store.search("same", limit=4, before=first.next)
    assert [each.event.id for page in (first, rest) for each in page.items] == [f"e-{number}" for number in range(6, -1, -1)]
    assert rest.next is None


def where(text: str) -> Where:
    read = read_where(text, "sessions")
    assert isinstance(read, Where), read
    return read


def test_filters_see_what_the_fold_says(store: SessionStore) -> None:
    digest = "a" * 64
    store.ingest([edit("e-1", "w", 2**63 - 1, session="s-edited"), edit("e-2", "v", 2**63 - 1, session="s-edited", source="svc")])
    store.ingest([chat("c-1", "r", 70, session="s-chat"), event("x", {}, "end", session="s-chat", received_ns=NOW + 1)])
    store.ingest(
        [edit("e-3", "w", 0, said={"checkpoint_after": digest}, session="s-linked"), event("e-3", {"other": 1}, session="s-linked")]
    )
    asked = {
        "weights.edits > 0 and tag = 'weights:edited'": ["s-linked", "s-edited"],
        f"weights.changed = {2 * (2**63 - 1)} and weights.tensors = 2": ["s-edited"],
        "tokens.input = 70 and cost = 0.25 and messages = 1": ["s-chat"],
        "closed = true": ["s-chat"],
        f"checkpoint.after = '{digest}'": ["s-linked"],
        "conflicts = 1": ["s-linked"],
        "source = 'svc'": ["s-edited"],
        "source = ''": ["s-chat", "s-linked"],
        "started >= '2026-11-01' and updated < '2027-01-01'": ["s-chat", "s-linked", "s-edited"],
        "id != 's-chat' and not tag = 'weights:edited'": [],
    }
    assert {text: [listed.id for listed in store.sessions(where(text)).items] for text in asked} == asked
    page = store.sessions(where("weights.edits > 0"), limit=1)
    assert [listed.id for listed in store.sessions(where("weights.edits > 0"), limit=1, after=page.next).items] == ["s-edited"]


def test_a_filter_over_something_else_is_a_mistake(store: SessionStore) -> None:
    runs = read_where("recipe = 'x'", "runs")
    assert isinstance(runs, Where)
    with pytest.raises(ValueError, match="runs"):
        store.sessions(runs)


@pytest.mark.parametrize("text", ["", "a\0b-cdefgh", "\ud800-abcdefg", "x" * 600, "'; DROP TABLE events; --"])
def test_what_nothing_is_called_is_found_nowhere(store: SessionStore, text: str) -> None:
    store.ingest([event("e-1")])
    assert (store.events(text).total, store.conflicts(text), store.edited(text), store.tail(0, session=text)) == (0, (), (), ())
    assert store.forget([text]) == Forgotten(0, 0)
    assert isinstance(store.session(text), Refused)


def test_numbers_beyond_every_row_find_nothing_or_all(store: SessionStore) -> None:
    store.ingest([event("e-1")])
    assert [len(store.tail(after)) for after in (-(2**70), 0, 2**70)] == [1, 1, 0]
    assert [len(store.search("e", before=before).items) for before in (-(2**70), 1, 2**70)] == [0, 0, 1]
    assert [len(store.outdated(Rule(before, before)).items) for before in (-(2**70), 2**70)] == [0, 1]
