"""A tensor and where its data lies: what every reader of weights gives, whatever the form of its files."""

from dataclasses import dataclass
from typing import final

from countermark.files.reading import OpenFile
from countermark.weights import TensorSpan


@final
@dataclass(frozen=True, slots=True)
class Located:
    """A tensor's data: bytes ``begin`` to ``end`` of an open file, in order. The places in ``span`` are those of its own file's header."""

    span: TensorSpan
    file: OpenFile
    begin: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.begin
