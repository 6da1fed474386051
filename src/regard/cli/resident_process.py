"""The resident process of `resident.py`: it loads PyTorch once, and forks for each command.

It computes nothing itself, because threads of a parallel computation would be missing in a fork. A fork takes the
place of the process that asked: same open files, folder, environment and process group. So `cli.main` runs in it as it
would there.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import io
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from regard.cli import resident
from regard.cli.resident import GO, LENGTH, STARTED, VERBS

PACKAGE = Path(resident.__file__).parent.parent
WARM = ("regard.runs.load", "regard.decoding.engine", "regard.exchange.engines", "regard.cli.file_to_file")
SECONDS_TO_ASK = 5.0  # that a command has for sending what it wants
MAX_CONTENT = 1 << 24  # bytes of a command with its environment; systems allow less
Stamps = dict[str, tuple[int, int, int, int]]


@dataclass
class _Command:
    """A command that wants to be run, and what it takes to run it in its place."""

    connection: socket.socket
    files: list[int] = field(default_factory=list)  # received here, in the order of `numbers`, and then its folder
    numbers: list[int] = field(default_factory=list)  # of the same files there
    group: int = 0
    words: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    def close(self) -> None:
        self.connection.close()
        for number in self.files:
            os.close(number)


def main() -> None:
    """Serve; returns only in a fork, which ends as the command ends."""
    path, listener, idle, *search = sys.argv[1:]
    sys.path[:] = search
    stamps = _stamps([str(file) for file in PACKAGE.rglob("*") if file.suffix != ".pyc"])
    _load()
    modules = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    stamps |= _stamps([file for file in modules if file and file not in stamps])
    gc.collect()
    gc.freeze()  # a collection in a fork would touch, and so copy, all memory
    _Resident(path, socket.socket(fileno=int(listener)), float(idle), stamps).serve()


def _load() -> None:
    """Import what an answer needs."""
    import torch

    from regard.cli import commands
    from regard.runs.speed import on_this_machine
    from regard.systems.catalogue import SYSTEMS, load_module

    for name in (*WARM, *(f"regard.cli.{verb}" for verb in VERBS)):
        importlib.import_module(name)
    commands.app.resolved_commands()
    for system in SYSTEMS:
        load_module(system.name)
    next(iter(on_this_machine(torch.device("cpu"))), None)  # imports all rows


def _stamps(files: list[str]) -> Stamps:
    """What changes when a file is written: also its ctime, which nobody can set."""
    stamps = {}
    for file in files:
        with suppress(OSError):
            state = os.stat(file)
            stamps[file] = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    return stamps


class _Resident:
    """Accepts commands until it was idle for `idle` seconds, its session has ended, or a file has changed."""

    def __init__(self, path: str, listener: socket.socket, idle: float, stamps: Stamps) -> None:
        self._path, self._listener, self._idle, self._stamps = path, listener, idle, stamps
        self._own = os.stat(path).st_ino
        listener.listen(64)  # from now on the system names this process to those that connect
        self._children: dict[int, socket.socket] = {}
        self._ended, wakes = socket.socketpair()
        for one in (self._ended, wakes):
            one.setblocking(False)
        self._wakes = wakes
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def serve(self) -> None:
        last = time.monotonic()
        while self._children or time.monotonic() - last < self._idle:
            if not _exists(os.getsid(0)):
                break
            gone = {connection: child for child, connection in self._children.items()}
            ready, _, _ = select.select([self._listener, self._ended, *gone], [], [], min(1.0, self._idle))
            for one in ready:
                if one in gone:
                    self._watch(gone[one])
                elif one is self._ended:
                    self._ended.recv(4096)
                elif not self._answer(self._listener.accept()[0]):
                    self._end()
            self._reap()
            if ready or self._children:
                last = time.monotonic()
        self._free_the_name()
        self._end()

    def _free_the_name(self) -> None:
        """From now on a command starts another process. (If one did already, the name is that one's.)"""
        with open(Path(self._path).with_name("lock"), "ab") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            with suppress(OSError):
                if os.stat(self._path).st_ino == self._own:
                    os.unlink(self._path)
            self._listener.close()

    def _end(self) -> NoReturn:
        while self._children:
            self._ended_as(*os.waitpid(-1, 0))
        os._exit(0)

    def _answer(self, connection: socket.socket) -> bool:
        """Fork for a command; False if this process is out of date."""
        command = _Command(connection)
        connection.settimeout(SECONDS_TO_ASK)
        try:
            if resident.peer_user(connection) != os.getuid():
                raise PermissionError
            _receive(command)
            connection.setblocking(True)
        except (OSError, ValueError, IndexError):
            command.close()
            return True
        if _stamps(list(self._stamps)) != self._stamps:
            self._free_the_name()
            command.close()  # which then looks for another
            return False
        child = os.fork()
        if child:
            command.connection = connection.dup()
            connection.close()
            self._children[child] = command.connection
            for number in command.files:
                os.close(number)
            return True
        self._listener.close()
        for other in (*self._children.values(), self._ended, self._wakes):
            other.close()
        _become(command)
        raise AssertionError

    def _watch(self, child: int) -> None:
        """A fork whose command was killed ends, too. (The command sends nothing but what the fork reads.)"""
        connection = self._children[child]
        try:
            if connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                self._children[child] = socket.socket()  # not looked at again
                connection.close()
        except OSError:
            pass

    def _reap(self) -> None:
        for child in list(self._children):
            self._ended_as(*os.waitpid(child, os.WNOHANG))

    def _ended_as(self, child: int, status: int) -> None:
        """Tell a command how its fork ended, which a fork that ended by a signal could not."""
        if connection := self._children.pop(child, None):
            with suppress(OSError):
                connection.sendall(_number(os.waitstatus_to_exitcode(status)))
            connection.close()


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _number(value: int) -> bytes:
    return str(value).rjust(LENGTH).encode()


def _receive(command: _Command) -> None:
    head, command.files, _, _ = socket.recv_fds(command.connection, LENGTH, 253, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    size = int.from_bytes(head, "big")
    if len(head) != LENGTH or not 0 < size <= MAX_CONTENT:
        raise ValueError
    content = b""
    while len(content) < size:
        if not (block := command.connection.recv(min(size - len(content), 1 << 16))):
            raise ValueError
        content += block
    group, numbers, count, *rest = map(os.fsdecode, content.split(b"\0"))
    command.group, command.numbers = int(group), [int(number) for number in numbers.split(",") if number]
    command.words, variables = rest[: int(count)], rest[int(count) :]
    command.environment = dict(variable.split("=", 1) for variable in variables)
    if len(command.files) != len(command.numbers) + 1:
        raise ValueError


def _become(command: _Command) -> NoReturn:
    """In the fork: take the place of the command's process, run the command, and end."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # as `__main__`
        os.setpgid(0, command.group)
        connection = _take_files(command)
        connection.sendall(STARTED + _number(os.getpid()))
        if connection.recv(1) != GO:
            os._exit(1)
        code = _run(command)
        connection.sendall(_number(code))
    finally:
        os._exit(1)


def _take_files(command: _Command) -> socket.socket:
    """Open files under the numbers that they have there, and the same folder; returns the connection."""
    above = max(command.numbers, default=0) + 3
    received = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, above) for number in command.files]
    connection = socket.socket(fileno=fcntl.fcntl(command.connection, fcntl.F_DUPFD_CLOEXEC, above))
    command.close()
    for number in range(3):
        os.close(number)
    for there, number in zip(command.numbers, received):
        os.dup2(number, there)
        os.close(number)
    os.fchdir(received[-1])
    os.close(received[-1])
    return connection


def _run(command: _Command) -> int:
    """The exit code of the command."""
    os.environ.clear()
    os.environ.update(command.environment)
    sys.argv = command.words
    _open_streams(set(command.numbers))
    from regard.cli import main as command_line

    resident.inside = True
    code: object = 0
    try:
        command_line()
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter's end; what follows it would only free memory
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    return code if isinstance(code, int) else int(code is not None)


def _open_streams(numbers: set[int]) -> None:
    """sys.stdin, sys.stdout and sys.stderr as the interpreter opens them at its start."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old, stream = getattr(sys, name), None
        if number in numbers:
            file = open(number, "rb" if number == 0 else "wb", closefd=False)  # noqa: SIM115
            lines = number == 2 or file.isatty()
            stream = io.TextIOWrapper(file, encoding=old.encoding, errors=old.errors, line_buffering=lines)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    main()
