"""The model of the claim protocol, in seconds: what is safe holds, and every broken rule is found out with its story.

The larger searches are ``make models``.
"""

import shutil
from dataclasses import replace

import pytest

from models import check
from models.variants import VARIANTS

QUICK = {variant.name: variant for variant in VARIANTS if variant.group == "quick"}
SAFE = "create or get goes on"
BROKEN = "launch first"

#: What the specification calls unsafe, and in which variants.
UNSAFE = {
    "query-then-launch": ("query, then launch",),
    "leases without fencing": ("a lease without fencing",),
    "uniqueness on the attempt": ("uniqueness on the attempt",),
    "launch-first": ("launch first",),
    "a stopped supervisor that wakes up as a second trainer": (
        "a relaunch without the fence: the supervisor is stopped and wakes up",
        "a fence that is not put up under the lock",
        "a fence that is looked for before the lock is taken",
        "a fence that nobody looks for",
    ),
    "an attempt with an outcome dispatched again": ("a key that expires, and an attempt with an outcome dispatched again",),
}


def told(name: str) -> tuple[str, ...]:
    """The story of a variant that is found out."""
    return check.run(QUICK[name]).story


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("name", QUICK)
def test_each_variant_shows_what_it_is_there_to_show(name: str) -> None:
    found = check.run(QUICK[name])
    assert found.expected_of(QUICK[name]), check.tell(QUICK[name], found)
    assert bool(found.story) == (not QUICK[name].safe)
    assert found.states > 50


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("name", [SAFE, BROKEN])
def test_an_expectation_turned_round_is_no_success(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check, "VARIANTS", (QUICK[name],))
    assert check.main([name]) == 0
    assert capsys.readouterr().out.startswith("ok ")
    monkeypatch.setattr(check, "VARIANTS", (replace(QUICK[name], safe=not QUICK[name].safe),))
    assert check.main([name]) == 1
    assert capsys.readouterr().out.startswith("WRONG ")


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(("limit", "value"), [("DEPTH_MAX", 20), ("MEMORY_MB", 1)])
def test_a_search_that_was_cut_shows_nothing(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    safe = replace(QUICK["create or get, two controllers"], bounds=("KILLS=0", "HOLDS=0", "REFUSALS=0", "CAUSES=1"))
    assert check.run(safe).expected_of(safe)
    monkeypatch.setattr(check, limit, value)
    found = check.run(safe)
    assert (found.broken, found.whole) == ("", False)
    assert not found.expected_of(safe)


@pytest.mark.usefixtures("tools")
def test_a_search_that_takes_too_long_shows_nothing() -> None:
    hasty = replace(QUICK["create or get, two controllers"], timeout_s=0)
    found = check.run(hasty)
    assert (found.broken, found.whole) == ("", False)
    assert check.tell(hasty, found).startswith("WRONG ")


@pytest.mark.usefixtures("tools")
def test_a_stopped_supervisor_wakes_up_beside_the_trainer_that_followed_it() -> None:
    story = told("a relaunch without the fence: the supervisor is stopped and wakes up")
    stopped = story.index("The supervisor of attempt 1 is STOPPED by a signal.")
    assert not any("KILLED" in line for line in story)
    assert {line for line in story[stopped:] if line.endswith(" RUNS.")} == {"COMMAND of attempt 1 RUNS.", "COMMAND of attempt 2 RUNS."}


@pytest.mark.usefixtures("tools")
def test_an_intent_whose_launch_never_came_ends_in_a_relaunch_that_runs() -> None:
    story = told("witness: an intent that was never launched is lost and relaunched")
    assert not any(line.endswith("launches attempt 1.") for line in story)
    fenced = next(number for number, line in enumerate(story) if line.endswith("fences attempt 1."))
    assert any("claims attempt 2, which follows 1." in line for line in story[fenced:])
    assert story[-1] == "COMMAND of attempt 2 RUNS."


@pytest.mark.parametrize("rule", UNSAFE)
def test_the_roster_breaks_every_rule_that_the_specification_names(rule: str) -> None:
    by_name = {variant.name: variant for variant in VARIANTS}
    assert [by_name[name].safe for name in UNSAFE[rule]] == [False] * len(UNSAFE[rule])


def test_both_safe_ways_are_searched_with_three_controllers_and_any_number_of_crashes() -> None:
    three = [variant for variant in VARIANTS if variant.safe and "CONTROLLERS=3" in variant.bounds and variant.search == "every state"]
    unbounded = [variant for variant in three if not any(bound.startswith("KILLS=") for bound in variant.bounds)]
    assert {"ONE_SHOT" in variant.switches for variant in unbounded} == {True, False}


def test_names_are_used_once() -> None:
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)


@pytest.mark.parametrize("absent", ["spin", "gcc"])
def test_a_tool_that_is_missing_is_named(absent: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == absent else f"/usr/bin/{tool}")
    assert check.main([]) == 3
    assert capsys.readouterr().err == f"missing: {absent}; install them: apt-get install spin gcc\n"


def test_a_name_that_no_variant_has_is_refused_with_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: f"/usr/bin/{tool}")
    assert check.main(["nonesuch"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("no variant is called nonesuch; there are: ")
    assert SAFE in said


def groups(arguments: list[str]) -> set[str]:
    """Of which groups variants are chosen."""
    chosen = check.chosen(arguments)
    assert not isinstance(chosen, str)
    return {variant.group for variant in chosen}


def test_the_groups_are_asked_for_by_options() -> None:
    assert groups(["--quick"]) == {"quick"}
    assert groups([]) == {"quick", "whole"}
    assert groups(["--long"]) == {"quick", "whole", "long"}
