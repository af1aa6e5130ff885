"""What Node's own OpenTelemetry exporters send is what everybody else sends: one payload for one edit."""

import json
import subprocess
from pathlib import Path
from shutil import which
from typing import Final

import pytest

from countermark.sessions.edits import FIELDS
from tests.server.running import Running
from tests.wire.otlp_requests import EDIT

NODE: Final = Path(__file__).parent / "node"
ANONYMOUS: Final = {name: value for name, value in EDIT.items() if name != "countermark.event.id"}


@pytest.mark.skipif(
    which("node") is None or not (NODE / "node_modules").is_dir(),
    reason="Node or its OpenTelemetry packages are missing: make node",
)
def test_one_edit_by_the_exporters_of_node_is_the_payload_of_everybody(server: Running) -> None:
    payload = {"kind": "weights.edit", **{field.key: EDIT["countermark.weights." + field.attribute] for field in FIELDS}}
    server.ingest({"type": "notification", "session": "conv-7", "payload": payload})
    sent = subprocess.run(
        ["node", "send.mjs", f"http://127.0.0.1:{server.port}", json.dumps(ANONYMOUS)], cwd=NODE, capture_output=True, text=True, timeout=60
    )
    assert (sent.returncode, sent.stderr) == (0, "")
    stored = server.stored()
    assert len({event.id for event in stored}) == 5
    assert len({event.payload.text for event in stored}) == 1
    assert {event.session for event in stored} == {"conv-7"}
    (listed,) = server.get("/v1/sessions").document["sessions"]
    assert listed["stats"]["weightEdits"] == {"edits": 5, "tensors": 1, "weightsChanged": 15}
    assert len({event["line"] for event in server.get("/v1/sessions/conv-7/events").document["events"]}) == 1
