"""Sessions in a database: events as they came in, their folds, and the index by which they are searched."""
