"""The cache of digests: believed only where its checksum and the whole stamp hold, and never more than the file itself."""

import dataclasses
import hashlib
import json
import os
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from countermark.files import digest_cache, reading
from countermark.files.digest_cache import RACY_NS, DigestCache, Range, hash_file, hash_ranges
from countermark.files.reading import OpenFile, Stamp, open_file
from countermark.values import Sha256
from countermark.weights.refusals import CachedDigestsDamaged, CachedDigestsDisagree, CacheUnwritable, FileChanged
from tests.faults import planted, proven_by
from tests.files.tensors import write

#: Long after every file of a test was written.
LATER = 2**62
OTHER = Sha256("e" * 64)


def cache(tmp_path: Path, *, fresh: bool = False, now: int = LATER) -> DigestCache:
    return DigestCache(tmp_path / "cache" / "digests", fresh, lambda: now)


def digest(path: Path, kept: DigestCache | None) -> Sha256:
    found = hash_file(path.parent, path.name, cache=kept)
    assert isinstance(found, tuple), found
    return found[0]


def stamp(path: Path) -> Stamp:
    return Stamp.of(path.stat())


def entry(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "cache" / "digests").iterdir()
    return found


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return write(tmp_path / "w.bin", b"0123456789" * 100)


def nothing_is_kept() -> AbstractContextManager[object]:
    return planted(DigestCache, "known", lambda self, stamp: {})()


@proven_by(nothing_is_kept)
def test_what_was_measured_once_is_not_read_again(tmp_path: Path, weights: Path) -> None:
    first, second = cache(tmp_path), cache(tmp_path)
    assert digest(weights, first) == digest(weights, second) == Sha256(hashlib.sha256(weights.read_bytes()).hexdigest())
    assert (first.hashed, second.hashed) == (1000, 0)
    assert (second.warnings, second.disagreed) == ([], [])
    assert entry(tmp_path).stat().st_mode & 0o777 == 0o644 and entry(tmp_path).parent.stat().st_mode & 0o077 == 0


def test_parts_of_a_file_are_kept_beside_the_whole(tmp_path: Path, weights: Path) -> None:
    told: list[int] = []
    for ranges, measured in ((((0, 10), (10, 1000)), 1000), (((0, 10), (0, 1000), (0, 10)), 1000), (((10, 1000), (0, 1000)), 0)):
        kept = cache(tmp_path)
        opened = open_file(weights.parent, weights.name)
        assert isinstance(opened, OpenFile)
        with opened:
            found = hash_ranges(opened, ranges, told.append, kept)
        assert found == tuple(Sha256(hashlib.sha256(weights.read_bytes()[begin:end]).hexdigest()) for begin, end in ranges)
        assert kept.hashed == measured
    assert sum(told) == 1000 + 1020 + 1990


def any_stamp_will_do() -> AbstractContextManager[object]:
    """An entry is taken by its place alone."""
    return planted(Stamp, "__eq__", lambda self, other: True)()


@proven_by(any_stamp_will_do)
@pytest.mark.parametrize("what", [field.name for field in dataclasses.fields(Stamp)])
def test_every_part_of_the_stamp_is_the_key(tmp_path: Path, weights: Path, what: str) -> None:
    kept = cache(tmp_path)
    true = stamp(weights)
    kept.keep("w", true, {(0, 10): OTHER})
    place = entry(tmp_path)
    assert kept.known(true) == {(0, 10): OTHER}
    other = dataclasses.replace(true, **{what: getattr(true, what) + 1})
    place.rename(place.with_name(f"{other.device:x}-{other.inode:x}.json"))
    # The entry lies where the other file's would, and is of this one.
    assert (cache(tmp_path).known(other), kept.warnings) == ({}, [])


def test_a_file_that_changes_takes_its_old_entry_with_it(tmp_path: Path, weights: Path) -> None:
    before = digest(weights, cache(tmp_path))
    os.utime(weights, ns=(1, 1))
    weights.write_bytes(b"x" * 1000)
    kept = cache(tmp_path)
    assert (digest(weights, kept) != before, kept.hashed) == (True, 1000)
    assert len(list(entry(tmp_path).parent.iterdir())) == 1


def fresh_is_as_usual() -> AbstractContextManager[object]:
    return planted(DigestCache, "known", DigestCache._read)()


@proven_by(fresh_is_as_usual)
def test_bytes_that_changed_under_one_stamp_are_seen_when_measured_afresh(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that stands still, or a writer that puts the times back: the stamp is a promise that only measuring can hold."""
    true, real = stamp(weights), Stamp.of
    monkeypatch.setattr(reading.Stamp, "of", lambda found: true if found.st_ino == true.inode else real(found))
    old = digest(weights, cache(tmp_path))
    weights.write_bytes(b"9" * 1000)
    new = Sha256(hashlib.sha256(b"9" * 1000).hexdigest())
    believed = cache(tmp_path)
    assert (digest(weights, believed), believed.disagreed) == (old, [])
    fresh = cache(tmp_path, fresh=True)
    assert (digest(weights, fresh), fresh.disagreed) == (new, [CachedDigestsDisagree("w.bin", 1)])
    again = cache(tmp_path)
    assert (digest(weights, again), again.hashed, again.disagreed) == (new, 0, [])


def test_nothing_of_an_entry_that_was_wrong_is_believed_any_more(tmp_path: Path, weights: Path) -> None:
    """Also where the file is too new for another entry: the wrong one goes."""
    for now, left in ((LATER, {(0, 10): Sha256("a" * 64)}), (0, {})):
        cache(tmp_path).keep("w", stamp(weights), {(0, 10): OTHER, (10, 20): OTHER})
        fresh = cache(tmp_path, fresh=True, now=now)
        fresh.keep("w", stamp(weights), {(0, 10): Sha256("a" * 64)})
        assert fresh.disagreed == [CachedDigestsDisagree("w", 1)]
        assert cache(tmp_path).known(stamp(weights)) == left


def every_file_is_old_enough() -> AbstractContextManager[object]:
    return planted(digest_cache, "RACY_NS", -(2**62))()


@proven_by(every_file_is_old_enough)
def test_a_file_that_may_still_change_within_its_clocks_tick_is_not_kept(tmp_path: Path, weights: Path) -> None:
    for times in ((10**18, 10**17), (10**17, 10**18)):
        young = dataclasses.replace(stamp(weights), mtime_ns=times[0], ctime_ns=times[1])
        for now, kept in ((10**18, False), (10**18 + RACY_NS - 1, False), (10**18 + RACY_NS, True)):
            found = cache(tmp_path, now=now)
            found.keep("w", young, {(0, 10): OTHER})
            assert (now, found.known(young) != {}) == (now, kept)
            for each in (tmp_path / "cache" / "digests").glob("*"):
                each.unlink()


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def other_digest(content: bytes) -> bytes:
    return content.replace(b"e" * 64, b"f" * 64)


def summed(body: bytes) -> bytes:
    return body + b"\n" + hashlib.sha256(body + b"\n").hexdigest().encode() + b"\n"


DAMAGES = {
    "cut": cut,
    "empty": lambda content: b"",
    "another digest": other_digest,
    "no JSON": lambda content: summed(b"{"),
    "of another form": lambda content: summed(json.dumps({"form": "x", "stamp": [1, 2, 3, 4, 5], "digests": []}).encode()),
    "no digest": lambda content: summed(content[:-66].replace(b"e" * 64, b"E" * 64)),
    "behind the end": lambda content: summed(content[:-66].replace(b"[[0,10,", b"[[0,9999,")),
    "no ranges": lambda content: summed(content[:-66].replace(b"[[0,10,", b"[[0,null,")),
    "one number short": lambda content: summed(content[:-66].replace(b'"stamp":[', b'"stamp":["x",', 1).replace(b",1000,", b",", 1)),
    "more": lambda content: content + b"\n",
}


def checksums_always_hold() -> AbstractContextManager[object]:
    class Anything(bytes):
        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = bytes.__hash__

    real = digest_cache._entry
    return planted(digest_cache, "_entry", lambda content: real(summed(content[:-66]) if len(content) > 66 else content))()


@proven_by(checksums_always_hold)
def test_what_is_no_entry_as_it_was_written_is_told_and_not_believed(tmp_path: Path, weights: Path) -> None:
    for name, damage in DAMAGES.items():
        cache(tmp_path).keep("w", stamp(weights), {(0, 10): OTHER})
        place = entry(tmp_path)
        place.write_bytes(damage(place.read_bytes()))
        kept = cache(tmp_path)
        assert (name, kept.known(stamp(weights))) == (name, {})
        assert [(type(each), getattr(each, "entry", "")) for each in kept.warnings] == [(CachedDigestsDamaged, str(place))], name
        assert digest(weights, kept) == digest(weights, None)
        healed = cache(tmp_path)
        assert (digest(weights, healed) == digest(weights, None), healed.hashed, healed.warnings) == (True, 0, [])
        place.unlink()


def test_every_torn_entry_is_told(tmp_path: Path, weights: Path) -> None:
    cache(tmp_path).keep("w", stamp(weights), {(0, 10): OTHER})
    place = entry(tmp_path)
    whole = place.read_bytes()
    for length in (*range(0, len(whole), 9), len(whole) - 1):
        place.write_bytes(whole[:length])
        kept = cache(tmp_path)
        assert (kept.known(stamp(weights)), len(kept.warnings)) == ({}, 1)


def test_an_entry_of_another_user_or_of_another_kind_is_told(tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache(tmp_path).keep("w", stamp(weights), {(0, 10): OTHER})
    place = entry(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(digest_cache.os, "geteuid", lambda: place.stat().st_uid + 1)
        kept = cache(tmp_path)
        assert (kept.known(stamp(weights)), kept.warnings) == ({}, [CachedDigestsDamaged(str(place), "it belongs to another user")])
    place.unlink()
    os.mkfifo(place)
    kept = cache(tmp_path)
    assert (kept.known(stamp(weights)), kept.warnings) == ({}, [CachedDigestsDamaged(str(place), "it cannot be read")])


def test_a_cache_that_cannot_be_kept_fails_nothing(tmp_path: Path, weights: Path) -> None:
    write(tmp_path / "cache", b"no folder")
    kept = cache(tmp_path)
    digest(weights, kept)
    assert [type(each) for each in kept.warnings] == [CachedDigestsDamaged, CacheUnwritable]
    nowhere = DigestCache(None)
    assert (digest(weights, nowhere) == digest(weights, None), nowhere.warnings, nowhere.known(stamp(weights))) == (True, [], {})


def test_a_file_that_changes_while_it_is_measured_is_not_kept(tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading.OpenFile, "changed", lambda self: True)
    kept = cache(tmp_path)
    assert hash_file(weights.parent, weights.name, cache=kept) == FileChanged("w.bin")
    assert not (tmp_path / "cache").exists()


def test_there_is_a_bound_to_the_entries(tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_cache, "ENTRIES_MAX", 4)
    true = stamp(weights)
    for inode in range(1, 6):
        each = dataclasses.replace(true, inode=inode)
        cache(tmp_path).keep("w", each, {(0, 10): OTHER})
        os.utime(tmp_path / "cache" / "digests" / f"{each.device:x}-{inode:x}.json", ns=(inode, inode))
    left = sorted(path.name for path in (tmp_path / "cache" / "digests").iterdir())
    assert left == [f"{true.device:x}-{inode:x}.json" for inode in (3, 4, 5)]


def test_writers_at_once_leave_one_whole_entry(tmp_path: Path, weights: Path) -> None:
    """Each keeps parts of its own, and a reader between them sees an entry that holds."""
    true = stamp(weights)
    seen: list[Mapping[Range, Sha256]] = []
    readers = [cache(tmp_path) for _ in range(2)]

    def keeping(number: int) -> None:
        for at in range(20):
            cache(tmp_path).keep("w", true, {(number, 100 + at): OTHER})

    def looking(kept: DigestCache) -> None:
        seen.extend(kept.known(true) for _ in range(100))

    threads = [threading.Thread(target=keeping, args=(number,)) for number in range(3)]
    threads += [threading.Thread(target=looking, args=(each,)) for each in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.warnings for each in readers] == [[], []]
    assert {part for found in seen for part in found} <= {(number, 100 + at) for number in range(3) for at in range(20)}
    assert {(number, 119) for number in range(3)} & cache(tmp_path).known(true).keys()
    assert [path.name[0] for path in (tmp_path / "cache" / "digests").iterdir()] != ["."]
