"""Answers without the seconds that loading PyTorch takes: with REGARD_RESIDENT=MINUTES, `translate`, `generate`,
`classify` and `score` ask a resident process, which forks for each command (`resident_process.py`).

The fork gets this process's open files, working directory and process group. So it reads the real input, writes the
real output and receives the terminal's signals itself; this process only waits for its exit code. A resident process
answers only commands that could have started it: everything a process inherits is part of the name of its socket. It
ends with the session (the terminal), after so many idle minutes, or when a file it has loaded changes.

This module imports little, since its imports are most of what a second answer costs.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from regard.base.errors import RegardError

SWITCH = "REGARD_RESIDENT"
VERBS = ("translate", "generate", "classify", "score")
CHANGING = {"_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES"}  # variables that each command receives anew
MAX_FILES = 200  # open files that one message can carry, with some to spare
ALREADY, STARTED, GO = b"A", b"S", b"G"
LENGTH = 8  # bytes before each message
WAITED = 0.2  # seconds until a signal that another process sent is passed on, if the fork did not receive it, too

inside = False  # True in a fork of a resident process


def idle_minutes() -> float:
    """The value of REGARD_RESIDENT; 0 if it is not set."""
    text = os.environ.get(SWITCH, "")
    try:
        minutes = float(text or 0)
    except ValueError:
        minutes = -1.0
    if not 0 <= minutes <= 1440:
        raise RegardError(
            f"{SWITCH} must be the number of idle minutes after which the resident process ends, as in {SWITCH}=10, "
            f"not {text[:40]!r}."
        )
    return minutes


def answered_there(words: list[str]) -> bool:
    """End this process as the resident's answer ended; return False if this process must answer itself."""
    if inside or not words or words[0] not in VERBS or not idle_minutes():
        return False
    if sys.platform != "linux":
        _say(f"note: {SWITCH} works only on Linux; this command starts as usual")
        return False
    if os.getsid(0) == os.getpid():  # the session ends with this command
        return False
    try:
        path = socket_path()
        for _ in range(2):  # the first may have ended at this moment, or be out of date
            with _connected(path) as connection:
                if _request(connection, words):
                    _wait(connection)
    except OSError as error:
        _say(f"note: no resident process is available ({error.strerror or error}); this command starts as usual")
    return False


def _say(line: str) -> None:
    if sys.stderr is not None:
        print(line, file=sys.stderr, flush=True)


def socket_path() -> str:
    """The socket of the resident process for commands like this one, in a folder that only this user can enter."""
    import tempfile

    place = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = os.path.join(place, f"regard-{os.getuid()}")
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    state = os.lstat(folder)
    if state.st_uid != os.getuid() or state.st_mode & 0o170077 != 0o040000:
        raise OSError(f"{folder} is not a folder that only you can enter")
    return os.path.join(folder, f"{_inherited()}.sock")


def _inherited() -> str:
    """A digest of everything that a process started from here inherits, and of the program itself."""
    import resource
    from hashlib import blake2b

    mask = os.umask(0o077)
    os.umask(mask)
    limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    ignored = [n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    root = os.stat("/")
    spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("mnt", "pid", "net")]
    parts = (
        sorted((name, value) for name, value in os.environ.items() if name not in CHANGING),
        (sys.executable, sys.version, sys.path, tuple(sys.flags), sorted(sys._xoptions.items()), sys.warnoptions),
        (os.getresuid(), os.getresgid(), os.getgroups(), os.getsid(0)),
        (
            mask,
            limits,
            sorted(map(int, ignored)),
            sorted(map(int, blocked)),
            os.nice(0),
            sorted(os.sched_getaffinity(0)),
        ),
        (root.st_dev, root.st_ino, spaces),
        __file__,
    )
    return blake2b(repr(parts).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


@contextmanager
def _connected(path: str) -> Iterator[socket.socket]:
    """A connection to the resident process of this path, which is started if there is none."""
    import fcntl

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with connection, open(os.path.join(os.path.dirname(path), "lock"), "ab") as guard:
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            fcntl.flock(guard, fcntl.LOCK_EX)  # of several commands one starts it
            try:
                connection.connect(path)
            except (FileNotFoundError, ConnectionRefusedError):
                _start(path)
                connection.connect(path)
        guard.close()
        if peer_user(connection) != os.getuid():
            raise OSError(f"{path} belongs to another user")
        yield connection


def _start(path: str) -> None:
    """Start the resident process on a socket that already accepts connections."""
    import subprocess

    with suppress(FileNotFoundError):
        os.unlink(path)  # of one that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(64)
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
        arguments = [path, str(listener.fileno()), str(60 * idle_minutes()), *sys.path]
        subprocess.Popen(
            [sys.executable, *flags, "-P", "-m", "regard.cli.resident_process", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            process_group=0,  # Ctrl-C is for commands
            cwd="/",
        ).returncode = 0  # nobody waits for it


def peer_user(connection: socket.socket) -> int:
    """The user of the process at the other end, as the system says it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)  # process, user, group
    return int.from_bytes(credentials[4:8], sys.byteorder)


def _request(connection: socket.socket, words: list[str]) -> bool:
    """Send the command with this process's open files; False if no fork came of it."""
    files = [int(name) for name in os.listdir("/dev/fd")]
    files = [number for number in files if _is_inherited(number)]
    if len(files) > MAX_FILES:
        raise OSError("this process has too many open files")
    here = os.open(".", os.O_RDONLY)
    try:
        fields = [str(os.getpgid(0)), ",".join(map(str, files)), str(1 + len(words)), sys.argv[0], *words]
        fields += [f"{name}={value}" for name, value in os.environ.items()]
        content = b"\0".join(map(os.fsencode, fields))
        socket.send_fds(connection, [len(content).to_bytes(LENGTH, "big")], [*files, here])
        connection.sendall(content)
        return connection.recv(1) == STARTED
    except (BrokenPipeError, ConnectionResetError):
        return False
    finally:
        os.close(here)


def _is_inherited(number: int) -> bool:
    try:
        return os.get_inheritable(number)
    except OSError:  # the one that listed them
        return False


def _wait(connection: socket.socket) -> None:
    """Wait for the fork to end, pass on the signals that only this process received, and end as the fork did."""
    import fcntl

    passed_on = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
    signal.pthread_sigmask(signal.SIG_BLOCK, {*passed_on, signal.SIGIO})
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    with suppress(OSError):
        connection.sendall(GO)  # from here on Ctrl-C is the fork's
    answer, child, connected = b"", -1, True
    while True:
        with suppress(BlockingIOError):
            try:
                while block := connection.recv(LENGTH):
                    answer += block
            except ConnectionResetError:
                pass
            connected = False
        if len(answer) >= LENGTH:
            child = int(answer[:LENGTH])
        if len(answer) >= 2 * LENGTH or not connected:  # of a fork that could not say how it ended, nothing is known
            _end(int(answer[LENGTH : 2 * LENGTH] or -signal.SIGKILL))
        received = signal.sigwaitinfo({*passed_on, signal.SIGIO})
        # What the system sends, such as a terminal's Ctrl-C, the fork receives as well.
        if received.si_signo in passed_on and received.si_code <= 0 and child > 0:
            signal.sigtimedwait({signal.SIGIO}, WAITED)
            with suppress(ProcessLookupError):
                os.kill(child, received.si_signo)


def _end(code: int) -> None:
    """End with an exit code, or by the signal that ended the fork (its number, negative)."""
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), -code)
    os._exit(code)  # nothing was written here
