"""What a user can get wrong, said in one sentence, and being asked to stop."""


class RegardError(Exception):
    """A mistake in the input, as one sentence that ends with the next step; the command line then exits with 2."""


class Stopped(Exception):
    """Asked to stop (Ctrl-C or SIGTERM) during training: the checkpoint of `step` is on disk."""

    def __init__(self, step: int):
        super().__init__(f"stopped at step {step}")
        self.step = step
