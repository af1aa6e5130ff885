"""The versions' scripts in their order, and running them.

Rules kept here:

1. A script's revision is the version that it leads to, in four digits; Alembic's graph of them is one line.
2. A script has a function for each part of a store (``ledger``, ``observations``); each part goes on from the version that it has.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

from sqlalchemy import Connection

from countermark.store.migrations.outcome import Step

Part: TypeAlias = Literal["ledger", "observations"]
PARTS: Final[tuple[Part, ...]] = ("ledger", "observations")


@final
@dataclass(frozen=True, slots=True)
class Database:
    """Where parts lie together, under one table of versions; ``schema`` is the name of the attached file in SQLite."""

    parts: tuple[Part, ...]
    schema: str | None


#: In SQLite each part is a file, in PostgreSQL both are one schema.
FILES: Final = (Database(("ledger",), "main"), Database(("observations",), "observations"))
ONE_SCHEMA: Final = (Database(PARTS, None),)


@final
@dataclass(frozen=True, slots=True)
class Script:
    """One version's script."""

    step: Step
    parts: Mapping[Part, Callable[..., None]]


def scripts() -> tuple[Script, ...]:
    """Every script, the first version's first."""
    from alembic.script import ScriptDirectory

    revisions = tuple(ScriptDirectory(Path(__file__).parent).walk_revisions())
    return tuple(
        Script(
            Step(int(revision.revision), revision.doc),
            {part: getattr(revision.module, part) for part in PARTS},
        )
        for revision in reversed(revisions)
    )


def steps(after: int, until: int) -> tuple[Step, ...]:
    """What leads from one version to a later one."""
    return tuple(script.step for script in scripts() if after < script.step.version <= until)


def upgrade(connection: Connection, versions: Mapping[Database, int], until: int, now_ms: int) -> None:
    """Bring each database from its version (0: there is nothing) to version ``until``, in the caller's transaction."""
    from countermark.store.migrations.place import Place

    for script in scripts():
        for database, version in versions.items():
            if version < script.step.version <= until:
                place = Place(connection, database.schema, now_ms)
                for part in database.parts:
                    script.parts[part](place)
                place.stamp(script.step.version)
    connection.execution_options(schema_translate_map={})
