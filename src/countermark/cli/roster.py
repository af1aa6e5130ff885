"""Every command, once: help, completion, the reference page and the tests iterate this list.

A command's module is imported only when it is called, so its one-line help stands here; a test holds it to the function's docstring.
"""

from dataclasses import dataclass
from typing import Final, final


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """A command: the words that call it, the module and function behind them, one line of help, and the section it stands in."""

    words: tuple[str, ...]
    module: str
    help: str
    section: str
    takes_command: bool = False

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def function(self) -> str:
        return "_".join(self.words).replace("-", "_")


_START: Final = "Start here"
_RECIPES: Final = "Recipes"
_RUNS: Final = "Runs"
_WEIGHTS: Final = "Checkpoints and weights"
_SESSIONS: Final = "Sessions"
_CARE: Final = "Care"

ENTRIES: Final = (
    Entry(("demo",), "demo", "Tell the whole story on a real small fine-tune, in a folder of its own.", _START),
    Entry(("doctor",), "doctor", "Say what is set and from where, what is missing, and the command that mends it.", _START),
    Entry(("resolve",), "resolve", "Resolve a recipe to its manifest and Work key, or name every unresolved axis.", _RECIPES),
    Entry(("key",), "key", "Print a recipe's Work key alone; --explain shows what it is derived from.", _RECIPES),
    Entry(("manifest", "diff"), "manifest_diff", "Name every coordinate in which two recipes, runs or checkpoints differ.", _RECIPES),
    Entry(("run",), "run", "Claim a recipe's work, start COMMAND for it, watch until a verdict; or attach.", _RUNS, takes_command=True),
    Entry(("resume",), "resume", "Go on from an admitted checkpoint of a run that ended without success.", _RUNS),
    Entry(("retry",), "retry", "Make an attempt again after every attempt ended without success, or was lost.", _RUNS),
    Entry(
        ("reexecute",), "reexecute", "Do the work of a run at rest once more, from nothing, and say whether the weights are equal.", _RUNS
    ),
    Entry(("abandon",), "abandon", "Give up an attempt: it is stopped where it shows up, and another one may be started for it.", _RUNS),
    Entry(
        ("adjudicate",),
        "adjudicate",
        "Rule on the conflicts that block a run; the ruling is recorded beside the evidence and erases nothing.",
        _RUNS,
    ),
    Entry(("cancel",), "cancel", "End a run for good: nothing of it starts any more, and what lives of it here is stopped.", _RUNS),
    Entry(("status",), "status", "Say where a run stands and why; without RUN, what needs you.", _RUNS),
    Entry(("runs",), "runs", "List the runs of the store, newest first.", _RUNS),
    Entry(("reconcile",), "reconcile", "Look at every axis, fold to a verdict and say what should happen; --act does it.", _RUNS),
    Entry(("attempts",), "attempts", "Show a run's attempts, their causes and how each ended.", _RUNS),
    Entry(("claims",), "claims", "Show a run's claims, dispatches and decisions in the order of the ledger.", _RUNS),
    Entry(("evidence",), "evidence", "Show what the last sweep saw on each axis, with receipts, in read order.", _RUNS),
    Entry(("checkpoint", "inspect"), "checkpoint_inspect", "Show components, digests and step witnesses, and every defect.", _WEIGHTS),
    Entry(("checkpoint", "publish"), "checkpoint_publish", "Publish a checkpoint atomically, with digests.", _WEIGHTS),
    Entry(
        ("checkpoint", "prune"), "checkpoint_prune", "Delete old checkpoints, never the last admitted one; shows the plan first.", _WEIGHTS
    ),
    Entry(("weights", "root"), "weights_root", "Digest weights independently of sharding and metadata.", _WEIGHTS),
    Entry(("weights", "diff"), "weights_diff", "Say what changed between two weights, tensor by tensor, with both roots.", _WEIGHTS),
    Entry(
        ("weights", "apply-root"),
        "weights_apply_root",
        "Derive the root that recorded edits make of a base, or name every edit that does not fit.",
        _WEIGHTS,
    ),
    Entry(
        ("weights", "composition"),
        "weights_composition",
        "Digest what ran: base, adapters and how they were merged, tokenizer, load type.",
        _WEIGHTS,
    ),
    Entry(("weights", "record"), "weights_record", "Record a weight edit in a session.", _SESSIONS),
    Entry(("list",), "list_sessions", "List the sessions of the store, those that changed last first.", _SESSIONS),
    Entry(("show",), "show", "Show what a session comes to and its events in their order, weight edits as everywhere.", _SESSIONS),
    Entry(("search",), "search", "Find the events that hold every word of a text, the last received first.", _SESSIONS),
    Entry(("tail",), "tail", "Show the events that were received last, and with --follow those that come in.", _SESSIONS),
    Entry(
        ("import", "transcript"),
        "import_transcript",
        "Store transcripts of agents as sessions, without their secrets; again stores nothing twice.",
        _SESSIONS,
    ),
    Entry(("export",), "export", "Write the events of sessions as JSON lines, CSV or Parquet.", _SESSIONS),
    Entry(("serve",), "serve", "Take events by HTTP and OpenTelemetry, and answer for sessions, until Ctrl-C.", _SESSIONS),
    Entry(("mcp",), "mcp", "Answer clients of the Model Context Protocol, which may read and change nothing.", _SESSIONS),
    Entry(("token", "add"), "token_add", "Make a token and tell it once; what is kept of it is its hash.", _SESSIONS),
    Entry(("token", "list"), "token_list", "List the server's tokens by their names; none of them can be told again.", _SESSIONS),
    Entry(("token", "revoke"), "token_revoke", "Take a token's rights for good: the next request with it is turned away.", _SESSIONS),
    Entry(("store", "init"), "store_init", "Create a store here, and say where it lies.", _CARE),
    Entry(("store", "migrate"), "store_migrate", "Bring a store of an earlier release to this one's schema, whole or not at all.", _CARE),
    Entry(
        ("store", "prune"), "store_prune", "Take out sessions in which nothing happened for some days; shows first what would go.", _CARE
    ),
    Entry(("store", "check"), "store_check", "Read everything in a store and derive every key in it again.", _CARE),
)

#: One line for each group of commands.
GROUPS: Final = {
    "manifest": "Compare manifests.",
    "checkpoint": "Inspect, publish and prune checkpoints.",
    "weights": "Digest weights, and say what changed.",
    "import": "Bring in what others wrote.",
    "token": "Make and revoke the server's tokens.",
    "store": "Create, migrate, prune and check a store.",
}
