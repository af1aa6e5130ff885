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
FORWARDED: Final = Metric("countermark_forwarded_edits_total", "counter", "Edits that were sent on and taken.")
FORWARDED_SESSIONS: Final = Metric("countermark_forwarded_sessions_total", "counter", "Sessions that were sent on and taken.")
FORWARD_REJECTED: Final = Metric("countermark_forward_rejected_total", "counter", "Spans that the receiver took no part of.")
FORWARD_FAILURES: Final = Metric("countermark_forward_failures_total", "counter", "Requests to the receiver that have to be sent again.")
FORWARD_WAITING: Final = Metric("countermark_forward_waiting", "gauge", "Edits that wait to be sent on, counted up to a million.")
FORWARD_SESSIONS: Final = Metric("countermark_forward_sessions", "gauge", "Sessions that are sent on when they end or fall silent.")
FORWARD_ASIDE: Final = Metric("countermark_forward_aside", "gauge", "What the receiver never takes.")
RETIRED_SESSIONS: Final = Metric("countermark_retired_sessions_total", "counter", "Sessions that were taken out because of their age.")
RETIRED_EVENTS: Final = Metric("countermark_retired_events_total", "counter", "Events that were taken out with them.")
ROSTER: Final = (
    REQUESTS, SECONDS, EVENTS, BODY_BYTES, COMMIT_SECONDS, HELD_BYTES, LATEST, FORWARDED, FORWARDED_SESSIONS, FORWARD_REJECTED,
    FORWARD_FAILURES, FORWARD_WAITING, FORWARD_SESSIONS, FORWARD_ASIDE,
    RETIRED_SESSIONS, RETIRED_EVENTS,
)  # fmt: skip

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"


@final
class Counts:
    """The counts of one server."""

    def __init__(self) -> None:
        self._counts: dict[Metric, dict[tuple[str, ...], float]] = {metric: {} if metric.labels else {(): 0} for metric in ROSTER}

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        counts = self._counts[metric]
        counts[labels] = counts.get(labels, 0) + amount

    def text(self, standing: Mapping[Metric, float]) -> str:
        """Everything that was counted, and what is counted elsewhere as it stands."""
        lines: list[str] = []
        for metric in ROSTER:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
            counts = {(): standing[metric]} if metric in standing else self._counts[metric]
            for values, count in sorted(counts.items()):
                labels = ",".join(f'{name}="{value}"' for name, value in zip(metric.labels, values, strict=True))
                lines.append(f"{metric.name}{'{' + labels + '}' if labels else ''} {count:.17g}")
        return "\n".join(lines) + "\n"
