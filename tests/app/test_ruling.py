"""A person's ruling on a blocked run: recorded once where it fits what is to be seen, refused with every reason where it does not."""

from dataclasses import replace
from typing import Any

import pytest

from countermark.app import ruling
from countermark.app.acting import Acted
from countermark.evidence.members import Failed, Observed, Population, SourceReading, Succeeded, Terminal
from countermark.lines.rulings import (
    AttemptNotBlocked,
    AttemptNotOfRun,
    NothingToBelieve,
    RunNotBlocked,
    SeveralBlocked,
    SourceContradictsItself,
    SourceSilent,
)
from countermark.run.attempts import AttemptKey
from countermark.run.claims import Adjudication, BelieveSource, Ruling, RunLedger, SetAside
from countermark.values import NonEmpty, Refused
from countermark.verdict.kinds import Blocked, BlockerAdjudicated
from tests.app.bench import BOTH_LEDGERS, HONEST, Bench, arm, everything, names
from tests.faults import planted, proven_by

pytestmark = BOTH_LEDGERS

ASIDE = SetAside()
LIAR = ("effective", "save 4")


class TwoMinds:
    """The observer of the bench, with a launcher beside the supervisor that says how each attempt ended."""

    def __init__(self, observer: Any, *outcomes: Any) -> None:
        self._observer, self._outcomes = observer, outcomes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observer, name)

    def terminals(self, ledger: RunLedger) -> Population[Terminal]:
        seen: Population[Terminal] = self._observer.terminals(ledger)
        said = tuple(Terminal(claim.attempt, outcome, "launcher", 5) for claim in ledger.claims for outcome in self._outcomes)
        receipt = replace(seen.receipts()[0], id=seen.receipts()[0].id[::-1])
        return Population(NonEmpty(seen.readings.first, (*seen.readings.more, SourceReading("launcher", Observed(said, receipt)))))


def disputed(bench: Bench, *outcomes: Any) -> Bench:
    observer: Any = TwoMinds(bench.ports.observer, *(outcomes or (Failed(1),)))
    return bench.with_ports(observer=observer)


def blocked(bench: Bench, *scripts: tuple[str, ...]) -> str:
    """A run that is blocked: its trainer ended in success and published nothing."""
    run = bench.told(*(scripts or (LIAR, HONEST)))
    assert arm(bench.ended(run)) == "Blocked"
    return run


def ruled(bench: Bench, run: str, given: Ruling, attempt: str | None = None, by: str = "ada") -> Any:
    return ruling.adjudicate(bench.ports, run, attempt, given, "seen to", by)


def on_record(bench: Bench, run: str) -> tuple[Adjudication, ...]:
    return bench.record(run).ledger.adjudications


def attempt_of(bench: Bench, run: str, at: int = -1) -> AttemptKey:
    return bench.claims(run)[at].attempt


# ------------------------------------------------------------------------------------------------------------- set aside


@proven_by(planted(ruling, "blocker_text", lambda blocker: type(blocker).__name__))
def test_an_attempt_that_is_set_aside_blocks_no_more_and_another_one_may_converge(bench: Bench) -> None:
    run = blocked(bench)
    name = attempt_of(bench, run).nonce.hex
    answer = ruled(bench, run, ASIDE)
    assert answer == Acted((f"ruled on 1 conflict of attempt {name[:8]}: SuccessWithoutOutput",))
    (given,) = on_record(bench, run)
    assert (given.ruling, given.blockers, given.by, given.reason) == (ASIDE, (f"SuccessWithoutOutput {name}",), "ada", "seen to")
    looked = bench.look(run)
    assert arm(looked) == "ResumeAvailable", "its checkpoint is as good as any other's"
    assert [note.effect for note in looked.conclusion.notes if isinstance(note, BlockerAdjudicated)] == ["settled"]
    last = bench.ended(run, allowed=everything)
    assert arm(last) == "Converged"
    assert [note.effect for note in last.conclusion.notes if isinstance(note, BlockerAdjudicated)] == ["settled"], "it stays named"


def test_ruling_twice_in_the_same_words_records_once_and_in_other_words_beside(bench: Bench) -> None:
    run = blocked(bench, ("effective seed=18", "output"), HONEST)
    assert isinstance(ruled(bench, run, ASIDE), Acted)
    version = bench.record(run).ledger.version
    assert names(ruled(bench, run, ASIDE)) == ["RunNotBlocked"]
    (given,) = on_record(bench, run)
    assert type(bench.ports.store.adjudicate(run, replace(given, recorded_ms=9))).__name__ == "Stands"
    assert type(bench.ports.store.adjudicate(run, replace(given, reason="thought over"))).__name__ == "Recorded"
    assert bench.record(run).ledger.version == version + 1


def test_every_conflict_of_the_attempt_is_named(bench: Bench) -> None:
    run = blocked(bench, ("effective seed=18", "save 4"), HONEST)
    assert isinstance(ruled(bench, run, ASIDE), Acted)
    (given,) = on_record(bench, run)
    assert [text.split(" ")[0] for text in given.blockers] == ["EffectiveManifestDiverges", "SuccessWithoutOutput"]
    assert arm(bench.look(run)) == "ResumeAvailable"


# --------------------------------------------------------------------------------------------------------- believing one


@pytest.mark.parametrize(("source", "verdict"), [("supervisor", "Converged"), ("launcher", "RetryRequired")])
def test_the_believed_source_says_how_it_ended(bench: Bench, source: str, verdict: str) -> None:
    run = bench.told(("effective", "output"))
    assert arm(bench.ended(run)) == "Converged"
    two = disputed(bench)
    assert arm(two.look(run)) == "Blocked"
    assert isinstance(ruled(two, run, BelieveSource(source)), Acted)
    looked = two.look(run)
    assert arm(looked) == verdict
    (given,) = on_record(bench, run)
    assert given.blockers[0].startswith("ContradictoryTerminals ")


@proven_by(planted(ruling, "_fits", lambda blocker, given: True))
def test_believing_a_source_names_the_contradiction_alone(bench: Bench) -> None:
    run = blocked(bench)
    two = disputed(bench)
    assert isinstance(ruled(two, run, BelieveSource("supervisor")), Acted)
    (given,) = on_record(bench, run)
    assert [text.split(" ")[0] for text in given.blockers] == ["ContradictoryTerminals"]
    verdict = two.look(run).conclusion.verdict
    assert isinstance(verdict, Blocked)
    assert [type(blocker).__name__ for blocker in verdict.blockers] == ["SuccessWithoutOutput"]


# ---------------------------------------------------------------------------------------------------------------- refused


def refused(answer: Any) -> tuple[Any, ...]:
    names(answer)
    assert isinstance(answer, Refused)
    return tuple(answer.defects)


def everything_fits() -> Any:
    return planted(ruling, "_unfit", lambda looked, attempt, blockers, given: ())()


@proven_by(planted(ruling, "_chosen", lambda looked, blockers, text: looked.record.ledger.claims[0].attempt))
def test_a_run_that_is_not_blocked_is_not_ruled_on(bench: Bench) -> None:
    run = bench.told(HONEST)
    assert arm(bench.ended(run)) == "Converged"
    for given in (ASIDE, BelieveSource("supervisor")):
        assert refused(ruled(bench, run, given)) == (RunNotBlocked("Converged"),)
        assert refused(ruled(bench, run, given, attempt_of(bench, run).nonce.hex)) == (RunNotBlocked("Converged"),)
    assert on_record(bench, run) == ()


def test_a_run_without_attempts_has_nothing_to_rule_on(bench: Bench) -> None:
    assert refused(ruled(bench, bench.told(HONEST), ASIDE)) == (RunNotBlocked("ExecutionRequired"),)


@proven_by(everything_fits)
def test_a_ruling_that_settles_nothing_is_refused_with_every_reason(bench: Bench) -> None:
    run = blocked(bench)
    attempt = attempt_of(bench, run)
    lacking = NothingToBelieve(attempt, "supervisor", ("SuccessWithoutOutput",))
    assert refused(ruled(bench, run, BelieveSource("supervisor"))) == (lacking,)
    both = (replace(lacking, source="launcher"), SourceSilent(attempt, "launcher", ("supervisor",)))
    assert refused(ruled(bench, run, BelieveSource("launcher"))) == both
    assert on_record(bench, run) == ()


@proven_by(everything_fits)
def test_who_said_nothing_or_two_things_is_not_believed(bench: Bench) -> None:
    run = blocked(bench)
    attempt = attempt_of(bench, run)
    two = disputed(bench, Failed(1), Succeeded())
    silent = SourceSilent(attempt, "scheduler", ("launcher", "supervisor"))
    assert refused(ruled(two, run, BelieveSource("scheduler"))) == (silent,)
    itself = SourceContradictsItself(attempt, "launcher", ("failed with exit code 1", "succeeded"))
    assert refused(ruled(two, run, BelieveSource("launcher"))) == (itself,)
    assert on_record(bench, run) == ()


def two_blocked(bench: Bench) -> tuple[str, AttemptKey, AttemptKey]:
    """A run of which two attempts lack their outputs."""
    from countermark.app.acting import start
    from countermark.run.attempts import RequestedReexecution

    run = blocked(bench, LIAR)
    assert isinstance(start(bench.ports, bench.record(run), RequestedReexecution("again"), "ada"), Acted)
    assert arm(bench.ended(run)) == "Blocked"
    first, second = (claim.attempt for claim in bench.claims(run))
    bench.wait(lambda: len(getattr(bench.look(run).conclusion.verdict, "blockers", ())) == 2)
    return run, first, second


@proven_by(planted(ruling, "attempts_of", lambda blocker: ()))
def test_of_several_blocked_attempts_one_is_named(bench: Bench) -> None:
    run, first, second = two_blocked(bench)
    assert refused(ruled(bench, run, ASIDE)) == (SeveralBlocked((first, second)),)
    unfit = [NothingToBelieve(one, "supervisor", ("SuccessWithoutOutput",)) for one in (first, second)]
    assert refused(ruled(bench, run, BelieveSource("supervisor"))) == (SeveralBlocked((first, second)), *unfit)
    assert isinstance(ruled(bench, run, ASIDE, second.nonce.hex[:12]), Acted)
    assert refused(ruled(bench, run, ASIDE, second.nonce.hex)) == (AttemptNotBlocked(second, (first,)),)
    assert isinstance(ruled(bench, run, ASIDE), Acted), "one is left, and needs no name"
    assert arm(bench.look(run)) == "ResumeAvailable"


@pytest.mark.parametrize("text", ["", "f" * 32, "nonsense"])
def test_a_name_of_no_attempt_is_refused(bench: Bench, text: str) -> None:
    run, first, second = two_blocked(bench)
    answer = refused(ruled(bench, run, ASIDE, text))
    assert answer == (AttemptNotOfRun(text, (first.nonce.hex, second.nonce.hex)),)
