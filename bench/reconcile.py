"""Cost of admission, composition and reconciliation: ``python bench/reconcile.py [--quick] [--keep] [--attempts N] [--members N]``.

Graphs of N attempts in a chain, shuffled, a star and at random; then a sweep with M members over N attempts, its construction apart; then
curves of both over the size. Baselines in the same run: for the shapes the fastest of them, and for a chain that is small enough the naive
fixpoint, which sweeps over all attempts until nothing changes. Times are the processor's, which other work on the machine changes little;
the shapes take turns.
"""

import argparse
import gc
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from bench.report import Report, curves  # noqa: E402
from countermark.evidence.composition import EvidenceComposition, RawReads, Readback, bind_readback, compose_evidence  # noqa: E402
from countermark.evidence.cut import STAGES, ObservationCut, StageRead  # noqa: E402
from countermark.evidence.members import (  # noqa: E402
    CheckpointSeen,
    EnumerationReceipt,
    ExecutionIdentity,
    Failed,
    Observed,
    OutputSeen,
    ProcessSeen,
    RawRead,
    Terminal,
    one_source,
)
from countermark.run.attempts import (  # noqa: E402
    Attempt,
    AttemptGraph,
    AttemptKey,
    InfrastructureRetry,
    InitialAttempt,
    Nonce,
    admit_attempt_graph,
    predecessor_of,
)
from countermark.run.checkpoint import COMPONENTS, CheckpointReadback, ComponentAbsent, Incomplete  # noqa: E402
from countermark.run.claims import (  # noqa: E402
    ControlComposition,
    Dispatched,
    DispatchIntent,
    DispatchOutcome,
    ExecutionClaim,
    RunLedger,
    Transition,
    compose_control,
)
from countermark.run.demand import subject_of  # noqa: E402
from countermark.values import Sha256  # noqa: E402
from countermark.verdict import ConvergenceInput, join, reconcile  # noqa: E402
from tests.run.examples import desired  # noqa: E402

DESIRED: Final = desired()
SUBJECT: Final = subject_of(DESIRED)
SHAPES: Final = ("chain", "shuffled", "star", "random")
SCATTERED: Final = "scattered"
NAIVE_ATTEMPTS: Final = 4_000
#: A checkpoint of which every component is missing.
NOT_READ: Final = CheckpointReadback(
    "/", "transformers-peft", 5, {component: ComponentAbsent(()) for component in COMPONENTS}, Incomplete(("torn",))
)


def key(number: int) -> AttemptKey:
    return AttemptKey(SUBJECT.work, Nonce(f"{number:032x}"))


def graph_of(shape: str, count: int) -> list[Attempt]:
    """Attempts whose predecessors make the shape, every key object made anew and in the order in which it is handed in, as a ledger's rows
    are read. Only the attempts of ``scattered`` are moved afterwards, so that neighbours lie apart in memory."""
    chance = random.Random(7)
    before: Callable[[int], int] = {"star": lambda number: 0, "random": chance.randrange}.get(shape, lambda number: number - 1)
    order = list(range(count))
    if shape == "shuffled":
        chance.shuffle(order)
    predecessors = [None, *(before(number) for number in range(1, count))]
    causes = ((at, predecessors[at]) for at in order)
    attempts = [
        Attempt(key(at), SUBJECT.demand, InitialAttempt() if predecessor is None else InfrastructureRetry(key(predecessor)))
        for at, predecessor in causes
    ]
    if shape == SCATTERED:
        chance.shuffle(attempts)
    return attempts


def naive_rooted(attempts: Sequence[Attempt]) -> int:
    """The fixpoint that asks every attempt again until nothing changes; the number of rooted attempts."""
    rooted: set[AttemptKey] = set()
    changed = True
    while changed:
        changed = False
        for attempt in attempts:
            before = predecessor_of(attempt.cause)
            if attempt.key not in rooted and (before is None or before in rooted):
                rooted.add(attempt.key)
                changed = True
    return len(rooted)


def timed(act: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    began = time.process_time()
    result = act()
    return time.process_time() - began, result


def ledger_of(attempts: Sequence[Attempt]) -> RunLedger:
    demand = DESIRED.demand
    return RunLedger(
        DESIRED,
        len(attempts),
        tuple(ExecutionClaim(Transition(demand.id, demand.work, one.cause), one.key, at) for at, one in enumerate(attempts)),
        tuple(DispatchIntent(one.key, "local", "n1", 0) for one in attempts),
        tuple(DispatchOutcome(one.key, Dispatched("started"), 0) for one in attempts),
    )


def reads_of(attempts: int, members: int) -> tuple[RawReads, ObservationCut]:
    """Populations with ``members`` members in all: a hundredth of them checkpoints, the rest spread evenly over both readings of terminals,
    processes and outputs. Every member's key object is its own."""
    numbers = [at % attempts for at in range(99 * members // 400)]
    digest = Sha256("d" * 64)

    def receipt(stage: str) -> EnumerationReceipt:
        return EnumerationReceipt(stage, "bench", "n1", 1, 2)

    def read(stage: str, found: list[Any]) -> RawRead[Any]:
        return RawRead(SUBJECT, one_source("bench", Observed(tuple(found), receipt(stage))))

    terminals = read("terminals", [Terminal(key(number), Failed(1), "supervisor", 1) for number in numbers])
    again = read("terminals_again", [Terminal(key(number), Failed(1), "supervisor", 1) for number in numbers])
    process = ExecutionIdentity("n1", "b1", "1", 5, 5)
    processes = read("processes", [ProcessSeen(key(number), process, "dead") for number in numbers])
    checkpoints = read(
        "checkpoints", [CheckpointSeen(key(number % attempts), 5, f"/{number % attempts}/5", NOT_READ) for number in range(members // 100)]
    )
    outputs = read("outputs", [OutputSeen(key(number), f"/{number}", digest, 1, "") for number in numbers])
    reads = RawReads(terminals, processes, outputs, checkpoints, read("manifests", []), again)
    cut = ObservationCut(SUBJECT, tuple(StageRead(stage, reads.by_stage()[stage].population.receipts()) for stage in STAGES), True)
    return reads, cut


def admitted(attempts: Sequence[Attempt]) -> AttemptGraph:
    graph = admit_attempt_graph(SUBJECT, attempts)
    assert isinstance(graph, AttemptGraph)
    return graph


def concluded(attempts: int, members: int) -> tuple[dict[str, float], str]:
    """Seconds that each step takes over members that were made before, and the verdict's arm."""
    graph = admitted(graph_of("chain", attempts))
    ledger = ledger_of(list(graph.attempts.values()))
    reads, cut = reads_of(attempts, members)
    seconds: dict[str, float] = {}
    seconds["bind"], readback = timed(lambda: bind_readback(SUBJECT, reads))
    assert isinstance(readback, Readback)
    seconds["compose"], evidence = timed(lambda: compose_evidence(graph, readback, cut))
    assert isinstance(evidence, EvidenceComposition)
    seconds["control"], control = timed(lambda: compose_control(graph, ledger))
    assert isinstance(control, ControlComposition)
    given = join(evidence, control, 0)
    assert isinstance(given, ConvergenceInput)
    seconds["reconcile"], conclusion = timed(lambda: reconcile(given))
    return seconds, type(conclusion.verdict).__name__


def shapes(report: Report, count: int) -> None:
    """Admission of every shape, in turns, against the fastest shape and the naive fixpoint."""
    graphs = {shape: graph_of(shape, count) for shape in (*SHAPES, SCATTERED)}
    times = {shape: float("inf") for shape in graphs}
    for _ in range(5):
        for shape, attempts in graphs.items():
            times[shape] = min(times[shape], timed(lambda attempts=attempts: admitted(attempts))[0])
    for shape in SHAPES:
        report.figure(f"admission of {count:,} attempts, {shape}", f"{times[shape]:.3f} s", "< 1 s")
    alone = [times[shape] for shape in SHAPES]
    report.figure("the slowest of these shapes against the fastest", f"{max(alone) / min(alone):.2f}×", "< 2×")
    report.say(f"  a chain whose attempts lie scattered in memory against one in order: {times[SCATTERED] / times['chain']:.2f}×")
    backwards = list(reversed(graph_of("chain", min(NAIVE_ATTEMPTS, count))))
    naive, _ = timed(lambda: naive_rooted(backwards))
    ours, _ = timed(lambda: admitted(backwards))
    report.ratio(f"a chain of {len(backwards):,} from its end, admissions/s", 1 / ours, "the naive fixpoint", 1 / naive, "> 1×")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=100_000)
    parser.add_argument("--members", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--keep", action="store_true", help="write the report and the curves under bench/results")
    options = parser.parse_args()
    attempts, members = (400, 4_000) if options.quick else (options.attempts, options.members)
    report = Report("reconcile")
    shapes(report, attempts)
    seconds, arm = concluded(attempts, members)
    steps = ", ".join(f"{step} {spent:.3f} s" for step, spent in seconds.items())
    report.figure(f"{members:,} members over {attempts:,} attempts ({steps}: {arm})", f"{sum(seconds.values()):.3f} s", "< 4 s")
    sizes = [max(attempts * share // 16, 10) for share in (1, 2, 4, 8, 16)]
    lines: dict[str, list[tuple[float, float]]] = {f"admit, {shape}": [] for shape in SHAPES}
    for size in sizes:
        for shape in SHAPES:
            given = graph_of(shape, size)
            lines[f"admit, {shape}"].append((size, min(timed(lambda given=given: admitted(given))[0] for _ in range(3))))
    lines["conclude, 10 members an attempt"] = [(10 * size, sum(concluded(size, 10 * size)[0].values())) for size in sizes]
    curves(report, "Cost over size", "seconds of the processor over attempts or members", lines, options.keep)
    if options.keep:
        report.keep()


if __name__ == "__main__":
    main()
