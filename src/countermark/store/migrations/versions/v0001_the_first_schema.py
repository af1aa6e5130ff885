"""The first schema: runs, the facts of their control, sweeps and verdicts."""

from sqlalchemy import CheckConstraint, Column, Computed, ForeignKey, ForeignKeyConstraint, Integer, LargeBinary, UniqueConstraint, text

from countermark.store.migrations.place import COUNT, GUARD, WORDS, Place

revision = "0001"
down_revision = None


def ledger(place: Place) -> None:
    """The runs, and what control recorded of them."""
    if not place.in_sqlite:
        place.execute(GUARD)
    place.versions()
    _runs(place)
    place.create(
        "facts",
        Column("run_id", WORDS, ForeignKey("runs.run_id"), primary_key=True),
        Column("version", COUNT, primary_key=True, autoincrement=False),
        Column("kind", WORDS, nullable=False),
        Column("recorded_ms", COUNT, nullable=False),
        CheckConstraint("version >= 1", name="versions_begin_at_1"),
        CheckConstraint("kind IN ('claim', 'intent', 'outcome', 'cancellation', 'abandonment')", name="kind_is_known"),
        sqlite_with_rowid=False,
    )
    place.guard("facts", ("run_id", "version"))
    _claims(place)
    _dispatches(place)
    _decisions(place)


def _runs(place: Place) -> None:
    digest = "encode(sha256(material), 'hex')"
    place.create(
        "runs",
        Column("run_id", WORDS, primary_key=True),
        *(Column(name, WORDS, nullable=False) for name in ("requester", "request", "principal")),
        Column("work_digest", WORDS, *(() if place.in_sqlite else (Computed(digest, persisted=True),)), nullable=False),
        *(Column(name, WORDS, nullable=False) for name in ("requirements", "manifest", "recipe_name", "sources", "trainer")),
        *(Column(name, WORDS, nullable=False) for name in ("argv", "cwd", "env", "launcher", "receipts")),
        Column("created_ms", COUNT, nullable=False),
        *(() if place.in_sqlite else (Column("material", LargeBinary, nullable=False),)),
        UniqueConstraint("requester", "request"),
        CheckConstraint("length(run_id) = 32", name="run_id_has_32_digits"),
        CheckConstraint("length(work_digest) = 64", name="work_digest_has_64_digits"),
    )
    place.index("ix_runs_work_digest", "runs", "work_digest")
    place.guard("runs", ("run_id",), ("requester", "request"))


def _claims(place: Place) -> None:
    place.create(
        "claims",
        Column("run_id", WORDS, primary_key=True),
        Column("version", COUNT, primary_key=True, autoincrement=False),
        Column("slot", WORDS, nullable=False),
        Column("nonce", WORDS, nullable=False),
        Column("cause", WORDS, nullable=False),
        Column("predecessor", WORDS),
        UniqueConstraint("slot"),
        UniqueConstraint("nonce"),
        UniqueConstraint("run_id", "nonce"),
        ForeignKeyConstraint(["run_id", "version"], ["facts.run_id", "facts.version"]),
        ForeignKeyConstraint(["run_id", "predecessor"], ["claims.run_id", "claims.nonce"]),
        CheckConstraint("length(slot) = 64", name="slot_has_64_digits"),
        CheckConstraint("length(nonce) = 32", name="nonce_has_32_digits"),
    )
    named = text("predecessor IS NOT NULL")
    place.index("one_successor", "claims", "predecessor", unique=True, sqlite_where=named, postgresql_where=named)
    place.guard("claims", ("run_id", "version"), ("nonce",), ("run_id", "nonce"), ("slot",), ("predecessor",))


def _dispatches(place: Place) -> None:
    place.create(
        "intents",
        Column("run_id", WORDS, primary_key=True),
        Column("version", COUNT, primary_key=True, autoincrement=False),
        *(Column(name, WORDS, nullable=False) for name in ("nonce", "launcher", "host")),
        UniqueConstraint("run_id", "nonce"),
        ForeignKeyConstraint(["run_id", "version"], ["facts.run_id", "facts.version"]),
        ForeignKeyConstraint(["run_id", "nonce"], ["claims.run_id", "claims.nonce"]),
    )
    place.guard("intents", ("run_id", "version"), ("run_id", "nonce"))
    place.create(
        "outcomes",
        Column("run_id", WORDS, primary_key=True),
        Column("version", COUNT, primary_key=True, autoincrement=False),
        *(Column(name, WORDS, nullable=False) for name in ("nonce", "result", "detail")),
        UniqueConstraint("nonce", "result"),
        ForeignKeyConstraint(["run_id", "version"], ["facts.run_id", "facts.version"]),
        ForeignKeyConstraint(["run_id", "nonce"], ["intents.run_id", "intents.nonce"]),
        CheckConstraint("result IN ('dispatched', 'refused', 'unknown')", name="result_is_known"),
    )
    place.guard("outcomes", ("run_id", "version"), ("nonce", "result"))


def _decisions(place: Place) -> None:
    place.create(
        "cancellations",
        Column("run_id", WORDS, primary_key=True),
        Column("version", COUNT, nullable=False),
        Column("said_by", WORDS, nullable=False),
        ForeignKeyConstraint(["run_id", "version"], ["facts.run_id", "facts.version"]),
    )
    place.guard("cancellations", ("run_id",))
    place.create(
        "abandonments",
        Column("run_id", WORDS, primary_key=True),
        Column("version", COUNT, primary_key=True, autoincrement=False),
        Column("nonce", WORDS, nullable=False),
        Column("said_by", WORDS, nullable=False),
        UniqueConstraint("nonce"),
        ForeignKeyConstraint(["run_id", "version"], ["facts.run_id", "facts.version"]),
        ForeignKeyConstraint(["run_id", "nonce"], ["claims.run_id", "claims.nonce"]),
    )
    place.guard("abandonments", ("run_id", "version"), ("nonce",))


def observations(place: Place) -> None:
    """What was looked at, and what followed from it."""
    if place.in_sqlite:
        place.versions()
    place.create(
        "sweeps",
        Column("ordinal", COUNT, primary_key=True),
        Column("sweep_id", WORDS, nullable=False),
        Column("run_id", WORDS, nullable=False),
        Column("started_ms", COUNT, nullable=False),
        Column("ended_ms", COUNT, nullable=False),
        Column("digest", WORDS, nullable=False),
        Column("document", LargeBinary, nullable=False),
        UniqueConstraint("sweep_id"),
        CheckConstraint("length(digest) = 64", name="digest_has_64_digits"),
        sqlite_autoincrement=True,
    )
    place.index("sweeps_of_run", "sweeps", "run_id", "ordinal")
    place.guard("sweeps", ("ordinal",), ("sweep_id",))
    place.create(
        "verdicts",
        Column("ordinal", COUNT, primary_key=True),
        Column("sweep_id", WORDS, ForeignKey("sweeps.sweep_id"), nullable=False),
        Column("run_id", WORDS, nullable=False),
        Column("arm", WORDS, nullable=False),
        Column("closed", Integer, nullable=False),
        Column("version", COUNT, nullable=False),
        Column("text", LargeBinary, nullable=False),
        CheckConstraint("closed IN (0, 1)", name="closed_is_a_truth_value"),
        sqlite_autoincrement=True,
    )
    place.index("ix_verdicts_sweep_id", "verdicts", "sweep_id")
    place.index("verdicts_of_run", "verdicts", "run_id", "ordinal")
    place.guard("verdicts", ("ordinal",))
