"""`python -m regard` and the command `regard`.

Until `main` handles Ctrl-C itself, the signal ends the process at once: Python would print a traceback of the imports.
"""

import _signal  # type: ignore[import-not-found]  # the built-in half of `signal`, which takes no time to import

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # not where Ctrl-C is ignored
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from regard.cli import main

if __name__ == "__main__":
    main()
