"""The versions of the schema, one script each."""
