"""From a store of an earlier version of the schema to one of this version, in place.

Rules kept here:

1. A version's script says what was true then: its tables are spelled out in it and import nothing that may change. That all scripts
   together make what ``schema`` makes afresh is held by tests, on both kinds of database, object by object.
2. ``schema_versions`` alone says which version a store has. Alembic gives the order of the scripts and the operations; it keeps no table
   and no stamp of its own (docs/decisions/0012-one-version-of-the-schema.md).
3. A store that is not whole before, or would not be whole after, stays as it is.
4. Everything is one transaction, also where it spans two files. Nobody else has the store open meanwhile: a program of the old version
   would go on writing as the old version did.
5. Alembic is imported when a store is migrated, and at no other time.
"""
