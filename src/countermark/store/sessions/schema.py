"""The tables of sessions, as statements name them. ``steps`` makes them.

Rules kept here:

1. ``events`` and ``event_conflicts`` are what was received. Triggers refuse to change a row of them, but for the session of an event, which
   follows from what is known of its trace; rows are taken out by retention alone. ``trace_names`` says which sessions a trace names.
2. Everything else is derived from these: a session's fold, what counts in it once, its tags and checkpoints, and the index for searching.
3. A number that is unknown is 0, and a text that is unknown is ''. A sum that may pass 64 bits is kept exactly in a text; its column of
   numbers, which filters ask, then stands at the largest of 64 bits.
4. What is sent on to other places is no copy of an event: a sink has its place among them, so that the commit that stores one queues it.
5. What is indexed is bounded: PostgreSQL's index holds 2,700 bytes, so what counts once is kept under a digest of its name.
"""

from typing import Final

from sqlalchemy import BigInteger, Column, Double, Integer, MetaData, Table, Text

#: The version of the tables that this program reads and writes.
SESSIONS_VERSION: Final = 1

SESSIONS: Final = MetaData()

#: Which steps of which version were taken.
steps_taken: Final = Table(
    "schema_versions",
    SESSIONS,
    Column("version", Integer, primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("what", Text, nullable=False),
    Column("applied_ms", BigInteger, nullable=False),
)

#: One row: the number of the event that was received last. Who writes holds it, so that numbers become visible in their order.
feed: Final = Table("feed", SESSIONS, Column("one", Integer, primary_key=True), Column("ordinal", BigInteger, nullable=False))

events: Final = Table(
    "events",
    SESSIONS,
    Column("ordinal", BigInteger, primary_key=True),
    Column("event_id", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("when_ns", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("own_session", Text),
    Column("trace", Text),
    Column("span", Text),
    Column("parent", Text),
    Column("source", Text),
    Column("start_ns", BigInteger, nullable=False),
    Column("end_ns", BigInteger, nullable=False),
    Column("received_ns", BigInteger, nullable=False),
    Column("forwarded", Integer, nullable=False),
    Column("payload", Text, nullable=False),
    Column("sanitized", Text, nullable=False),
)

trace_names: Final = Table("trace_names", SESSIONS, Column("trace", Text, primary_key=True), Column("session_id", Text, primary_key=True))

event_conflicts: Final = Table(
    "event_conflicts",
    SESSIONS,
    Column("event_id", Text, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("received_ns", BigInteger, nullable=False),
    Column("payload", Text, nullable=False),
    Column("sanitized", Text, nullable=False),
)

sessions: Final = Table(
    "sessions",
    SESSIONS,
    Column("session_id", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("started_ns", BigInteger, nullable=False),
    Column("ended_ns", BigInteger, nullable=False),
    Column("updated_ns", BigInteger, nullable=False),
    Column("said_end_ns", BigInteger, nullable=False),
    Column("closed", Integer, nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("messages", BigInteger, nullable=False),
    Column("tools", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("odd_times", BigInteger, nullable=False),
    Column("sanitized", BigInteger, nullable=False),
    Column("conflicts", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cost", Double, nullable=False),
    Column("usage", Text, nullable=False),
    Column("weight_edits", BigInteger, nullable=False),
    Column("weight_tensors", BigInteger, nullable=False),
    Column("weights_changed", Text, nullable=False),
    Column("fold_version", BigInteger, nullable=False),
)

session_keys: Final = Table(
    "session_keys",
    SESSIONS,
    Column("session_id", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cost_pico", BigInteger, nullable=False),
)

session_tags: Final = Table("session_tags", SESSIONS, Column("session_id", Text, primary_key=True), Column("tag", Text, primary_key=True))

session_checkpoints: Final = Table(
    "session_checkpoints",
    SESSIONS,
    Column("session_id", Text, primary_key=True),
    Column("side", Text, primary_key=True),
    Column("digest", Text, primary_key=True),
)

#: Places to which edits are sent on: up to which event all of them were, who sends now and until when, and the last failure.
sinks: Final = Table(
    "sinks",
    SESSIONS,
    Column("sink", Text, primary_key=True),
    Column("ordinal", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("until_ns", BigInteger, nullable=False),
    Column("failed_ns", BigInteger, nullable=False),
    Column("why", Text, nullable=False),
)

#: The sessions of edits that were sent: the id under which they were, the session that it is now, and whether its own span was sent.
sink_sessions: Final = Table(
    "sink_sessions",
    SESSIONS,
    Column("sink", Text, primary_key=True),
    Column("sent_as", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("told", Integer, nullable=False),
)

#: What a sink never takes, and why: it is not sent again.
sink_aside: Final = Table(
    "sink_aside",
    SESSIONS,
    Column("sink", Text, primary_key=True),
    Column("item", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("aside_ns", BigInteger, nullable=False),
    Column("why", Text, nullable=False),
)

#: The tables of what a session derives from its events, by its id.
OF_SESSION: Final = (sessions, session_keys, session_tags, session_checkpoints)
