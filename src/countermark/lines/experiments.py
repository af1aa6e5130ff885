"""Arms and their comparison as tables, as lines and as documents: the same numbers on every surface.

Rules kept here:

1. A side shows its stamp and how well that is known wherever its numbers are shown.
2. What was not measured is ``-``, never 0; a mean that is nearly 1 is not shown as 1, and how many fail stands beside it.
3. No line says that two arms are equal. A difference is resolved, or it is not and the smallest detectable one is told.
"""

from collections.abc import Iterable, Iterator, Sequence

from countermark.experiments.comparison import Comparison, Flip, MetricComparison, PairComparison, Test, are_binary
from countermark.experiments.sides import Counts, Join, Reduced, Side, counts, reduced
from countermark.experiments.specs import told
from countermark.experiments.stamps import Ran, Stamp
from countermark.experiments.statistics import CONFIDENCE, Interval, mean
from countermark.lines.numbers import shown_number
from countermark.lines.of_experiments import warning_document
from countermark.lines.sentence import short
from countermark.lines.texts import Document, JsonValue, counted, number, plain

SIDE_COLUMNS = (
    "side", "stamp", "evidence", "origin", "dataset", "grader", "decoding", "seed", "repeats", "asked", "scored", "unscored", "errored",
    "missing", "cached",
)  # fmt: skip
METRIC_COLUMNS = (
    "metric", "better", "n", "A", "B", "B − A", "95 % interval", "p", "p (Holm)", "family", "test", "p (signs)", "won", "lost", "tied",
    "detects", "unscored A", "unscored B", "bounds A", "bounds B",
)  # fmt: skip
FLIP_COLUMNS = ("metric", "id", "A", "B", "B")
_RAN: dict[Ran, str] = {
    "asserted": "asserted", "measured_before": "measured before the run", "measured_around": "measured before and after the run",
    "computed_in_arm": "computed in the arm",
}  # fmt: skip
_TEST: dict[Test, str] = {
    "mcnemar": "McNemar exact, Newcombe", "paired_t": "paired t", "clustered_t": "clustered t", "sign_flip": "sign flip",
}  # fmt: skip
_ID_LENGTH_MAX = 60


def shown_stamp(stamp: Stamp | None) -> str:
    """A stamp in a column: its kind and the first digits."""
    return "none" if stamp is None else f"{stamp.kind}:{stamp.digest.hex[:12]}"


def shown_evidence(stamp: Stamp | None) -> str:
    """How well a stamp is known, in words."""
    return "-" if stamp is None else _RAN[stamp.ran]


def side_rows(sides: Iterable[Side]) -> tuple[tuple[str, ...], ...]:
    """A row for every side, as a table shows it."""
    return tuple(_side_row(side, counts(side)) for side in sides)


def _side_row(side: Side, known: Counts) -> tuple[str, ...]:
    return (
        plain(side.name),
        shown_stamp(side.stamp),
        shown_evidence(side.stamp),
        "-" if side.stamp is None else side.stamp.origin,
        *("-" if each is None else short(each.hex) for each in (side.dataset, side.grader)),
        "-" if side.decoding is None else plain(side.decoding.text, 60),
        _seed(side),
        str(side.repeats),
        *(f"{each:,}" for each in (known.asked, known.scored, known.unscored, known.errored, known.missing)),
        _cached(side, known),
    )


def _seed(side: Side) -> str:
    if side.seed_used is not None:
        return str(side.seed_used)
    return "-" if side.seed is None else f"{side.seed} (given)"


def _cached(side: Side, known: Counts) -> str:
    return "some" if side.cache_uncounted and not known.cached else f"{known.cached:,}"


def join_line(joined: Join, pair: PairComparison) -> str:
    """How both sides were paired, in one line."""
    by = "id" if joined.by == "id" else "content, as ids were renumbered"
    parts = [f"joined by {by}: {len(joined.pairs):,} paired", f"{len(joined.only_a):,} only in A", f"{len(joined.only_b):,} only in B"]
    duplicates = sum(len(side.came.duplicates) for side in (pair.a, pair.b))
    unscored = sum(found.unscored + found.errored + found.missing for found in (counts(pair.a), counts(pair.b)))
    parts.extend(f"{count:,} {word}" for count, word in ((unscored, "unscored"), (duplicates, "told twice")) if count)
    return ", ".join(parts)


def given_line(pair: PairComparison) -> str | None:
    """What was given, and how many pairs there were before and after; None where nothing was."""
    if pair.kept is None:
        return None
    value = shown_number(pair.kept.given.value)
    after = f"{pair.kept.after:,} of {counted(pair.kept.before, 'pair')}"
    stamps = f"A {shown_stamp(pair.a.stamp)}, B {shown_stamp(pair.b.stamp)}"
    return f"given {plain(pair.kept.given.metric)} = {value} on both sides: {after} ({stamps})"


def metric_rows(pair: PairComparison) -> tuple[tuple[str, ...], ...]:
    """A row for every metric of a pair."""
    return tuple(_metric_row(found) for found in pair.metrics)


def _metric_row(found: MetricComparison) -> tuple[str, ...]:
    estimate = found.estimate
    return (
        plain(found.name),
        "higher" if found.higher_is_better else "lower",
        f"{found.n:,}",
        shown_number(found.mean_a),
        shown_number(found.mean_b),
        shown_number(None if estimate is None else estimate.diff),
        shown_interval(None if estimate is None else estimate.interval),
        shown_number(found.p),
        shown_number(found.p_adjusted),
        str(found.family),
        shown_test(found),
        shown_number(None if found.flipped is None else found.flipped.p),
        *(f"{each:,}" for each in (found.wins, found.losses, found.ties)),
        shown_number(None if estimate is None else estimate.mde),
        *("-" if found.kind == "metric" else f"{each:,}" for each in (found.unscored_a, found.unscored_b)),
        shown_interval(found.bounds_a),
        shown_interval(found.bounds_b),
    )


def shown_test(found: MetricComparison) -> str:
    """What p is of, and what was drawn for it."""
    name = _TEST[found.test]
    if found.clusters is not None:
        name += f", {counted(found.clusters, 'cluster')}"
    drawn = found.flipped.draws if found.test == "sign_flip" and found.flipped is not None else None
    return name if drawn is None else f"{name}, {drawn:,} draws"


def shown_interval(interval: Interval | None) -> str:
    """``[low, high]``, or ``-``."""
    return "-" if interval is None else f"[{shown_number(interval.low)}, {shown_number(interval.high)}]"


def conclusion_line(found: MetricComparison) -> str:
    """What is to be said of a metric, in one line."""
    name = plain(found.name)
    if found.estimate is None:
        return f"{name}: no pair has it on both sides"
    diff = shown_number(found.estimate.diff)
    if found.is_resolved and found.estimate.diff != 0:
        way = "worse" if found.is_regression else "better"
        interval = "" if found.estimate.interval is None else f" {shown_interval(found.estimate.interval)}"
        return f"{name}: B is {way}, {diff}{interval}, p {shown_number(found.p_adjusted)} of {counted(found.family, 'test')}"
    able = "nothing" if found.estimate.mde is None else f"≥ {shown_number(found.estimate.mde)}"
    return f"{name}: {diff}, not resolved: this n ({found.n:,}) can detect {able}"


def flip_rows(pair: PairComparison) -> Iterator[tuple[str, ...]]:
    """A row for every pair of ids whose sides differ in a score."""
    for found in pair.metrics:
        if found.kind == "score":
            for flip in found.flips():
                yield (plain(found.name), _flip_id(flip), shown_number(flip.a), shown_number(flip.b), "wins" if flip.wins else "loses")


def _flip_id(flip: Flip) -> str:
    names = dict.fromkeys((flip.id_a, flip.id_b))
    return " → ".join(plain(name, _ID_LENGTH_MAX) for name in names)


def metrics_table(sides: Sequence[Side]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The heads and rows of every metric by arm: means over ids, and what arms say of themselves as means over repeats."""
    scores = [reduced(side) for side in sides]
    names = dict.fromkeys(name for each in scores for name in each.found)
    own = dict.fromkeys(name for side in sides for found in side.came.metrics for name in found.values)
    rows = [(plain(name), *(_mean_cell(each, name) for each in scores)) for name in names]
    rows.extend((plain(name), *(_own_cell(side, name) for side in sides)) for name in own)
    stamps = ("stamp", *(f"{shown_stamp(side.stamp)} ({shown_evidence(side.stamp)})" for side in sides))
    return ("metric", *(plain(side.name) for side in sides)), (stamps, *rows)


def _mean_cell(found: Reduced, name: str) -> str:
    values = tuple(found.values(name).values())
    if not values:
        return "-"
    failing = sum(1 for each in values if each == 0)
    told = f" ({failing:,} failing)" if are_binary(values) and 0 < failing < len(values) else ""
    unscored = found.unscored(name)
    return shown_number(mean(values)) + told + (f", {unscored:,} unscored" if unscored else "")


def _own_cell(side: Side, name: str) -> str:
    values = [found.values[name] for found in side.came.metrics if name in found.values]
    return shown_number(mean(values) if values else None)


def comparison_document(found: Comparison, *, flips: bool = False) -> Document:
    """A comparison as a document: both sides, how they were joined, every metric. Further arms stand under ``others``, each held against
    the first side; ``sides`` are all of them."""
    first, more = found.pairs.first, found.pairs.more
    return {
        "sides": [side_document(side) for side in found.sides],
        **_pair_document(first, flips),
        "others": [{"side": at, **_pair_document(pair, flips)} for at, pair in enumerate(more, start=2)],
        "confidence": CONFIDENCE,
        "warnings": [warning_document(each) for each in found.warnings],
    }


def _pair_document(pair: PairComparison, flips: bool) -> Document:
    document: Document = {
        "join": {
            "by": pair.join.by,
            "paired": number(len(pair.join.pairs)),
            "onlyA": number(len(pair.join.only_a)),
            "onlyB": number(len(pair.join.only_b)),
            "changed": number(pair.join.changed),
        },
        "given": None if pair.kept is None else {
            "metric": pair.kept.given.metric, "value": pair.kept.given.value, "before": number(pair.kept.before),
            "after": number(pair.kept.after),
        },
        "metrics": [metric_document(each) for each in pair.metrics],
    }  # fmt: skip
    if flips:
        document["flips"] = [
            {"metric": each.name, "idA": flip.id_a, "idB": flip.id_b, "a": flip.a, "b": flip.b, "wins": flip.wins}
            for each in pair.metrics
            if each.kind == "score"
            for flip in each.flips()
        ]
    return document


def stamp_document(stamp: Stamp | None) -> JsonValue:
    """A stamp as it is stored: digest, kind, how well it is known, and how the weights were loaded where that is known."""
    if stamp is None:
        return None
    composition = None if stamp.composition is None else stamp.composition.spell()
    return {"sha256": stamp.digest.hex, "kind": stamp.kind, "ran": stamp.ran, "origin": stamp.origin, "composition": composition}


def side_document(side: Side) -> Document:
    """A side with what became of what it was asked."""
    known = counts(side)
    return {
        "experiment": side.experiment,
        "arm": side.arm,
        "stamp": stamp_document(side.stamp),
        "dataset": told(side.dataset),
        "grader": told(side.grader),
        "decoding": None if side.decoding is None else side.decoding.text,
        "seed": None if side.seed is None else str(side.seed),
        "seedUsed": None if side.seed_used is None else str(side.seed_used),
        "repeats": number(side.repeats),
        "asked": number(known.asked),
        "scored": number(known.scored),
        "unscored": number(known.unscored),
        "errored": number(known.errored),
        "missing": number(known.missing),
        "cached": None if side.cache_uncounted and not known.cached else number(known.cached),
        "duplicates": number(len(side.came.duplicates)),
        "regrades": side.regrades,
    }


def metric_document(found: MetricComparison) -> Document:
    """One metric of a comparison."""
    estimate = found.estimate
    return {
        "name": found.name,
        "kind": found.kind,
        "better": "higher" if found.higher_is_better else "lower",
        "n": number(found.n),
        "meanA": found.mean_a,
        "meanB": found.mean_b,
        "diff": None if estimate is None else estimate.diff,
        "ci": _ends(None if estimate is None else estimate.interval),
        "p": found.p,
        "pAdjusted": found.p_adjusted,
        "family": number(found.family),
        "test": found.test,
        "mde": None if estimate is None else estimate.mde,
        "signFlip": None if found.flipped is None else {"p": found.flipped.p, "draws": found.flipped.draws},
        "wins": number(found.wins),
        "losses": number(found.losses),
        "ties": number(found.ties),
        "clusters": found.clusters,
        "unscoredA": number(found.unscored_a),
        "unscoredB": number(found.unscored_b),
        "boundsA": _ends(found.bounds_a),
        "boundsB": _ends(found.bounds_b),
        "resolved": found.is_resolved,
        "regression": found.is_regression,
        "line": conclusion_line(found),
    }


def _ends(interval: Interval | None) -> JsonValue:
    return None if interval is None else [interval.low, interval.high]
