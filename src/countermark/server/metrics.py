"""What a server counts, as Prometheus reads it.

Rules kept here:

1. ``ROSTER`` names everything that is counted. No label has values that come from outside, so that nobody can make the counts grow.
2. Counting is done by the event loop's thread alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

Kind: TypeAlias = Literal["counter", "gauge"]


@final
@dataclass(frozen=True, slots=True)
class Metric:
    """One thing that is counted, and the names of its labels."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


REQUESTS: Final = Metric("countermark_requests_total", "counter", "Requests that were answered.", ("route", "status"))
SECONDS: Final = Metric("countermark_request_seconds_total", "counter", "Seconds that answering took.", ("route",))
EVENTS: Final = Metric("countermark_events_total", "counter", "Events that came in, by what became of them.", ("outcome",))
BODY_BYTES: Final = Metric("countermark_body_bytes_total", "counter", "Bytes of bodies, unpacked.")
COMMIT_SECONDS: Final = Metric("countermark_commit_seconds_total", "counter", "Seconds that storing took, the commits included.")
HELD_BYTES: Final = Metric("countermark_held_bytes", "gauge", "Bytes of bodies that are held now.")
LATEST: Final = Metric("countermark_latest_ordinal", "gauge", "The number of the event that was received last.")
ROSTER: Final = (REQUESTS, SECONDS, EVENTS, BODY_BYTES, COMMIT_SECONDS, HELD_BYTES, LATEST)

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"


@final
class Counts:
    """The counts of one server."""

    def __init__(self) -> None:
        self._counts: dict[Metric, dict[tuple[str, ...], float]] = {metric: {} if metric.labels else {(): 0} for metric in ROSTER}

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        counts = self._counts[metric]
        counts[labels] = counts.get(labels, 0) + amount

    def text(self, gauges: Mapping[Metric, float]) -> str:
        """Everything that was counted, and these gauges as they stand."""
        lines: list[str] = []
        for metric in ROSTER:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
            counts = {(): gauges.get(metric, 0)} if metric.kind == "gauge" else self._counts[metric]
            for values, count in sorted(counts.items()):
                labels = ",".join(f'{name}="{value}"' for name, value in zip(metric.labels, values, strict=True))
                lines.append(f"{metric.name}{'{' + labels + '}' if labels else ''} {count:.17g}")
        return "\n".join(lines) + "\n"
