"""Launching: starts what a committed claim names, stops it, fences it, and supervises it to its end.

Kept light on purpose: the supervisor imports this room at every start.
"""
