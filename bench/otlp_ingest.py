"""Spans over OTLP, durable and visible: ``python bench/otlp_ingest.py [--quick] [--keep] [--mlflow FOLDER] [--phoenix FOLDER]``.

200 traces of 100 spans each, in requests of 250 spans by one client that keeps its connection, to a server in a process of its own, on
SQLite. The clock stops when every span can be seen in the server's database; for ours that is when the last request was answered. Beside
ours: MLflow and Phoenix, each in an environment of its own that an option or a variable names. At the end ours is killed with SIGKILL
right after an answer, and what was answered for is counted.
"""

import argparse
import http.client
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402

from bench.report import Report  # noqa: E402

TRACES: Final = 200
SPANS: Final = 100
BATCH: Final = 250
ROUNDS: Final = 3
#: The peers, as pip is asked for them, and the variables that name their environments.
MLFLOW: Final = ("mlflow==3.17", "COUNTERMARK_BENCH_MLFLOW")
PHOENIX: Final = ("arize-phoenix==20", "COUNTERMARK_BENCH_PHOENIX")
_READY_S: Final = 120.0
_VISIBLE_S: Final = 300.0


def requests(traces: int, begin_ns: int) -> list[bytes]:
    """The bodies of all requests: an agent's span above, chats and tool calls below it, with the attributes that such spans have."""
    bodies: list[bytes] = []
    request, held = ExportTraceServiceRequest(), 0
    for trace in range(traces):
        trace_id = os.urandom(16)
        root = os.urandom(8)
        for number in range(SPANS):
            if held == 0:
                request = ExportTraceServiceRequest()
                resource = request.resource_spans.add()
                _say(resource.resource.attributes.add(), "service.name", "bench")
                scope = resource.scope_spans.add()
            span = scope.spans.add()
            span.trace_id, span.span_id = trace_id, root if number == 0 else os.urandom(8)
            span.parent_span_id = b"" if number == 0 else root
            kind = "invoke_agent" if number == 0 else "chat" if number % 2 else "execute_tool"
            span.name = f"{kind} {number}"
            span.kind = 1
            span.start_time_unix_nano = begin_ns + (trace * SPANS + number) * 1000
            span.end_time_unix_nano = span.start_time_unix_nano + 900
            _say(span.attributes.add(), "gen_ai.operation.name", kind)
            _say(span.attributes.add(), "gen_ai.conversation.id", f"conversation-{begin_ns}-{trace}")
            _say(span.attributes.add(), "gen_ai.request.model", "a-model")
            _say(span.attributes.add(), "gen_ai.response.id", f"response-{begin_ns}-{trace}-{number}")
            _say(span.attributes.add(), "gen_ai.usage.input_tokens", 120 + number)
            _say(span.attributes.add(), "gen_ai.usage.output_tokens", 30 + number)
            _say(span.attributes.add(), "gen_ai.tool.name", "search the files of the project")
            held += 1
            if held == BATCH:
                bodies.append(request.SerializeToString())
                held = 0
    if held:
        bodies.append(request.SerializeToString())
    return bodies


def _say(attribute: object, key: str, value: str | int) -> None:
    attribute.key = key  # type: ignore[attr-defined]
    if isinstance(value, str):
        attribute.value.string_value = value  # type: ignore[attr-defined]
    else:
        attribute.value.int_value = value  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Contender:
    """A server: how it is started in a folder at a port, what it wants beside the body, and where its spans are counted."""

    name: str
    command: Callable[[Path, int], Sequence[str]]
    environment: Callable[[Path, int], dict[str, str]]
    ready: str
    headers: dict[str, str]
    database: str
    count: str


OURS: Final = Contender(
    "ours",
    lambda folder, port: (sys.executable, "-m", "countermark.cli.entry", "serve", "--port", str(port), "--store", f"sqlite:///{folder}"),
    lambda folder, port: {"PYTHONPATH": f"{ROOT / 'src'}"},
    "/readyz",
    {},
    "sessions.sqlite",
    "SELECT count(*) FROM events",
)


def mlflow(environment: Path) -> Contender:
    return Contender(
        MLFLOW[0],
        lambda folder, port: (
            str(environment / "bin/mlflow"),
            "server",
            "--backend-store-uri",
            f"sqlite:///{folder}/mlflow.db",
            "--port",
            str(port),
            "--default-artifact-root",
            str(folder / "artifacts"),
            "--workers",
            "1",
        ),
        lambda folder, port: {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "MLFLOW_DISABLE_TELEMETRY": "true"},
        "/health",
        {"x-mlflow-experiment-id": "0"},
        "mlflow.db",
        "SELECT count(*) FROM spans",
    )


def phoenix(environment: Path) -> Contender:
    return Contender(
        PHOENIX[0],
        lambda folder, port: (str(environment / "bin/phoenix"), "serve"),
        lambda folder, port: {
            "PHOENIX_WORKING_DIR": str(folder),
            "PHOENIX_PORT": str(port),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_GRPC_PORT": str(_port()),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        },
        "/healthz",
        {},
        "phoenix.db",
        "SELECT count(*) FROM spans",
    )


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def serving(contender: Contender, folder: Path) -> "Iterator[tuple[subprocess.Popen[bytes], int, float]]":
    """The server's process, its port, and the seconds until it was ready."""
    port, begun = _port(), time.monotonic()
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            contender.command(folder, port), cwd=folder, env={**os.environ, **contender.environment(folder, port)}, stdout=log, stderr=log
        )
        try:
            while not _answers(port, contender.ready):
                if server.poll() is not None or time.monotonic() - begun > _READY_S:
                    raise SystemExit(f"{contender.name} does not start: {(folder / 'server.log').read_text()[-2000:]}")
                time.sleep(0.02)
            yield server, port, time.monotonic() - begun
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def send(contender: Contender, port: int, bodies: Sequence[bytes]) -> None:
    """All bodies, one after another, by one connection; anything but 200 ends the measurement."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for body in bodies:
        connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf", **contender.headers})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{contender.name} answered {answer.status}: {text[:500]!r}")
    connection.close()


def visible(contender: Contender, folder: Path) -> int:
    """The spans that another process sees in the server's database."""
    connection = sqlite3.connect(f"file:{folder / contender.database}?mode=ro", uri=True, timeout=30)
    try:
        return int(connection.execute(contender.count).fetchone()[0])
    finally:
        connection.close()


def memory_mib(pid: int) -> float:
    """The most memory that a process and its children ever held at once, in MiB, each by its own peak."""
    pids = [pid, *(int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    peaks = [line for each in pids for line in Path(f"/proc/{each}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return sum(int(line.split()[1]) for line in peaks) / 1024


def measure(contender: Contender, traces: int, rounds: int) -> tuple[list[float], float, float]:
    """Spans per second of each round, the seconds to ready, and the most memory."""
    rates: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving(contender, folder) as (server, port, ready_s):
            send(contender, port, requests(1, 1_700_000_000 * 10**9))
            seen = SPANS
            for number in range(rounds):
                bodies = requests(traces, 1_710_000_000 * 10**9 + number * 10**12)
                begun = time.monotonic()
                send(contender, port, bodies)
                seen += traces * SPANS
                while visible(contender, folder) < seen:
                    if time.monotonic() - begun > _VISIBLE_S:
                        raise SystemExit(f"{contender.name} shows {visible(contender, folder):,} of {seen:,} spans")
                    time.sleep(0.01)
                rates.append(traces * SPANS / (time.monotonic() - begun))
            return rates, ready_s, memory_mib(server.pid)


def killed(traces: int) -> tuple[int, int]:
    """How many spans ours answered for before it was killed, and how many of them are there afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving(OURS, folder) as (server, port, _):
            bodies = requests(traces, 1_720_000_000 * 10**9)
            send(OURS, port, bodies)
            server.kill()
            server.wait()
        return traces * SPANS, visible(OURS, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few traces: does it run at all?")
    parser.add_argument("--keep", action="store_true", help="write the report under bench/results")
    for option, (peer, variable) in (("--mlflow", MLFLOW), ("--phoenix", PHOENIX)):
        named = os.environ.get(variable)
        parser.add_argument(option, type=Path, default=Path(named) if named else None, help=f"an environment with {peer}, else {variable}")
    options = parser.parse_args()
    traces, rounds = (5, 1) if options.quick else (TRACES, ROUNDS)
    report = Report("otlp_ingest")
    report.say(f"  {traces} traces × {SPANS} spans, requests of {BATCH}, one client, SQLite, durable and visible")
    ours, ready_s, memory = measure(OURS, traces, rounds)
    report.figure("ours, spans/s (best of the rounds)", f"{max(ours):,.0f}", "≥ 6,000, the goal 10,000")
    report.say(f"    round by round: {', '.join(f'{rate:,.0f}' for rate in ours)}")
    report.figure("ours, memory", f"{memory:,.0f} MiB", "≤ 200")
    report.figure("ours, start to ready", f"{ready_s:.2f} s", "≤ 2 s")
    for made, environment, wanted in ((mlflow, options.mlflow, "≥ 2×"), (phoenix, options.phoenix, "≥ 40×")):
        if environment is None:
            report.say(f"  not beside {made.__name__}: no environment of it was named")
            continue
        contender = made(environment)
        # A peer that takes minutes for one round is measured by a part of it.
        part = max(traces // 10, 1) if made is phoenix else traces
        rates, theirs_ready_s, _ = measure(contender, part, 1 if made is phoenix else rounds)
        report.ratio("spans/s", max(ours), contender.name, max(rates), wanted)
        report.say(f"    round by round: {', '.join(f'{rate:,.0f}' for rate in rates)}; ready after {theirs_ready_s:.1f} s")
    answered, there = killed(traces)
    report.figure("answered for before SIGKILL, and lost", f"{answered:,} and {answered - there:,}", "0 lost")
    if options.keep:
        report.keep()


if __name__ == "__main__":
    main()
