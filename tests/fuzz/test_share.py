"""The gate's share of the fuzzing: seeded changes of proper inputs, each target shown to go red, and the campaign's own memory."""

import json
import zipfile
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.files import adapter, archive, gguf, model_folder, npz, torch_weights, zstd
from countermark.files.layouts import arrays, dcp_metadata, ocdbt, orbax
from countermark.sessions.canonical import Spelling
from countermark.sessions.secrets import Redacted
from countermark.weights import header
from countermark.wire import events as wire_events
from countermark.wire import otlp_records, transcripts
from tests.faults import Fault, planted, proven_by
from tests.fuzz import __main__ as campaign
from tests.fuzz import targets
from tests.fuzz.mutations import mutants
from tests.fuzz.targets import TARGETS, Finding, Target, examine, watched

#: Changed inputs for each target: what a tenth of a second or two allows.
SHARE: Final = {
    "header": 500, "pickle": 60, "gguf": 250, "archive": 400, "safetensors": 500, "npy": 200, "npz": 250, "adapter": 400, "index": 60,
    "dcp-metadata": 150, "ocdbt": 150, "orbax": 20, "zstd": 400,
    "ingest": 250, "transcript": 120, "otlp-json": 150, "otlp-protobuf": 250,
}  # fmt: skip


def run(target: Target, count: int) -> int:
    """How many of the inputs were taken. Raises ``Finding``."""
    with watched():
        return sum(examine(target, data) for data in mutants(target, count))


def test_every_target_has_its_share() -> None:
    assert SHARE.keys() == TARGETS.keys() == FAULTS.keys()


@pytest.mark.parametrize("name", TARGETS)
def test_no_changed_input_makes_a_reader_do_what_it_must_not(name: str) -> None:
    taken = run(TARGETS[name], SHARE[name])
    assert 0 < taken < SHARE[name], "inputs that are all taken, or never, say nothing"


def _rows_believed(told: object) -> tuple[str, bool, tuple[int, ...]]:
    dtype, _, shape = npz_told(told)
    return dtype, False, shape


def _all_that_is_left(self: ocdbt._Bytes, size: int) -> bytes:
    self.at += size
    return self.content[self.at - size : self.at] or b"\0"


def _but_the_first(tree: Mapping[str, object]) -> Iterator[arrays.Leaf]:
    return islice(arrays.leaves(tree), 1, None)


npz_told: Final = npz._told
#: For each target a fault of the reader that its judge must see.
FAULTS: Final[dict[str, Fault]] = {
    "header": planted(header, "_layout_defects", lambda file, spans, data_bytes: ()),
    "safetensors": planted(header, "_layout_defects", lambda file, spans, data_bytes: ()),
    "pickle": planted(torch_weights, "_in_order", lambda stub: True),
    "gguf": planted(gguf, "_gaps", lambda *given: ()),
    "archive": planted(archive, "_verified", lambda opened, member: True),
    "npy": planted(npz, "_told", _rows_believed),
    "npz": planted(npz, "_PACKED", (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)),
    "adapter": planted(adapter, "_sorted_set", lambda key, value: value),
    "index": planted(model_folder, "shard_defects", lambda *given: ()),
    "dcp-metadata": planted(dcp_metadata, "_covers", lambda shape, chunks: ()),
    "ocdbt": planted(ocdbt._Bytes, "take", _all_that_is_left),
    "orbax": planted(orbax, "leaves", _but_the_first),
    "zstd": planted(zstd, "MAGIC", b""),
    "ingest": planted(wire_events, "spelled_payload", lambda payload: Spelling(json.dumps(payload), payload)),
    "transcript": planted(transcripts, "redacted", lambda value, place, named: Redacted(value, ())),
    "otlp-json": planted(otlp_records, "spelled_json", lambda value, place: Spelling(json.dumps(value), value)),
    "otlp-protobuf": planted(otlp_records, "spelled_json", lambda value, place: Spelling(json.dumps(value), value)),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_fault_of_the_reader_is_found_within_the_share(name: str) -> None:
    with FAULTS[name](), pytest.raises(Finding):
        run(TARGETS[name], SHARE[name])


def _endless(data: bytes) -> bool:
    while True:
        pass


def _greedy(data: bytes) -> bool:
    return bool(bytearray(targets.MEMORY_BASE + targets.MEMORY_PER_BYTE + (1 << 20)))


def _crashing(data: bytes) -> bool:
    raise KeyError("x")


def _disagreeing(data: bytes) -> bool:
    assert data == b"", "two readings differ"
    return True


@pytest.mark.parametrize(
    ("judge", "told"),
    [(_endless, "no end after"), (_greedy, "bytes of memory"), (_crashing, "KeyError"), (_disagreeing, "two readings differ")],
)
def test_an_input_must_end_stay_small_and_raise_nothing(judge: Any, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "SECONDS_MAX", 0.02)
    with watched(), pytest.raises(Finding, match=told):
        examine(Target("t", lambda: (), judge), b"x")


def test_the_inputs_are_the_same_each_time_and_differ_by_seed() -> None:
    first, again, other = (list(mutants(TARGETS["gguf"], 50, seed)) for seed in (0, 0, 1))
    assert first == again != other


def sources_not_looked_at() -> Any:
    """A run goes on whatever changed meanwhile."""
    return planted(campaign, "sources", lambda: "")()


@proven_by(sources_not_looked_at)
def test_a_campaign_goes_on_where_it_was_until_the_readers_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, float]] = []
    stop_after = 250.0

    def ran(target: Target, seconds: float, standing: campaign.Standing) -> int:
        asked.append((target.name, seconds))
        standing.seconds += min(seconds, stop_after)
        if stop_after < seconds:
            raise KeyboardInterrupt
        return 0

    reader = tmp_path / "src" / "countermark" / "files" / "gguf.py"
    reader.parent.mkdir(parents=True)
    reader.write_text("before = 1")
    monkeypatch.setattr(campaign, "ROOT", tmp_path)
    monkeypatch.setattr(campaign, "PLACE", tmp_path / ".fuzz")
    monkeypatch.setattr(campaign, "_run", ran)
    both = (TARGETS["gguf"], TARGETS["npy"])
    with pytest.raises(KeyboardInterrupt):
        campaign.campaign(both, 600)
    stop_after = 1000.0
    assert campaign.campaign(both, 600) == 0
    assert campaign.campaign(both, 600) == 0
    assert asked == [("gguf", 600), ("gguf", 350), ("npy", 600)]
    reader.write_text("after = 1")
    assert campaign.campaign(both[1:], 600) == 0
    assert asked[3:] == [("npy", 600)]


def test_a_campaign_is_red_for_what_was_found_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "PLACE", tmp_path)
    monkeypatch.setattr(campaign, "_run", lambda target, seconds, standing: 0)
    (tmp_path / "gguf" / "findings").mkdir(parents=True)
    (tmp_path / "gguf" / "findings" / "crash-1").write_bytes(b"x")
    assert campaign.campaign([TARGETS["gguf"], TARGETS["npy"]], 600) == 1
    told = capsys.readouterr().out
    assert "gguf: " in told and "npy: the fuzzer" not in told


def test_the_fuzzers_own_lines_are_read() -> None:
    found = campaign._STATUS.match(
        "#5490\tNEW    cov: 497 ft: 1203 corp: 83/41Kb lim: 4096 exec/s: 261 rss: 95Mb L: 12/4000 MS: 1 CopyPart-"
    )
    assert found is not None and found.groups() == ("5490", "497", "1203", "83")
