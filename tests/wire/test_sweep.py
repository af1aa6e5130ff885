"""A stored sweep gives the same value and the same verdict again; whatever else the bytes are, they are refused with a reason."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.evidence.cut import STAGES
from countermark.evidence.members import CheckpointSeen, Misfiled, RawRead
from countermark.lines.conclusion import conclusion_document, conclusion_lines
from countermark.run.attempts import Attempt, AttemptKey, CheckpointIdentity, Relaunch, Resume
from countermark.run.checkpoint import ArtifactFact, Incomplete, Unobserved
from countermark.run.claims import Adjudication, BelieveSource, Dispatched, SetAside
from countermark.run.demand import Subject
from countermark.run.records import DOCUMENT_BYTES_MAX
from countermark.values import Refused, Sha256
from countermark.verdict import Conclusion, Sweep, conclude
from countermark.wire import sweep as room
from countermark.wire.sweep import SweepUnreadable, decode_sweep, encode_sweep
from tests.faults import planted, proven_by
from tests.run.examples import demand_id, work
from tests.verdict.scenes import Scene, Try, changed, checkpoint, ended, key, manifest, output, plus, process, sweep, unidentified
from tests.verdict.strategies import scenes
from tests.verdict.test_join import scoped
from tests.wire.recording import GIVEN_UP

#: A sweep as an earlier release stored it: nobody had ruled on anything.
UNRULED = Scene(
    (Try(1, Dispatched("started")), Try(2, "claimed", Relaunch(key(1), "process", CheckpointIdentity(5, Sha256("c" * 64))))),
    terminals={"supervisor": (ended(1),), "scheduler": "no such job"},
    processes={"local": (process(1, "dead"), unidentified(1, "settling"))},
    outputs={"local": (output(1),)},
    checkpoints={"local": (checkpoint(1),)},
    manifests={"local": (manifest(1),)},
    cancelled=True,
    abandoned=(1,),
)
RULED = (
    Adjudication(key(1), SetAside(), ("SuccessWithoutOutput " + key(1).nonce.hex, "a\u202eb\udcff"), "ada", "never\nwrote", 60_000),
    Adjudication(key(2), BelieveSource("launcher"), (), "", "", -1),
)
CLEAN = changed(UNRULED, adjudications=RULED)
RECORDED = Path(__file__).parents[1] / "recorded"
BYTES = encode_sweep(sweep(CLEAN))
DOCUMENT = json.loads(BYTES)


def again(data: bytes) -> Sweep:
    found = decode_sweep(data)
    assert isinstance(found, Sweep), found
    return found


def spelled(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def told(answer: Conclusion | Refused[Any]) -> tuple[bytes, Any]:
    if isinstance(answer, Refused):
        return repr(answer).encode(), None
    return "\n".join(conclusion_lines(answer)).encode(), json.dumps(conclusion_document(answer))


# ---------------------------------------------------------------------------------------------------------- there and back


@given(scenes())
def test_what_was_stored_is_read_again_with_the_same_verdict_byte_for_byte(scene: Scene) -> None:
    before = sweep(scene)
    data = encode_sweep(before)
    after = again(data)
    assert after == before
    assert encode_sweep(after) == data
    assert told(conclude(after)) == told(conclude(before))


@pytest.mark.parametrize("number", [1, 2])
def test_of_which_attempt_a_source_speaks_survives_and_with_it_the_verdict(number: int) -> None:
    before = scoped(GIVEN_UP, number)
    after = again(encode_sweep(before))
    assert after == before
    assert told(conclude(after)) == told(conclude(before))
    assert told(conclude(before))[0].startswith(b"Lost" if number == 1 else b"ObservationRequired")


@pytest.mark.parametrize("stage", STAGES)
def test_a_sweep_whose_parts_do_not_fit_is_stored_and_refused_again(stage: Any) -> None:
    """Evidence of another subject, foreign members, misfiled receipts and foreign attempts survive as what they are."""
    scene = changed(CLEAN, misfiled={stage: (Misfiled(key(1), "\x1b[31m"),)}, outputs=plus(CLEAN.outputs, output(7)))
    before = sweep(scene)
    stranger = Subject(demand_id("another"), work("another"))
    population = before.reads.by_stage()[stage].population
    reads: dict[str, Any] = {stage: RawRead(stranger, population)}
    before_it = AttemptKey(work("fourth"), key(8).nonce)
    resumed = Resume(before_it, CheckpointIdentity(1, Sha256("0" * 64)))
    foreign = Attempt(AttemptKey(work("another"), key(9).nonce), demand_id("third"), resumed)
    whole = replace(before, reads=replace(before.reads, **reads), attempts=(*before.attempts, foreign))
    assert again(encode_sweep(whole)) == whole
    answer = conclude(whole)
    assert isinstance(answer, Refused)
    assert told(conclude(again(encode_sweep(whole)))) == told(answer)


WITH_EVERYTHING = replace(
    checkpoint(1).readback,
    marker=Incomplete(("a temporary name",)),
    attempt=None,
    work_key="wk1:" + "0" * 64,
    declared=None,
    facts=(ArtifactFact("optimizer.beta1", "0.9", "optimizer.pt"),),
    model_shapes=((8, 4), ()),
    optimizer_shapes=((8,),),
    optimizer_parameters=2,
    micro_batches=2**60,
    epoch=0.1 + 0.2,
    scaled=True,
    notes=("a\u202eb", "\udcff"),
)


@pytest.mark.parametrize("epoch", [None, 0.0, 1e300, float("inf"), 0.1 + 0.2])
def test_every_part_of_a_checkpoints_readback_survives(epoch: float | None) -> None:
    readback = replace(WITH_EVERYTHING, epoch=epoch)
    seen = CheckpointSeen(key(1), 5, "/a\udcff\n\x00", readback)
    before = sweep(changed(CLEAN, checkpoints={"local": (seen, replace(seen, readback=replace(readback, marker=Unobserved(("?",)))))}))
    assert again(encode_sweep(before)) == before


def test_a_number_that_is_none_survives_as_what_it_is() -> None:
    seen = CheckpointSeen(key(1), 5, "/a", replace(WITH_EVERYTHING, epoch=float("nan")))
    data = encode_sweep(sweep(changed(CLEAN, checkpoints={"local": (seen,)})))
    assert encode_sweep(again(data)) == data


def test_the_order_of_mappings_is_no_part_of_a_sweep() -> None:
    turned = manifest(1)
    turned = replace(turned, coordinates=dict(reversed(list(turned.coordinates.items()))))
    assert encode_sweep(sweep(changed(CLEAN, manifests={"local": (turned,)}))) == BYTES


def test_a_stored_sweep_is_one_line_of_ascii() -> None:
    assert BYTES.isascii()
    assert BYTES.count(b"\n") == 1


# ---------------------------------------------------------------------------------------------------------- hostile bytes


def refused(data: bytes) -> str:
    found = decode_sweep(data)
    assert isinstance(found, SweepUnreadable), "it was read"
    assert found.why.isprintable() and len(found.why) <= 300
    return found.why


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here] + [path for name, one in inner for path in paths(one, (*here, name))]


def put(path: tuple[Any, ...], value: Any) -> Any:
    document = json.loads(BYTES)
    target = document
    for name in path[:-1]:
        target = target[name]
    target[path[-1]] = value
    return document


PATHS = [path for path in paths(DOCUMENT) if path]


def unchecked() -> Any:
    """Bytes are believed to be spelled as they should."""
    return planted(room, "encode_sweep", lambda sweep: sent[-1])()


sent: list[bytes] = []


@proven_by(unchecked)
@pytest.mark.parametrize(
    "data",
    [
        b" " + BYTES,
        BYTES[:-1],
        BYTES + b"\n",
        BYTES.replace(b'"graceMs":60000', b'"graceMs":60000,"graceMs":60000'),
        BYTES.replace(b'"graceMs":60000', b'"graceMs":1,"graceMs":60000'),
        BYTES.replace(b'"finished":true', b'"finished": true'),
        BYTES.replace(b'"local"', b'"\\u006cocal"'),
        json.dumps(DOCUMENT, sort_keys=True).encode() + b"\n",
        json.dumps(dict(reversed(DOCUMENT.items())), separators=(",", ":")).encode() + b"\n",
        spelled(put(("sweep", "attempts", 0, "attempt"), f"{key(1).nonce.hex} {work().spell()} local")),
    ],
)
def test_a_sweep_has_one_spelling(data: bytes) -> None:
    sent.append(data)
    assert refused(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"NaN",
        b'"\\ud800"',
        b"1" * 10_000,
        b"\x00" * 100,
    ],
)
def test_what_is_no_sweep_is_refused(data: bytes) -> None:
    assert refused(data)


def test_a_document_beyond_the_bound_is_not_even_looked_at() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return DOCUMENT_BYTES_MAX + 1

        def decode(self, *_: object) -> str:
            pytest.fail("it was read")

    assert f"{DOCUMENT_BYTES_MAX} are the most" in refused(Long(b"{}"))


@pytest.mark.parametrize("wrong", [None, True, -1.5, "\ud800", [], {}, 2**70, [[]]], ids=repr)
def test_no_wrong_value_anywhere_raises_and_no_part_is_read_as_another(wrong: Any) -> None:
    """Each place of the document in turn holds something else: it is refused, or it is another sweep that says so in its bytes."""
    for path in PATHS:
        data = spelled(put(path, wrong))
        found = decode_sweep(data)
        if isinstance(found, Sweep) and data != BYTES:
            assert found != sweep(CLEAN)
            assert encode_sweep(found) == data


@pytest.mark.parametrize("path", [path for path in PATHS if isinstance(path[-1], str)], ids=str)
def test_no_field_may_be_missing(path: tuple[Any, ...]) -> None:
    document = json.loads(BYTES)
    target = document
    for name in path[:-1]:
        target = target[name]
    del target[path[-1]]
    found = decode_sweep(spelled(document))
    if isinstance(found, Sweep):
        assert path[-2] == "coordinates" or path[-3:-1] == ("declared", 0), "a mapping of outside names may have fewer"
    else:
        assert found.why


@pytest.mark.parametrize("path", [(), *PATHS], ids=str)
def test_no_field_may_be_added(path: tuple[Any, ...]) -> None:
    document = json.loads(BYTES)
    target = document
    for name in path:
        target = target[name]
    if isinstance(target, dict):
        target["another"] = "field"
        found = decode_sweep(spelled(document))
        assert isinstance(found, SweepUnreadable) or path[-2:] == ("declared", 0)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_exception(data: bytes) -> None:
    assert isinstance(decode_sweep(data), SweepUnreadable)


@given(st.integers(0, len(BYTES) - 1), st.integers(0, 255))
def test_a_damaged_byte_is_refused_or_makes_another_sweep(place: int, byte: int) -> None:
    data = BYTES[:place] + bytes([byte]) + BYTES[place + 1 :]
    found = decode_sweep(data)
    if isinstance(found, Sweep):
        assert encode_sweep(found) == data


def test_the_work_that_a_document_names_is_derived_from_its_manifest() -> None:
    assert refused(spelled(put(("sweep", "manifest", "seed"), "18"))) == "its Work key does not follow from its manifest"
    assert "CoordinateUnreadable" in refused(spelled(put(("sweep", "manifest", "seed"), "auto")))
    assert "requirements" in refused(spelled(put(("sweep", "requirements"), "produces=weights")))


def test_a_stage_stands_once_in_a_stored_cut() -> None:
    document = json.loads(BYTES)
    stages = document["sweep"]["cut"]["stages"]
    stages.append(stages[0])
    assert "once" in refused(spelled(document))


# --------------------------------------------------------------------------------------------------------------- formats


def always_two() -> Any:
    """Every sweep is stored in format 2, also one that an earlier release stored in format 1."""

    def encoded(sweep: Sweep) -> bytes:
        plain = msgspec.to_builtins(room._document(sweep))
        ruled = msgspec.to_builtins(room._rulings_text(sweep.ledger))
        return spelled({"adjudications": ruled, "countermark": 2, "kind": "ruledSweep", "sweep": plain})

    return planted(room, "encode_sweep", encoded)()


@proven_by(always_two)
def test_a_sweep_without_rulings_is_stored_as_earlier_releases_stored_it() -> None:
    data = (RECORDED / "sweep-1.json").read_bytes()
    found = decode_sweep(data)
    assert isinstance(found, Sweep)
    assert room.encode_sweep(found) == data


def test_a_sweep_with_rulings_is_that_without_them_and_the_rulings_beside_it() -> None:
    assert DOCUMENT["sweep"] == json.loads(encode_sweep(sweep(UNRULED)))
    assert (DOCUMENT["countermark"], DOCUMENT["kind"], len(DOCUMENT["adjudications"])) == (2, "ruledSweep", 2)
    assert again(BYTES).ledger.adjudications == RULED


@pytest.mark.parametrize(
    "document",
    [
        {**DOCUMENT, "adjudications": []},
        {**DOCUMENT, "countermark": 1},
        {**DOCUMENT, "countermark": 3},
        {**DOCUMENT, "kind": "sweep"},
        {**DOCUMENT, "sweep": DOCUMENT},
        {**DOCUMENT["sweep"], "countermark": 2},
        {**DOCUMENT["sweep"], "kind": "ruledSweep"},
        {**DOCUMENT["sweep"], "adjudications": DOCUMENT["adjudications"]},
    ],
)
def test_a_format_is_read_as_itself_alone(document: Any) -> None:
    assert refused(spelled(document))


# -------------------------------------------------------------------------------------------------------- earlier releases


def numbers() -> list[str]:
    """The recorded sweeps: ``sweep-1`` is of format 1, and so on; each was written once and stays as it is."""
    return sorted(path.stem for path in RECORDED.glob("sweep-*.json") if "." not in path.stem)


@pytest.mark.parametrize("name", numbers())
def test_a_sweep_that_an_earlier_release_stored_gives_its_verdict_again_byte_for_byte(name: str) -> None:
    """A sentence that is worded anew shows here: stored verdicts would not equal their replay any more, which is a change to announce."""
    conclusion = conclude(again((RECORDED / f"{name}.json").read_bytes()))
    assert isinstance(conclusion, Conclusion)
    assert told(conclusion)[0] + b"\n" == (RECORDED / f"{name}.verdict.txt").read_bytes()
    codes = {part: [one["code"] for one in found] for part, found in json.loads(told(conclusion)[1]).items() if isinstance(found, list)}
    document = json.loads((RECORDED / f"{name}.verdict.json").read_text(encoding="utf-8"))
    assert {**json.loads(told(conclusion)[1]), **codes} == document


def test_both_formats_are_recorded() -> None:
    assert [json.loads((RECORDED / f"{name}.json").read_bytes())["countermark"] for name in numbers()] == [1, 2]
