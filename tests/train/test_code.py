"""Code of somebody else's in place of a library's is named, each method of it, and what changes nothing of a step is not."""

from countermark.train.integrations import code
from countermark.train.integrations.code import foreign_methods
from tests.faults import planted, proven_by


class Library:
    def step(self) -> int:
        return 1

    def loss(self) -> int:
        return 2

    def log(self) -> int:
        return 3


class Mixed:
    def loss(self) -> int:
        return 5


class Own(Mixed, Library):
    def step(self) -> int:
        return 4

    def log(self) -> int:
        return 6

    def more(self) -> int:
        return 7


def told(thing: object) -> list[str]:
    return list(foreign_methods(thing, "trainer", Library, {"log"}, put_by_library={"log"}))


@proven_by(
    planted(code, "_own_methods", lambda kind, base, harmless: iter(())),
    planted(code, "_replaced_methods", lambda thing, base, harmless: iter(())),
)
def test_every_method_that_is_not_the_librarys_is_named() -> None:
    replaced = Library()
    assert told(replaced) == []
    for name in ("loss", "step", "log"):
        setattr(replaced, name, replaced.log)
    vars(replaced)["words"] = "of its own"
    assert told(replaced) == ["the trainer's loss, step was replaced"]
    own = Own()
    assert told(own) == ["Own has its own loss, step"]
    vars(own)["loss"] = own.more
    assert told(own) == ["Own has its own loss, step", "the trainer's loss was replaced"]
