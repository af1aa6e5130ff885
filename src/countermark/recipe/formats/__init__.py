"""Readers: one a format. Each has a closed table of every field of its format: maps to a coordinate, inert with a reason, or refused."""
