"""Without Spin or gcc no test passes in silence."""

import shutil

import pytest

from tests.models.spin import MISSING, need_spin


@pytest.mark.parametrize("absent", ["spin", "gcc"])
@pytest.mark.parametrize("needed", [False, True])
def test_a_missing_tool_skips_aloud_and_fails_where_every_test_must_run(absent: str, needed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == absent else f"/usr/bin/{tool}")
    if needed:
        monkeypatch.setenv("TESTS_NEED_SPIN", "1")
    else:
        monkeypatch.delenv("TESTS_NEED_SPIN", raising=False)
    with pytest.raises(pytest.fail.Exception if needed else pytest.skip.Exception) as ended:
        need_spin()
    assert str(ended.value) == MISSING


def test_where_both_tools_are_there_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: f"/usr/bin/{tool}")
    need_spin()
