"""Every scenario file is played, and what is concluded is what the file says, line for line."""

import pytest

from tests.scenarios.notation import Told, files, play, read

SCENES = [pytest.param(scene, id=f"{path.stem}: {scene.title}") for path in files() for scene in read(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("scene", SCENES)
def test_what_is_concluded_is_what_the_scenario_says(scene: Told) -> None:
    assert scene.concluded, "a scene says what is concluded"
    assert play(scene.evidence) == scene.concluded


def test_every_file_has_a_case_and_its_pair() -> None:
    assert files()
    for path in files():
        assert len(read(path.read_text(encoding="utf-8"))) >= 2, path.name


@pytest.mark.parametrize(
    "line",
    ["c: A1", "c: A1(lost)", "T: A1 ok", "T: {A1 great}", "P: {A1}", "M: {A1 speed=3}", "nothing", "claim: initial", "K: {A1 s1 torn}"],
)
def test_a_line_that_says_nothing_is_no_evidence(line: str) -> None:
    with pytest.raises((AssertionError, KeyError, IndexError, ValueError)):
        play(["c: A1(dispatched)", line])
