"""Observers: look at processes, files and schedulers, and return readings. They conclude nothing and change nothing."""
