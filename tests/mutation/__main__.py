"""``make mutation``: change the heart in thousands of small ways, and see that the tests of its rooms notice.

Rules kept here:

1. The rooms with a floor come first. What was decided is kept in ``mutants/``: broken off, it goes on where it was; a survivor that
   is not on the list is tried again each time; a function that changed is tried anew. ``FRESH=1`` begins from nothing.
2. One mutant at a time: the machine stays usable.
3. Exit 0: the floor is kept and every survivor of the rooms with one is on the list. 1: it is not. 130: broken off.
"""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Final

from mutmut.__main__ import create_mutants, run_stats_collection
from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir, setup_source_paths
from mutmut.workers.isolation import get_mutant_runner

from tests.mutation.rooms import COPY, FLOORED, LIST, ROOMS, ROOT, Mutant, objections, read_list, read_mutants, room_of, score

#: Names handed to one call of mutmut: a call has a start-up of its own, and a list of arguments has an end.
_NAMES_MAX: Final = 2000


def _tests() -> str:
    """A digest of the tests: which of them reach which function is looked up anew when they changed."""
    digest = sha256()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        digest.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _prepare() -> None:
    """The copy with every mutant in it, and which tests reach which function; results of functions that did not change stay."""
    shutil.rmtree(COPY / "tests", ignore_errors=True)
    with contextlib.redirect_stdout(io.StringIO()):
        copy_src_dir()
        copy_also_copy_files()
        setup_source_paths()
        create_mutants(1)
    seen, now = COPY / "tests.sha256", _tests()
    stats = COPY / "mutmut-stats.json"
    if stats.exists() and seen.exists() and seen.read_text() == now:
        return
    stats.unlink(missing_ok=True)
    run_stats_collection(get_mutant_runner(1))
    found = json.loads(stats.read_text(encoding="utf-8"))
    reached: dict[str, list[str]] = found["tests_by_mangled_function_name"]
    found["tests_by_mangled_function_name"] = {name: _own(name, tests) for name, tests in reached.items()}
    stats.write_text(json.dumps(found), encoding="utf-8")
    seen.write_text(now)


def _own(name: str, tests: list[str]) -> list[str]:
    """Of the tests that reach a function, those of its own room: it is for them to notice."""
    room = name.split(".")[1]
    return [test for test in tests if test.startswith((f"tests/{room}/", f"tests/test_{room}.py"))]


def _wanted(mutants: tuple[Mutant, ...], room: str) -> list[str]:
    listed = {each.change for each in read_list(LIST.read_text(encoding="utf-8"))}
    members = [mutant for mutant in mutants if room_of(mutant.change.file) == room]
    return [mutant.name for mutant in members if mutant.died is None or (mutant.died is False and mutant.change not in listed)]


def _try(names: list[str]) -> int:
    command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", "1"]
    for start in range(0, len(names), _NAMES_MAX):
        done = subprocess.run([*command, *names[start : start + _NAMES_MAX]], cwd=ROOT, env=_environment(), check=False, stdout=_quiet())
        if done.returncode:
            return done.returncode
    return 0


def _environment() -> dict[str, str]:
    """With the copy's ``tests`` in reach of pytest, before it reads its own settings."""
    return dict(os.environ) | {"PYTHONPATH": str(COPY)}


def _quiet() -> int | None:
    """mutmut ends with a line for every mutant: it is read from the results instead. On a terminal its progress is shown."""
    return None if sys.stdout.isatty() else subprocess.DEVNULL


def _report() -> int:
    mutants, judged = read_mutants(), read_list(LIST.read_text(encoding="utf-8"))
    print(f"\n{'room or file':40} {'mutants':>8} {'died':>6} {'judged':>7} {'unjudged':>9} {'undecided':>10} {'score':>8}")
    for room in ROOMS:
        members = [mutant for mutant in mutants if room_of(mutant.change.file) == room]
        files = sorted({mutant.change.file for mutant in members})
        for label, part in ((room, members), *((f"  {file}", [m for m in members if m.change.file == file]) for file in files)):
            figures = score(part, judged)
            shown = f"{figures.percent:7.1f} %" if figures.undecided < figures.total else "       –"
            print(f"{label:40} {figures.total:8} {figures.died:6} {figures.judged:7} {figures.unjudged:9} {figures.undecided:10} {shown}")
    reasons = {each.change: each.why for each in judged}
    print("\nSurvivors:")
    for mutant in sorted(mutants, key=lambda each: each.change):
        if mutant.died is False:
            change = mutant.change
            print(f"\n{change.file} {change.function}  ({mutant.name})\n  - {change.out}\n  + {change.into}")
            print(f"  {reasons.get(change, 'NOT ON THE LIST')}")
    found = objections(mutants, judged)
    print("\n" + "\n".join(found) if found else f"\n{', '.join(FLOORED)}: the floor is kept, and every survivor has its reason")
    return 1 if found else 0


def main() -> int:
    os.chdir(ROOT)
    if "--report" in sys.argv:
        return _report()
    if "--prepare" in sys.argv:
        _prepare()
        return 0
    if os.environ.get("FRESH"):
        shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(exist_ok=True)
    print("countermark: writing the mutants, and looking up which tests reach them", flush=True)
    # In a process of its own: it imports the tests from the copy.
    prepared = subprocess.run([sys.executable, "-m", "tests.mutation", "--prepare"], cwd=ROOT, env=_environment(), check=False)
    if prepared.returncode:
        return prepared.returncode
    rooms = [room for room in ROOMS if not sys.argv[1:] or room in sys.argv[1:]]
    try:
        for room in rooms:
            names = _wanted(read_mutants(), room)
            print(f"countermark: {room}: {len(names)} mutants to try", flush=True)
            if status := _try(names):
                print(f"countermark: mutmut ended with {status}; what was decided is kept", file=sys.stderr)
                return status if status > 0 else 130
    except KeyboardInterrupt:
        print("\ncountermark: broken off; what was decided is kept, and the next call goes on", file=sys.stderr)
        return 130
    return _report()


if __name__ == "__main__":
    sys.exit(main())
