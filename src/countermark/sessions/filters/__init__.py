"""Where-filters: one grammar and one registry of keys for everything that is listed."""
