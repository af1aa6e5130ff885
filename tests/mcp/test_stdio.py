"""The protocol over standard input and output, with the official client and with one written by hand."""

import asyncio
import json
import os
import queue
import random
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
import pytest
from mcp import Client, StdioServerParameters

from countermark.mcp import roster, stdio
from countermark.mcp.arguments import Given
from countermark.mcp.desk import Desk, Stopped, Told, Watch
from countermark.mcp.roster import BY_NAME
from tests.cli.test_commands import write_safetensors
from tests.faults import planted, proven_by
from tests.mcp.asking import edit, store_events
from tests.mcp.raw import HELLO, PROGRAM, READY, Process, call, request, spoken


def test_a_client_of_2025_06_18_by_hand(here: Path, desk: Desk) -> None:
    store_events(here, [edit(1, "session-1"), edit(2, "session-2")])
    with spoken(desk) as server:
        # Before the handshake nothing is answered but what may be.
        assert server.ask(request(1, "ping"))["result"] == {}
        assert server.ask(request(2, "tools/list"))["error"]["code"] == -32602
        found = server.hello()["result"]
        assert (found["protocolVersion"], found["serverInfo"]["name"]) == ("2025-06-18", "countermark")
        assert server.ask(request(1, "ping"))["result"] == {}
        tools = server.ask(request(2, "tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == list(BY_NAME)
        listed = server.ask(call(3, "sessions_list"))["result"]
        assert (listed["isError"], [each["id"] for each in listed["structuredContent"]["sessions"]]) == (False, ["session-2", "session-1"])
        assert listed["content"][0]["text"].splitlines()[0].split("\t")[0] == "session"
        refused = server.ask(call(4, "session_get", session="nobody-has-it"))["result"]
        assert (refused["isError"], [each["code"] for each in refused["structuredContent"]["defects"]]) == (True, ["SessionUnknown"])
        resources = server.ask(request(5, "resources/list"))["result"]["resources"]
        contents = server.ask(request(6, "resources/read", uri=resources[0]["uri"]))["result"]["contents"]
        assert json.loads(contents[0]["text"])["session"]["id"] == "session-2"
        assert len(server.ask(request(7, "resources/templates/list"))["result"]["resourceTemplates"]) == 2
        for number, wrong, code in (
            (8, request(8, "no/method"), -32601),
            (9, call(9, "no_tool"), -32602),
            (10, request(10, "tools/call"), -32602),
            (11, request(11, "resources/read", uri="countermark://sessions/nobody-has-it"), -32602),
            (12, request(12, "tools/list", cursor="x"), -32602),
            (13, request(13, "prompts/list"), -32601),
        ):
            assert (server.ask(wrong)["error"]["code"], number) == (code, number)


@proven_by(planted(stdio, "LINE_BYTES_MAX", 2**40))
def test_lines_that_are_no_messages_are_answered_and_the_next_is_read(desk: Desk) -> None:
    longest = 1024 * 1024
    with spoken(desk) as server:
        server.hello()
        wrong = (
            (b"this is no JSON\n", -32700),
            (b'{"jsonrpc": "2.0", "id": 1\n', -32700),
            (b"\xff\xfe\x00\n", -32700),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "\\ud83e"}}\n', -32600),
            (b"[" * 10_000 + b"\n", -32700),
            (b"[]\n", -32600),
            (b'"text"\n', -32600),
            (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}\n', -32600),
            (b'{"jsonrpc": "2.0", "id": {"x": 1}, "method": "ping"}\n', -32600),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "' + b"x" * longest + b'"}}\n', -32600),
            (b"x" * (5 * longest) + b"\n", -32600),
        )
        for line, code in wrong:
            server.send(line)
            told = server.next()
            assert (told["id"], told.get("error", {}).get("code")) == (None, code), line[:80]
            assert "\n" not in told["error"]["message"]
        server.send(
            b"\n", b"  \r\n", b'{"jsonrpc": "2.0", "method": "notifications/none"}\n', b'{"jsonrpc": "2.0", "id": 99, "result": {}}\n'
        )
        assert server.ask(request(1, "ping"))["result"] == {}
        # A line without its end is one when the input ends.
        server.send(json.dumps(request(2, "ping")).encode())


def test_calls_that_come_together_are_all_answered(here: Path, desk: Desk) -> None:
    store_events(here, [edit(number, f"session-{number}") for number in range(20)])
    with spoken(desk) as server:
        server.hello()
        asked = [call(f"c{number}", "session_get", session=f"session-{number}") for number in range(10, 20)] * 10
        server.send(*({**message, "id": f"{message['id']}-{at}"} for at, message in enumerate(asked)))
        found = {}
        for _ in asked:
            message = server.next()
            found[message["id"]] = message["result"]["structuredContent"]["session"]["id"]
        assert found == {f"{message['id']}-{at}": message["params"]["arguments"]["session"] for at, message in enumerate(asked)}
        # Nobody waits for these.
        server.send(*(call(f"late{number}", "sessions_list") for number in range(50)))


def test_a_long_call_hears_that_nobody_waits(desk: Desk) -> None:
    ended: queue.Queue[str] = queue.Queue()

    def long(desk: Desk, given: Given, watch: Watch) -> Told:
        try:
            for done in range(10**9):
                watch.bytes_done(done, 10**9)
                time.sleep(0.005)
        except Stopped:
            ended.put("stopped")
            raise
        raise AssertionError

    with patch.dict(roster.BY_NAME, {"weights_diff": replace(roster.BY_NAME["weights_diff"], call=long)}), spoken(desk) as server:
        server.hello()
        asked = call(1, "weights_diff", a="a", b="b")
        asked["params"]["_meta"] = {"progressToken": "far"}
        server.send(asked)
        told = server.next()
        assert (told["method"], told["params"]["progressToken"]) == ("notifications/progress", "far")
        assert 0 <= told["params"]["progress"] <= told["params"]["total"] == 10**9
        assert told["params"]["message"].endswith(" of 1.0 GB read")
        server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "reason": "enough"}})
        assert ended.get(timeout=10) == "stopped"
        while (message := server.ask(request(2, "ping"))).get("method") == "notifications/progress":
            pass
        # No answer came to what was cancelled: the next is that to the ping.
        assert message == {"jsonrpc": "2.0", "id": 2, "result": {}}
        # What was not asked for is not told, and the end of the input ends the rest.
        server.send(call(3, "weights_diff", a="a", b="b"), request(4, "ping"))
        assert server.next() == {"jsonrpc": "2.0", "id": 4, "result": {}}
    assert ended.get(timeout=10) == "stopped"


def big(path: Path, megabytes: int, seed: int) -> None:
    """Weights that take a while to read."""
    block = random.Random(seed).randbytes(1024 * 1024)
    write_safetensors(path, {f"w{at}": block * 8 for at in range(megabytes // 8)})


@pytest.mark.slow
def test_a_long_call_tells_how_far_it_is_and_is_ended_when_it_is_cancelled(here: Path) -> None:
    for side, seed in (("a", 1), ("b", 2)):
        big(here / f"{side}.safetensors", 512, seed)
    with Process(here, env={"XDG_CACHE_HOME": str(here / "cache")}) as server:
        server.hello()
        asked = call(1, "weights_diff", a="a.safetensors", b="b.safetensors")
        asked["params"]["_meta"] = {"progressToken": "far"}
        server.send(asked)
        first = server.next()
        assert (first["method"], first["params"]["progressToken"]) == ("notifications/progress", "far")
        assert 0 <= first["params"]["progress"] <= first["params"]["total"]
        assert first["params"]["message"].endswith(" read")
        server.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "reason": "enough"}}, request(2, "ping")
        )
        while (message := server.next()).get("method") == "notifications/progress":
            pass
        # No answer comes to what was cancelled.
        assert message == {"jsonrpc": "2.0", "id": 2, "result": {}}
        begun = time.monotonic()
        cpu = _cpu_s(server.process.pid)
        time.sleep(0.5)
        # Whatever read for it reads no more.
        assert _cpu_s(server.process.pid) - cpu < 0.4 * (time.monotonic() - begun)
        # And the end of the input ends what reads.
        server.send(call(3, "weights_diff", a="a.safetensors", b="b.safetensors"))
        time.sleep(0.3)
        begun = time.monotonic()
        assert server.close() == 0
        assert time.monotonic() - begun < 3


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_what_is_printed_within_has_no_part_in_the_protocol(here: Path, tmp_path: Path) -> None:
    """A library that prints, below Python as well."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, countermark.mcp.sessions as s\nold = s.sessions_list\n"
        "def loud(*args):\n    print('printed'); os.write(1, b'written\\n'); return old(*args)\n"
        "import countermark.mcp.roster as r, dataclasses\n"
        "r.BY_NAME['sessions_list'] = dataclasses.replace(r.BY_NAME['sessions_list'], call=loud)\n"
    )
    store_events(here, [edit()])
    with Process(here, env={"PYTHONPATH": str(tmp_path)}) as server:
        server.hello()
        assert server.ask(call(1, "sessions_list"))["result"]["isError"] is False
        # A signal ends it at once, although its input is open.
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) == 130
    *others, last = sorted(b"".join(server.told).splitlines(), key=lambda line: line.startswith(b"countermark: interrupted"))
    assert (sorted(others), last.startswith(b"countermark: interrupted")) == ([b"printed", b"written"], True)


def test_a_client_that_reads_nothing_and_goes_away_keeps_nothing(here: Path, desk: Desk) -> None:
    store_events(here, [edit(1, payload={"note": "x" * 1_900})])
    (reading, into), (out, writing) = os.pipe(), os.pipe()
    with os.fdopen(reading, "rb") as first, os.fdopen(writing, "wb") as last, os.fdopen(into, "wb") as asked:
        server = threading.Thread(target=lambda: anyio.run(stdio.served, desk, first, last), daemon=True)
        server.start()
        for message in (HELLO, READY, *(call(number, "session_get", session="session-1") for number in range(60))):
            asked.write(json.dumps(message).encode() + b"\n")
        asked.flush()
        assert os.read(out, 1)
        os.close(out)
        asked.close()
        server.join(20)
        assert not server.is_alive()
        # What is left to be written has nowhere to go.
        with suppress(BrokenPipeError):
            last.close()


@pytest.mark.parametrize(("mode", "revision"), [("auto", "2026-07-28"), pytest.param("legacy", "2025-11-25", marks=pytest.mark.slow)])
def test_the_official_client(here: Path, mode: Any, revision: str) -> None:
    store_events(here, [edit(number, f"session-{number % 2}") for number in range(5)])

    async def talk() -> None:
        server = StdioServerParameters(command=PROGRAM[0], args=list(PROGRAM[1:]), cwd=here, env=dict(os.environ))
        async with Client(server, mode=mode) as client:
            assert client.protocol_version == revision
            assert [tool.name for tool in (await client.list_tools()).tools] == list(BY_NAME)
            # The client holds every answer against the schema of its tool.
            found = await client.call_tool("session_get", {"session": "session-1", "limit": 1})
            assert found.structured_content["total"] == 2
            found = await client.call_tool("session_get", {"session": "session-1", "cursor": found.structured_content["next"]})
            assert found.structured_content["first"] == 2
            assert (await client.call_tool("session_get", {})).is_error
            for resource in (await client.list_resources()).resources:
                assert (await client.read_resource(resource.uri)).contents
            for tool, given in (("search", {"text": "layers"}), ("runs_list", {}), ("checkpoint_inspect", {"paths": ["."]})):
                await client.call_tool(tool, given)

    asyncio.run(talk())


def test_a_message_of_the_handshake_is_no_message_of_the_new_revision(desk: Desk) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "by hand", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    with spoken(desk) as server:
        found = server.ask(request(1, "server/discover", _meta=meta))["result"]
        assert "2026-07-28" in found["supportedVersions"]
        tools = server.ask(request(2, "tools/list", _meta=meta))["result"]
        assert len(tools["tools"]) == len(BY_NAME)
        assert server.ask(dict(HELLO))["error"]["code"] < 0
        server.send(READY)
        other = server.ask(request(3, "tools/list", _meta={**meta, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}))
        assert other["error"]["code"] < 0 and "2026-07-28" in json.dumps(other["error"])
