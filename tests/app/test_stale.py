"""A worker that was given up and comes back: what it writes is its own attempt's, and nothing of anybody else's changes."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from countermark.app.deciding import Abandoned, abandon_attempt
from countermark.launch.local import LocalLauncher
from tests.app.bench import HONEST, Bench, arm
from tests.faults import proven_by
from tests.launch.conftest import Place
from tests.launch.planting import in_supervisor


def written(folder: Path) -> dict[str, str]:
    """Every file below a folder by its path, with what is in it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
@proven_by(in_supervisor("outputs_are_one"))
def test_a_stale_workers_output_is_its_own_and_overwrites_nothing(bench: Bench) -> None:
    """Another host's, so that nobody here could fence it; another result, so that it shows where it went."""
    launcher = LocalLauncher(bench.ports.launcher.attempts_root, supervisor=Place(bench.store).driver())
    here = bench.with_ports(launcher=launcher)
    away = here.with_ports(host="elsewhere")
    run = bench.told(("effective", "hang", "save 4", "output other-rank"), HONEST)
    assert away.acted(run)
    bench.hanging()
    stale, attempt = bench.folder(run), bench.claims(run)[0].attempt
    assert isinstance(abandon_attempt(bench.ports, attempt.nonce.hex, "ada"), Abandoned)
    assert arm(bench.look(run)) == "Lost" and here.acted(run)
    assert arm(here.ended(run)) == "Converged"
    before = written(bench.store / "attempts")
    bench.go_on()
    bench.wait((stale / "terminal.json").exists)
    after = written(bench.store / "attempts")
    assert {path: after.get(path) for path in before if not path.startswith(f"{stale.name}/")} == {
        path: digest for path, digest in before.items() if not path.startswith(f"{stale.name}/")
    }
    assert all(path.startswith(f"{stale.name}/") for path in after.keys() - before.keys())
    # Whoever looks from there sees whose each thing is, and that the run's result is the other attempt's.
    looked = bench.with_ports(observer=replace(bench.ports.observer, host="elsewhere")).look(run)
    members = looked.sweep.reads.outputs.population.members()
    assert [(seen.attempt, seen.path) for seen in members] == [(attempt, str(stale / "output"))]
    assert arm(bench.look(run)) == "Converged"
