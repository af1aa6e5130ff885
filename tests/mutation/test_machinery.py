"""A short share of ``make mutation``: a few changes of the heart, made by mutmut, each of which must turn some plain test red."""

import inspect
import types
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.evidence import test_composition, test_cut
from tests.mutation.living import first_red, honest, living, mutants_of
from tests.mutation.rooms import LIST, Change, Judged, Mutant, objections, read_list, room_of, runs, score
from tests.recipe import test_canonical, test_work
from tests.run import test_attempts, test_checkpoint, test_claims, test_dispatch, test_records
from tests.verdict import test_blockers, test_edges, test_join, test_rulings, test_verdicts

VERDICT = (test_edges, test_join, test_rulings, test_blockers, test_verdicts)
#: File, function, what is changed into what, and the tests that are asked.
FEW = [
    ("run/claims.py", "admit_start_claim", "slot() == slot", "slot() != slot", (test_claims,)),
    ("run/claims.py", "admit_start_claim", "version != snapshot", "version == snapshot", (test_claims,)),
    ("run/claims.py", "admit_start_claim", "version + 1", "version + 2", (test_claims,)),
    ("run/claims.py", "_claim_defects", "work or candidate", "work and candidate", (test_claims,)),
    ("run/claims.py", "compose_control", "times > 1", "times >= 1", (test_claims,)),
    ("run/claims.py", "Transition.slot", '"countermark/slot/1"', '"COUNTERMARK/SLOT/1"', (test_claims,)),
    ("run/dispatch.py", "admit_dispatch_outcome", ") <= strength", ") < strength", (test_dispatch,)),
    ("run/dispatch.py", "admit_dispatch_intent", "intent.launcher or", "intent.launcher and", (test_dispatch,)),
    ("run/attempts.py", "admit_attempt_graph", "[place] > 1", "[place] >= 1", (test_attempts,)),
    ("run/attempts.py", "Nonce.read", "return cls(raw)", "return cls(None)", (test_attempts,)),
    ("evidence/cut.py", "ObservationCut.order", "[earlier] < ", "[earlier] <= ", (test_cut,)),
    ("evidence/composition.py", "EvidenceComposition.order", "self.subject", "None", (test_composition,)),
    ("run/checkpoint.py", "sound_checkpoint", "vouched and", "vouched or", (test_checkpoint,)),
    ("run/records.py", "bounded", "<=", "<", (test_records,)),
    ("recipe/work.py", "key_material", '("domain"', '("XXdomainXX"', (test_work,)),
    ("recipe/work.py", "WorkKey.read", "not key.startswith", "key.startswith", (test_work,)),
    ("recipe/canonical.py", "length_prefixed", "to_bytes(8", "to_bytes(9", (test_work,)),
    ("recipe/canonical.py", "_is_double", "<= 70", "< 70", (test_canonical,)),
    ("recipe/canonical.py", "_write", "depth > DEPTH_MAX", "depth >= DEPTH_MAX", (test_canonical,)),
    ("verdict/sweep.py", "conclude", "(graph, Refused) or", "(graph, Refused) and", VERDICT),
    ("verdict/places.py", "_after_launch", "ordered and _grace", "ordered or _grace", VERDICT),
    ("verdict/standing.py", "process_blockers", "len(live) > 1", "len(live) >= 1", VERDICT),
    ("verdict/rulings.py", "said_one_thing", "source == source", "source != source", VERDICT),
    ("verdict/fold.py", "followed_from", "visited.add(step)", "visited.add(None)", VERDICT),
    ("verdict/reconcile.py", "_verdict", "stirring() and not", "stirring() or not", VERDICT),
]
#: Three of the list of survivors: they change nothing, so the same judge must find nothing.
NOTHING_CHANGES = [
    ("run/attempts.py", "predecessor_of", test_attempts),
    ("recipe/canonical.py", "_is_double", test_canonical),
    ("recipe/canonical.py", "length_prefixed", test_work),
]


def change(file: str, function: str, old: str, new: str) -> Change:
    found = [each for each in mutants_of(file) if each.function == function and each.out.replace(old, new, 1) == each.into != each.out]
    assert len(found) == 1, f"{file} {function}: {len(found)} mutants put {new} in the place of {old}: name another change"
    return found[0]


@cache
def plain(module: types.ModuleType) -> list[Callable[[], None]]:
    """The tests of a module that ask for nothing and draw nothing, those that time something left out."""
    found: list[Callable[[], None]] = []
    for name, test in vars(module).items():
        if name.startswith("test_") and inspect.isfunction(test) and not inspect.signature(test).parameters and "linear_time" not in name:
            found.append(test)
    return found


@pytest.mark.parametrize(("file", "function", "old", "new", "modules"), FEW, ids=lambda each: each if isinstance(each, str) else "")
def test_a_change_of_the_heart_is_noticed(file: str, function: str, old: str, new: str, modules: tuple[Any, ...]) -> None:
    controls = [test for module in modules for test in plain(module)]
    mutant = change(file, function, old, new)
    with living(mutant):
        assert first_red(controls) is not None
    assert honest(mutant).__code__.co_name == function.rpartition(".")[2]


def test_nothing_is_noticed_where_nothing_changes() -> None:
    for module in dict.fromkeys(module for *_, modules in FEW for module in modules):
        assert plain(module)
        assert first_red(plain(module)) is None
    listed = read_list(LIST.read_text(encoding="utf-8"))
    for file, function, module in NOTHING_CHANGES:
        survivor = next(each.change for each in listed if (each.change.file, each.change.function) == (file, function))
        with living(survivor):
            assert first_red(plain(module)) is None


def test_the_list_holds_changes_that_can_be_made_and_none_other() -> None:
    for judged in read_list(LIST.read_text(encoding="utf-8")):
        assert judged.change in mutants_of(judged.change.file), judged.change


# --------------------------------------------------------------------------------------------------------- the figures


def of(file: str, number: int) -> Change:
    return Change(file, "f", f"line {number}", "None")


def mutants(file: str, died: int, alive: int = 0, undecided: int = 0) -> tuple[Mutant, ...]:
    fates: list[bool | None] = [True] * died + [False] * alive + [None] * undecided
    return tuple(Mutant(f"{file}{number}", of(file, number), fate) for number, fate in enumerate(fates))


#: Every room with a floor keeps it, and one without is far below.
GOOD = (
    *mutants("verdict/fold.py", 19, 1),
    *(
        each
        for file in ("run/claims.py", "evidence/cut.py", "run/demand.py", "recipe/work.py", "recipe/sums.py", "values.py")
        for each in mutants(file, 20)
    ),
    *mutants("weights/root.py", 1, 9),
)
WHY = (Judged(of("verdict/fold.py", 19), "a word to the checkers"),)


def test_each_file_is_of_one_room() -> None:
    rooms = [
        room_of(file)
        for file in ("verdict/fold.py", "run/claims.py", "run/demand.py", "recipe/canonical.py", "recipe/sums.py", "values.py")
    ]
    assert rooms == ["verdict", "claims", "run", "key", "recipe", "values"]


def test_what_a_cast_says_to_the_type_checkers_is_no_mutant() -> None:
    before = 'f(cast("list[int]", one), cast(_Table, two))'
    for after in (before.replace('"list[int]"', "None"), before.replace("_Table", "None"), before.replace("list[int]", "LIST[INT]")):
        assert not runs(Change("values.py", "f", before, after))
    for after in (before.replace("one", "None"), before.replace("_Table, two", "two"), before.replace("f(", "g(")):
        assert runs(Change("values.py", "f", before, after))


def test_a_score_counts_what_died_among_what_was_decided() -> None:
    figures = score(mutants("verdict/fold.py", 18, 2, 5), WHY)
    assert (figures.total, figures.died, figures.judged, figures.unjudged, figures.undecided) == (25, 18, 1, 1, 5)
    assert figures.percent == 90.0


def test_the_floor_and_the_list_are_kept_or_named() -> None:
    assert objections(GOOD, WHY) == ()
    assert objections(GOOD, ()) == (f"verdict: lives and is not on the list: {of('verdict/fold.py', 19)}",)
    low = (*GOOD, *mutants("verdict/places.py", 0, 1))
    both = (*WHY, Judged(of("verdict/places.py", 0), "the same"))
    assert objections(low, both) == ("verdict: 90.5 % of the mutants die; 95 % are the floor",)
    late = (*GOOD, *mutants("recipe/canonical.py", 0, 0, 2))
    assert objections(late, WHY) == ("key: 2 mutants are undecided",)
    old = (*WHY, Judged(of("run/claims.py", 3), "it died since"))
    assert objections(GOOD, old) == (f"on the list, and no surviving mutant is it: {of('run/claims.py', 3)}",)
    assert objections(tuple(each for each in GOOD if each.change.file != "recipe/work.py"), WHY) == ("key: there is no mutant",)
    together = objections((*low, *mutants("recipe/canonical.py", 0, 0, 2)), ())
    assert len(together) == 4


@pytest.mark.parametrize(
    "entry",
    ['out = "a"\ninto = ["b"]\nwhy = "c"', 'in = "f g"\nout = "a"\ninto = []\nwhy = "c"', 'in = "f g"\nout = "a"\ninto = ["b"]\nwhy = " "'],
)
def test_an_entry_of_the_list_is_whole(entry: str) -> None:
    with pytest.raises(ValueError, match="an entry has in, out, into"):
        read_list(f"[[survivor]]\n{entry}\n")


def test_a_change_is_listed_once() -> None:
    entry = '[[survivor]]\nin = "f g"\nout = "a"\ninto = ["b"]\nwhy = "c"\n'
    assert read_list(entry) == (Judged(Change("f", "g", "a", "b"), "c"),)
    with pytest.raises(ValueError, match="listed twice"):
        read_list(entry * 2)
