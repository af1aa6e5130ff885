"""Every scenario file is played, and what is concluded is what the file says, line for line."""

from typing import get_args

import pytest

from countermark.verdict.kinds import Blocker, Verdict
from tests.scenarios.notation import Told, files, play, read

SCENES = [pytest.param(scene, id=f"{path.stem}: {scene.title}") for path in files() for scene in read(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("scene", SCENES)
def test_what_is_concluded_is_what_the_scenario_says(scene: Told) -> None:
    assert scene.concluded, "a scene says what is concluded"
    assert play(scene.evidence) == scene.concluded


#: The situations that people met in the field, by the number under which they were collected.
CASES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 13, 14, 16, 17, 18, 20, 21, 22, 24, 26, 29, 30)


def decided(scene: Told) -> tuple[str, ...]:
    """What was decided and concluded, without why and what to do about it."""
    return tuple(line for line in scene.concluded if not line.startswith(("next: ", "not yet: ", "not concluded: ", "note: ")))


def lonely(told: dict[str, str]) -> list[str]:
    """The files that have no pair: two scenes or more, of which no two ask or answer the same."""
    found = []
    for name, text in told.items():
        scenes = read(text)
        titles, answers = {scene.title for scene in scenes}, {decided(scene) for scene in scenes}
        asked = {tuple(scene.evidence) for scene in scenes}
        if len(answers) < 2 or len(titles) < len(scenes) or len(asked) < len(scenes):
            found.append(name)
    return found


def test_every_case_has_its_file_and_in_it_a_pair_with_another_answer() -> None:
    told = {path.stem: path.read_text(encoding="utf-8") for path in files()}
    numbered = [int(name[:2]) for name in told if name[:2].isdigit()]
    assert tuple(sorted(numbered)) == CASES
    assert lonely(told) == []


@pytest.mark.parametrize(
    "text",
    [
        "== alone\nc: A1(claim)\n->\nLost: x\n",
        "== a\nc: A1(claim)\n->\nLost: x\n== b\nc: A2(claim)\n->\nLost: x\nnext: y\n",
        "== a\nc: A1(claim)\n->\nLost: x\n== a\nc: A2(claim)\n->\nRetryRequired: x\n",
        "== a\nc: A1(claim)\n->\nLost: x\n== b\nc: A1(claim)\n->\nRetryRequired: x\n",
    ],
)
def test_a_scene_without_its_pair_is_found(text: str) -> None:
    assert lonely({"alone": text}) == ["alone"]


def test_every_verdict_and_every_blocker_stands_in_a_scenario() -> None:
    told = "\n".join(line for path in files() for scene in read(path.read_text(encoding="utf-8")) for line in scene.concluded)
    assert [arm.__name__ for arm in get_args(Verdict) if f"\n{arm.__name__}: " not in told] == []
    assert [kind.__name__ for kind in get_args(Blocker) if f"\nblocked: {kind.__name__}: " not in told] == []
    assert [effect for effect in EFFECTS if effect not in told] == []


EFFECTS = (
    "; this settles: ",
    "; this alone does not settle: ",
    "; it stands, though this is not to be seen now: ",
    "; a later ruling took its",
)


@pytest.mark.parametrize(
    "line",
    [
        "c: A1",
        "c: A1(lost)",
        "T: A1 ok",
        "T: {A1 great}",
        "P: {A1}",
        "M: {A1 speed=3}",
        "nothing",
        "claim: initial",
        "K: {A1 s1 torn}",
        "ruled: A1 set aside by ada",
        "dispatch: twice",
    ],
)
def test_a_line_that_says_nothing_is_no_evidence(line: str) -> None:
    with pytest.raises((AssertionError, KeyError, IndexError, ValueError)):
        play(["c: A1(dispatched)", line])
