"""Runs: demands, attempts and their graph, claims, and the admission of checkpoints. Pure: no clock, no disk, no randomness."""
