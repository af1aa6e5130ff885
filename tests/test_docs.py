"""Documents are held to what exists: links lead somewhere, commands exist, lists are complete."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, get_args

import pytest

from countermark.cli import reference
from countermark.cli.roster import ENTRIES
from countermark.cli.settings import ROSTER as SETTINGS
from countermark.lines.defects import CODES
from countermark.recipe import ROSTER
from countermark.sessions.events import TYPES
from countermark.sessions.filters.keys import KEYS as FILTER_KEYS
from countermark.sessions.fold import TAGS
from countermark.verdict.kinds import Blocker, Verdict, WhyNot
from tests.faults import planted, proven_by
from tests.test_tidy import texts

ROOT: Final = Path(__file__).resolve().parent.parent
_HEADING: Final = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
_LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
_FENCE: Final = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND: Final = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?countermark((?: [a-z][a-z-]*)+)", re.MULTILINE)
_MAKE: Final = re.compile(r"(?:^|^\$ |`|&& )make ([a-z][a-z-]*)", re.MULTILINE)


def pages() -> dict[str, str]:
    """Path → text of every page in markdown."""
    return {path: text for path, text in texts(ROOT).items() if path.endswith(".md")}


def headings(text: str) -> list[str]:
    """The headings of a page outside its code blocks, without marks for code."""
    return [heading.replace("`", "") for heading in _HEADING.findall(_FENCE.sub("", text))]


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get where repositories are shown."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(text)}


def without_heading(names: Iterable[str], text: str) -> list[str]:
    """The names that have no heading of their own on a page, in their order."""
    found = set(headings(text))
    return [name for name in names if name not in found]


def broken_links(files: dict[str, str], folder: Path) -> list[str]:
    """Links to files or headings that don't exist, as ``page: link``; links that leave the repository are not followed."""
    broken = []
    for path, text in files.items():
        for match in _LINK.finditer(_FENCE.sub("", text)):
            link = match[1] or match[2]
            name, _, anchor = link.partition("#")
            target = (folder / path).parent / name if name else folder / path
            if re.match(r"[a-z]+:", link):
                continue
            if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
                broken.append(f"{path}: {link}")
    return broken


def unknown_commands(text: str, known: set[str]) -> list[str]:
    """The command lines in a page's code blocks that begin with no known command (``run``, ``manifest diff``), in their order.

    Words after a command may be its arguments, so the longest known beginning counts.
    """
    lines = [words.strip() for block in _FENCE.findall(text) for words in _COMMAND.findall(block)]
    return [line for line in lines if not any(f"{line} ".startswith(f"{command} ") for command in known)]


def targets(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.MULTILINE))


def test_links_lead_somewhere() -> None:
    assert broken_links(pages(), ROOT) == []


def test_make_targets_that_a_page_names_exist() -> None:
    known = targets((ROOT / "Makefile").read_text(encoding="utf-8"))
    named = {(path, target) for path, text in pages().items() for target in _MAKE.findall(text)}
    assert {target for _, target in named} >= {"test", "demo"}
    assert sorted((path, target) for path, target in named if target not in known) == []


def test_every_make_target_says_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert sorted(targets(makefile) - set(re.findall(r"^([a-z][a-z-]*):.*## \w", makefile, re.MULTILINE))) == []


def test_decisions_are_numbered_without_gaps_and_titled_by_their_number() -> None:
    found = {path: text for path, text in pages().items() if path.startswith("docs/decisions/")}
    numbers = [int(Path(path).name[:4]) for path in found]
    assert numbers == list(range(1, len(found) + 1))
    wrong = [path for path, text in found.items() if not text.startswith(f"# {int(Path(path).name[:4])}. ")]
    assert wrong == []


def test_the_glossary_names_each_noun_once() -> None:
    nouns = re.findall(r"^\*\*([^*]+)\.\*\*", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(nouns) > 40
    assert sorted(noun for noun in set(nouns) if nouns.count(noun) > 1) == []


#: Each reference page, and the roster of which every name has its heading there.
ROSTERS: Final = {
    "commands.md": [entry.name for entry in ENTRIES],
    "coordinates.md": list(ROSTER),
    "defects.md": list(CODES),
    "events.md": [*(f"type: {name}" for name in TYPES), *(f"tag: {tag}" for tag in TAGS)],
    "filter-keys.md": [f"{key.subject}: {key.name}" for key in FILTER_KEYS],
    "settings.md": [setting.name for setting in SETTINGS],
    "verdicts.md": [kind.__name__ for kind in (*get_args(Verdict), *get_args(Blocker), *get_args(WhyNot))],
}


@pytest.mark.parametrize("name", ROSTERS)
def test_every_name_of_a_roster_has_its_heading(name: str) -> None:
    page = (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
    assert without_heading(ROSTERS[name], page) == []
    assert len(ROSTERS[name]) > 5


@proven_by(planted(reference, "_GENERATED", "<!-- by hand -->"))
def test_the_reference_pages_are_what_the_program_says_now() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs/reference").glob("*.md")}
    stale = sorted(name for name, text in reference.pages().items() if written.get(name) != text)
    assert stale == [], "write them again: make docs"
    assert written.keys() == ROSTERS.keys()


PAGE: Final = """# One

[here](two.md) [there](#one) [out](https://example.org/x) ![picture](p.svg)
[torn](gone.md) [lost](two.md#nowhere) [kept](two.md#the-second-heading)

```
# not a heading
[not a link](gone.md)
```

## `three four`
"""


def test_a_broken_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "two.md").write_text("## The *second* heading\n", encoding="utf-8")
    (tmp_path / "one.md").write_text(PAGE, encoding="utf-8")
    assert broken_links({"one.md": PAGE}, tmp_path) == ["one.md: p.svg", "one.md: gone.md", "one.md: two.md#nowhere"]


def test_a_name_without_a_heading_is_named() -> None:
    assert headings(PAGE) == ["One", "three four"]
    assert without_heading(["One", "three", "three four", "not a heading"], PAGE) == ["three", "not a heading"]


def test_a_command_that_does_not_exist_is_named() -> None:
    text = "countermark gone\n```console\n$ countermark manifest diff a b\n$ countermark manifest\ncountermark runs  # all\n```\n"
    assert unknown_commands(text, {"manifest diff", "run", "gone"}) == ["manifest", "runs"]


@pytest.mark.parametrize(("text", "found"), [("`make x` and\nmake y\n$ make z\n", ["x", "y", "z"]), ("they make sense, to make it so", [])])
def test_make_targets_are_read_from_code_only(text: str, found: list[str]) -> None:
    assert _MAKE.findall(text) == found
