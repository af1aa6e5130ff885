"""Bytes from outside and the values that they stand for."""
