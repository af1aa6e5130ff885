"""What a simulated history raises where something happened that must not."""


class Broken(AssertionError):
    """What must not happen, happened."""
