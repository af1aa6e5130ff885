"""What is found when a storm is over: the ledger row by row, its history in one pass, and every run by its verdict.

Rules kept here:

1. A run is at rest when its verdict is closed or waits for a person. A person is asked for only by what a trainer did on purpose: it lied,
   it left no output, or its main process ended before the one that was to publish. Two attempts of one run succeed only where a person
   gave one of them up before it did, or asked for another, or where the first one said so after it was lost.
2. The facts of the ledger join the history as they stand at the end; the answers that controllers were given must agree with them.
"""

from typing import Final

from countermark.app.running import Looked, look_at
from countermark.run.attempts import Relaunch, RequestedReexecution, predecessor_of
from countermark.run.records import RunRecord
from countermark.verdict.kinds import Blocked, Cancelled, Converged, EffectiveManifestDiverges, SeveralCandidates, SuccessWithoutOutput
from tests.simulation.checker import check
from tests.simulation.history import Fact, append, read
from tests.torture.scene import Scene
from tests.torture.tally import Count, Figures

#: Fates after which a person must look, by what is found then.
ON_PURPOSE: Final = {
    EffectiveManifestDiverges: ("lies",),
    SuccessWithoutOutput: ("exit 0 without output", "leaves a descendant"),
}


def judge(scene: Scene, count: Count, figures: Figures) -> None:
    """Put what is found into the figures."""
    claimed: dict[str, str] = {}
    with scene.ports(scene.chance("judge")) as ports:
        figures.findings.extend(f"store check: {finding.what} ({finding.where})" for finding in ports.store.check())
        for summary in ports.store.list_runs():
            looked = look_at(ports, summary.run_id)
            if not isinstance(looked, Looked):
                figures.findings.append(f"run {summary.run_id[:8]} cannot be looked at: {tuple(looked.defects)}")
                continue
            figures.verdicts[type(looked.conclusion.verdict).__name__] += 1
            if (why := _not_at_rest(looked, count)) is not None:
                figures.findings.append(f"run {summary.run_id[:8]} is not at rest: {why}")
            for fact in facts_of(looked.record):
                append(scene.history, fact)
                if fact.kind in ("cancellation", "abandonment", "adjudication"):
                    figures.decisions[fact.kind] += 1
            for claim in looked.record.ledger.claims:
                before = predecessor_of(claim.transition.cause)
                claimed[claim.attempt.nonce.hex] = "" if before is None else before.nonce.hex
                figures.causes[type(claim.transition.cause).__name__] += 1
    figures.attempts = len(claimed)
    figures.doubles = count.doubles(claimed)
    figures.findings.extend(f"history: {violation}" for violation in check(read(scene.history)))


def _not_at_rest(looked: Looked, count: Count) -> str | None:
    verdict = looked.conclusion.verdict
    ledger = looked.record.ledger
    # A supervisor that is held by a signal while its trainer ends says so late: its attempt was lost by then, and was followed.
    # And what was asked for once more has two results.
    followed = any(isinstance(claim.transition.cause, Relaunch | RequestedReexecution) for claim in ledger.claims)
    if isinstance(verdict, SeveralCandidates) and not ledger.abandonments and not followed:
        return f"two attempts succeeded although nobody gave one up: {verdict}"
    if isinstance(verdict, Converged | SeveralCandidates | Cancelled):
        return None
    if not isinstance(verdict, Blocked):
        return str(verdict)
    for blocker in verdict.blockers:
        fates = ON_PURPOSE.get(type(blocker), ())
        attempt = getattr(blocker, "attempt", None)
        if attempt is None or count.fates.get(attempt.nonce.hex) not in fates:
            return str(blocker)
    return None


def facts_of(record: RunRecord) -> tuple[Fact, ...]:
    """The run's control facts in the order of their versions."""
    ledger = record.ledger
    claims = {claim.version: claim for claim in ledger.claims}
    attempts = {
        "intent": iter([intent.attempt.nonce.hex for intent in ledger.intents]),
        "outcome": iter([outcome.attempt.nonce.hex for outcome in ledger.outcomes]),
        "abandonment": iter([abandonment.attempt.nonce.hex for abandonment in ledger.abandonments]),
    }
    found: list[Fact] = []
    for entry in record.history:
        if entry.kind == "claim":
            claim = claims[entry.version]
            before = predecessor_of(claim.transition.cause)
            slot, cause = claim.transition.slot().hex, type(claim.transition.cause).__name__
            follows = "" if before is None else before.nonce.hex
            fact = Fact(record.run_id, entry.version, "claim", claim.attempt.nonce.hex, slot, cause, follows, "afterwards")
        else:
            attempt = next(attempts[entry.kind]) if entry.kind in attempts else ""
            fact = Fact(record.run_id, entry.version, entry.kind, attempt, seen="afterwards")
        found.append(fact)
    return tuple(found)
