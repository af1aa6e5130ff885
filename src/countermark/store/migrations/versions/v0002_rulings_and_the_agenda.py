"""A person's rulings, who asked for a claim, and the agenda of the runs that may be open."""

from sqlalchemy import CheckConstraint, Column, ForeignKey, ForeignKeyConstraint, UniqueConstraint, text

from countermark.store.migrations.place import COUNT, WORDS, Place

revision = "0002"
down_revision = "0001"

_KINDS = "kind IN ('claim', 'intent', 'outcome', 'cancellation', 'abandonment', 'adjudication')"
#: The runs that their latest verdict did not close, or not at the version that they have.
_OPEN = """
INSERT INTO agenda (run_id, due_ms) SELECT runs.run_id, :now FROM runs WHERE NOT EXISTS (
  SELECT 1 FROM verdicts
   WHERE verdicts.ordinal = (SELECT max(latest.ordinal) FROM verdicts AS latest WHERE latest.run_id = runs.run_id)
     AND verdicts.closed = 1
     AND verdicts.version = (SELECT count(*) FROM facts WHERE facts.run_id = runs.run_id))
""".strip()


def ledger(place: Place) -> None:
    """Rulings and the agenda, which begins with every run that is not closed."""
    if place.in_sqlite:
        _facts_and_claims_again(place)
    else:
        place.operations.drop_constraint("kind_is_known", "facts")
        place.operations.create_check_constraint("kind_is_known", "facts", text(_KINDS))
        place.operations.add_column("claims", Column("said_by", WORDS))
    place.create(
        "adjudications",
        Column("run_id", WORDS, primary_key=True),
        Column("version", COUNT, primary_key=True, autoincrement=False),
        Column("nonce", WORDS, nullable=False),
        Column("ruling", WORDS, nullable=False),
        Column("source", WORDS),
        *(Column(name, WORDS, nullable=False) for name in ("blockers", "said_by", "reason")),
        ForeignKeyConstraint(["run_id", "version"], ["facts.run_id", "facts.version"]),
        ForeignKeyConstraint(["run_id", "nonce"], ["claims.run_id", "claims.nonce"]),
        CheckConstraint("ruling IN ('set_aside', 'believe_source')", name="ruling_is_known"),
        CheckConstraint("(ruling = 'believe_source') = (source IS NOT NULL)", name="a_source_is_what_is_believed"),
    )
    place.guard("adjudications", ("run_id", "version"))
    place.create(
        "agenda",
        Column("run_id", WORDS, ForeignKey("runs.run_id"), primary_key=True),
        Column("due_ms", COUNT, nullable=False),
        sqlite_with_rowid=False,
    )
    place.index("agenda_by_time", "agenda", "due_ms", "run_id")
    place.execute(_OPEN, now=place.now_ms)


def _facts_and_claims_again(place: Place) -> None:
    """SQLite changes no constraint of a table, and puts a new column behind its constraints."""
    place.create_again(
        "facts",
        Column("run_id", WORDS, ForeignKey("runs.run_id"), primary_key=True),
        Column("version", COUNT, primary_key=True, autoincrement=False),
        Column("kind", WORDS, nullable=False),
        Column("recorded_ms", COUNT, nullable=False),
        CheckConstraint("version >= 1", name="versions_begin_at_1"),
        CheckConstraint(_KINDS, name="kind_is_known"),
        kept=("run_id", "version", "kind", "recorded_ms"),
        sqlite_with_rowid=False,
    )
    place.guard("facts", ("run_id", "version"))
    place.create_again(
        "claims",
        Column("run_id", WORDS, primary_key=True),
        Column("version", COUNT, primary_key=True, autoincrement=False),
        Column("slot", WORDS, nullable=False),
        Column("nonce", WORDS, nullable=False),
        Column("cause", WORDS, nullable=False),
        Column("predecessor", WORDS),
        Column("said_by", WORDS),
        UniqueConstraint("slot"),
        UniqueConstraint("nonce"),
        UniqueConstraint("run_id", "nonce"),
        ForeignKeyConstraint(["run_id", "version"], ["facts.run_id", "facts.version"]),
        ForeignKeyConstraint(["run_id", "predecessor"], ["claims.run_id", "claims.nonce"]),
        CheckConstraint("length(slot) = 64", name="slot_has_64_digits"),
        CheckConstraint("length(nonce) = 32", name="nonce_has_32_digits"),
        kept=("run_id", "version", "slot", "nonce", "cause", "predecessor"),
    )
    named = text("predecessor IS NOT NULL")
    place.index("one_successor", "claims", "predecessor", unique=True, sqlite_where=named)
    place.guard("claims", ("run_id", "version"), ("nonce",), ("run_id", "nonce"), ("slot",), ("predecessor",))


def observations(place: Place) -> None:
    """Sweeps and verdicts stayed as they were."""
