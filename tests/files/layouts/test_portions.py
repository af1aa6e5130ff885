"""Portions of one file that hold the same values: each byte and each value once, whatever they share."""

from countermark.files.layouts import portions
from countermark.files.layouts.portions import Portions
from countermark.files.layouts.reading import Whys
from countermark.files.pickles import Storage, TensorStub
from countermark.run.checkpoint import FileReading
from countermark.values import Sha256
from tests.faults import planted, proven_by

STORAGES = {"0": (Sha256("0" * 64), 8), "1": (Sha256("1" * 64), 16)}
AGAIN = Whys(("it holds again what others hold, more often than any state does",))


def tensor(key: str) -> TensorStub:
    return TensorStub(Storage("F32", key, 2), 0, (2,), (1,))


def sizes(file: Portions, values: dict[str, object]) -> list[int | Whys]:
    """The bytes of each portion, or why it is none."""
    found = (file.portion(name, value) for name, value in values.items())
    return [one.bytes if isinstance(one, FileReading) else one for one in found]


def test_a_storage_counts_once_in_each_portion_that_its_tensors_lie_in() -> None:
    tied = {"a": tensor("0"), "b": tensor("0")}
    values: dict[str, object] = {"tied": tied, "both": [tied, tensor("1"), tied], "none": [1, "text", None]}
    assert sizes(Portions(STORAGES), values) == [8, 24, 0]


@proven_by(planted(portions, "_SHARING_MAX", 1 << 40))
def test_what_all_portions_share_is_not_looked_through_for_each() -> None:
    """A pickle names one list again and again at two bytes a time: 400 lists of one list of a thousand are looked through twice, and then
    no more."""
    shared = [tensor("0"), *range(1_000)]
    portions_of = {f"portion {at}": [shared] for at in range(400)}
    file = Portions(STORAGES)
    found = sizes(file, portions_of)
    assert file.looked_at <= portions._SMALL + 16 * 2_000
    assert {8, AGAIN} == set(found) and found == [8] * found.count(8) + [AGAIN] * found.count(AGAIN)


def test_a_file_whose_portions_share_little_is_read_whole() -> None:
    values: dict[str, object] = {f"portion {at}": [tensor("0"), *range(10_000)] for at in range(40)}
    assert sizes(Portions(STORAGES), values) == [8] * 40
