"""A call that cannot be carried out as it was made."""


class WrongCall(Exception):
    """Wrong usage, exit code 2: ``why`` says what is wrong, ``usage`` how the command is called."""

    def __init__(self, why: str, usage: str) -> None:
        super().__init__(why)
        self.why = why
        self.usage = usage
