"""The few operations that every surface calls. They take parsed values, act through the store, the launcher and the observers, and
return values; what a surface prints is made by ``countermark.lines``."""
