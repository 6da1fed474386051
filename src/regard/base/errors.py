"""Errors that a user can cause, in one sentence each, and requests to stop."""

from signal import SIGINT


class RegardError(Exception):
    """An error that the user can fix. Its message names the next step. On the command line, the exit status is 2."""


class Stopped(Exception):
    """A signal (Ctrl-C or SIGTERM) stopped the training: the checkpoint of `step` is on disk."""

    def __init__(self, step: int, signal: int = SIGINT):
        super().__init__(f"stopped at step {step}")
        self.step, self.signal = step, signal


class Terminated(KeyboardInterrupt):
    """SIGTERM asked the process to end, as Ctrl-C does; the exit code is then 143 instead of 130."""
