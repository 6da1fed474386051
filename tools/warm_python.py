"""A `python` that has imported PyTorch: what it runs begins seconds sooner, and is otherwise a process like any other.

    with warm_python() as program:                   # a path, which stands for sys.executable
        subprocess.run([program, "-m", "regard", "runs"])

The program is a small client. It hands its arguments, folder, environment and standard streams to a server, which has
the imports behind it and forks for each; it passes signals on, and ends as the forked process ends. If it is killed, so
is the forked process and whatever is in its session. Processes that `regard` starts by `sys.executable` begin the same
way.
"""

from __future__ import annotations

import ast
import atexit
import gc
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path
from types import ModuleType

from forked import FORK, ONE_ASKS, open_streams

CLIENT = """#!{python} -IS
import os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
try:
    server.connect({address!r})
except OSError:  # the server has ended: begin as any other python does
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
fds = [fd if fd is not None else os.open(os.devnull, os.O_RDWR) for fd in (0, 1, 2)]
socket.send_fds(server, [b"!"], fds)
passed_on = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2
ignored = [int(number) for number in passed_on if signal.getsignal(number) == signal.SIG_IGN]  # of nohup, say
asked = repr((sys.argv[0], sys.argv[1:], os.getcwd(), dict(os.environ), ignored)).encode()
server.sendall(b"%9d" % len(asked) + asked)
for number in passed_on:
    signal.signal(number, lambda number, _: server.sendall(bytes([number])))
status = int(server.recv(9) or 9)
if os.WIFSIGNALED(status):
    signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
    os.kill(os.getpid(), os.WTERMSIG(status))
os._exit(os.waitstatus_to_exitcode(status))
"""


@contextmanager
def warm_python() -> Iterator[str]:
    """The path of the program, for as long as its server lives."""
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        program, address = Path(folder) / "python", str(Path(folder) / "socket")
        program.write_text(CLIENT.format(python=sys.executable, address=address))
        program.chmod(0o755)
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        code = "import sys; print(sys.path)"
        path = subprocess.run([sys.executable, "-P", "-c", code], env=clean, capture_output=True, text=True, check=True)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address)
            listening.listen(64)
            server = FORK.Process(target=_serve, args=(listening, ast.literal_eval(path.stdout)))
            with ONE_ASKS:
                server.start()
        try:
            yield str(program)
        finally:
            server.kill()
            server.join()


def _serve(listening: socket.socket, path: list[str]) -> None:
    gc.freeze()  # what was imported is no garbage
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how those ended that answer a client
    parent = parent_process()
    assert parent is not None
    while wait([listening, parent.sentinel]) == [listening]:
        client, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _answer(client, path)
        client.close()


def _answer(client: socket.socket, path: list[str]) -> None:
    """The process between a client and what is run for it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(client, 1, 3)
    length = int(_read(client, 9))
    program, words, folder, environment, ignored = ast.literal_eval(_read(client, length).decode())
    runner = os.fork()
    if runner == 0:
        client.close()
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _run(program, words, folder, environment, ignored, path)
    for stream in streams:
        os.close(stream)
    ends = os.pidfd_open(runner)
    while True:
        ready, _, _ = select.select([client, ends], [], [])
        if ends in ready:
            _, status = os.waitpid(runner, 0)
            with suppress(OSError):
                client.sendall(b"%d" % status)
            os._exit(0)
        try:
            number = client.recv(1)
        except OSError:
            number = b""
        with suppress(ProcessLookupError):
            if number:
                os.kill(runner, number[0])
            else:
                os.killpg(runner, signal.SIGKILL)
                os.waitpid(runner, 0)
                os._exit(0)


def _read(client: socket.socket, length: int) -> bytes:
    read = b""
    while len(read) < length:
        read += client.recv(length - len(read))
    return read


def _run(
    program: str, words: list[str], folder: str, environment: dict[str, str], ignored: list[int], path: list[str]
) -> None:
    """What `python WORDS` does, in a process that has imported much; it never returns."""
    status = 1
    try:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN if signal.SIGINT in ignored else signal.default_int_handler)
        open_streams()
        sys.stdout.reconfigure(line_buffering="PYTHONUNBUFFERED" in environment or sys.stdout.isatty())  # type: ignore[union-attr]
        sys.stderr.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        import torch

        if environment.get("OMP_NUM_THREADS", "").isdigit():
            torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
        sys.executable = program
        safe = "PYTHONSAFEPATH" in environment
        while words[0] in ("-P", "-u"):
            safe = words.pop(0) == "-P" or safe
        sys.path[:] = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *path]
        main = sys.modules["__main__"] = ModuleType("__main__")
        kind, *rest = words
        if kind == "-m":
            sys.argv = rest
            sys.path[:0] = [] if safe else [folder]
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif kind == "-c":
            sys.argv = ["-c", *rest[1:]]
            sys.path[:0] = [] if safe else [""]
            exec(compile(rest[0], "<string>", "exec"), main.__dict__)
        else:
            assert not kind.startswith("-"), f"warm_python knows -P, -u, -m and -c, not {kind}"
            sys.argv = words
            sys.path[:0] = [] if safe else [str(Path(kind).resolve().parent)]
            runpy.run_path(kind, run_name="__main__")
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        status = status or 120
    os._exit(status & 0xFF)
