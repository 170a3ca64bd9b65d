"""The one error class for a user's mistake."""


class UserError(ValueError):
    """A request that cannot be met: the message says what is wrong and what to do, in one line.

    The command line prints it after ``vitbo: error:`` and exits with code 2, without a traceback.

    >>> raise UserError("N = 0 leaves nothing to train on; give N >= 1")
    Traceback (most recent call last):
        ...
    vitbo_lib.errors.UserError: N = 0 leaves nothing to train on; give N >= 1
    """

    def __init__(self, message: str):
        super().__init__(" ".join(str(message).split()))
