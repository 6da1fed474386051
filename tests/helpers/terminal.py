"""A program in a pseudo-terminal, for tests of what people type."""

import os
import re
import select
import subprocess


class Terminal:
    """A program in a pseudo-terminal, with what it has said so far."""

    def __init__(self, *words, **environment):
        import pty

        self.ours, theirs = pty.openpty()
        self.said, self.read = "", 0
        self.child = subprocess.Popen(
            [*map(str, words)],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
            env={**os.environ, "OMP_NUM_THREADS": "1", "TERM": "dumb", **environment},
        )  # fmt: skip
        os.close(theirs)

    def type(self, words):
        os.write(self.ours, words.encode())

    def expect(self, pattern):
        """Wait until this is said; what was said before it is passed over."""
        while not (found := re.search(pattern, self.said[self.read :])):
            assert select.select([self.ours], [], [], 300)[0], self.said
            try:
                self.said += os.read(self.ours, 4096).decode(errors="replace")
            except OSError:  # the other side is closed
                raise AssertionError(f"{pattern!r} was not said: {self.said}") from None
        self.read += found.end()
        return found

    def interrupt(self, pattern):
        """Ctrl-C at the prompt, until this is said. Python notices a signal that comes after the prompt is shown and
        before it waits for a key only with the next key: then there is one more."""
        self.type("\x03")
        while not select.select([self.ours], [], [], 10)[0]:
            self.type("\x03")
        return self.expect(pattern)

    def end(self):
        try:
            while os.read(self.ours, 4096):
                pass
        except OSError:
            pass
        os.close(self.ours)
        return self.child.wait()
