"""One value, one line: the only formatters. Every surface prints through these, so that a fact reads the same everywhere.

Pure: no clock, no disk, no terminal. Text that came from outside is escaped here, before it can reach one.
"""
