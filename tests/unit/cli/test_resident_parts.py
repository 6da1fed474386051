"""The parts of a resident process, each in this process: what a command sends, what is refused, and how it ends."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from regard.base.errors import RegardError
from regard.cli import resident, resident_process
from regard.cli.resident_process import _Command, _Resident

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="REGARD_RESIDENT works only on Linux")


@pytest.fixture
def pair():
    both = socket.socketpair()
    for each in both:
        each.settimeout(10)
    yield both
    for each in both:
        each.close()


@pytest.fixture
def asked(monkeypatch):
    """As in a terminal where REGARD_RESIDENT is set. The folder's name is short: that of a socket is limited."""
    monkeypatch.setenv("REGARD_RESIDENT", "5")
    monkeypatch.setattr(os, "getsid", lambda process: 1)
    with tempfile.TemporaryDirectory(prefix="regard-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_idle_minutes_are_a_number_up_to_a_day(monkeypatch):
    for text, minutes in (("", 0), ("0", 0), ("0.5", 0.5), ("1440", 1440)):
        monkeypatch.setenv("REGARD_RESIDENT", text)
        assert resident.idle_minutes() == minutes
    for text in ("1440.5", "-1", "nan", "x" * 60):
        monkeypatch.setenv("REGARD_RESIDENT", text)
        with pytest.raises(RegardError, match=rf"REGARD_RESIDENT=10, not '{re.escape(text[:40])}'\.$"):
            resident.idle_minutes()
    monkeypatch.delenv("REGARD_RESIDENT")
    assert resident.idle_minutes() == 0


def test_only_some_verbs_in_a_session_on_linux_are_answered_there(asked, monkeypatch, capsys):
    reached = []

    @contextmanager
    def connected(path):
        reached.append(path)
        yield "connection"

    answers, waited = [False, True], []
    monkeypatch.setattr(resident, "_connected", connected)
    monkeypatch.setattr(resident, "_request", lambda connection, words: answers.pop())
    monkeypatch.setattr(resident, "_wait", waited.append)
    for verb in resident.VERBS:
        answers[:] = [False, False]
        assert resident.answered_there([verb, "x"]) is False
        assert len(reached) == 2  # it may have ended at this moment, so it is asked twice
        reached.clear()
    answers[:] = [True, True]
    resident.answered_there(["score"])
    assert waited[0] == "connection"
    reached.clear()
    for words in ([], ["train"], ["--help"]):
        assert resident.answered_there(words) is False
    with monkeypatch.context() as other:
        other.setattr(resident, "inside", True)
        assert resident.answered_there(["score"]) is False
    with monkeypatch.context() as other:
        other.setenv("REGARD_RESIDENT", "0")
        assert resident.answered_there(["score"]) is False
    with monkeypatch.context() as other:
        other.setattr(os, "getsid", lambda process: os.getpid())  # which ends with this command
        assert resident.answered_there(["score"]) is False
    assert (reached, capsys.readouterr().err) == ([], "")
    with monkeypatch.context() as other:
        other.setattr(sys, "platform", "darwin")
        assert resident.answered_there(["score"]) is False
    assert capsys.readouterr().err == "note: REGARD_RESIDENT works only on Linux; this command starts as usual\n"
    os.chmod(resident.socket_path().rpartition("/")[0], 0o755)
    assert resident.answered_there(["score"]) is False
    said = capsys.readouterr().err
    assert said.startswith("note: no resident process is available (")
    assert said.endswith("is not a folder that only you can enter); this command starts as usual\n")


def test_the_socket_is_in_a_folder_of_ones_own_and_named_after_all_that_is_inherited(asked, monkeypatch):
    path = resident.socket_path()
    folder, _, name = path.rpartition("/")
    assert folder == f"{asked}/regard-{os.getuid()}"
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert re.fullmatch(r"[0-9a-f]{24}\.sock", name)
    assert resident.socket_path() == path
    for variable in ("PWD", "COLUMNS", "SHLVL"):  # each command receives them anew
        monkeypatch.setenv(variable, "other")
    assert resident.socket_path() == path
    mask = os.umask(0o027)
    try:
        assert resident.socket_path() != path
        assert os.umask(0o027) == 0o027  # it was looked at and put back
    finally:
        os.umask(mask)
    assert resident.socket_path() == path
    with monkeypatch.context() as other:
        other.setenv("LANG", "xx")
        assert resident.socket_path() != path
    for name in ("path", "warnoptions"):
        with monkeypatch.context() as other:
            other.setattr(sys, name, [*getattr(sys, name), "other"])
            assert resident.socket_path() != path
    for name in ("getgroups", "getresuid", "nice"):
        with monkeypatch.context() as other:
            other.setattr(os, name, lambda *given: "other")
            assert resident.socket_path() != path
    with monkeypatch.context() as other:
        other.setattr(os, "getuid", lambda: 10**6)  # the folder is someone else's
        os.mkdir(f"{asked}/regard-{10**6}", 0o700)
        with pytest.raises(OSError, match="is not a folder that only you can enter"):
            resident.socket_path()


def test_a_command_arrives_as_it_was_sent(pair, monkeypatch):
    """Its words, its environment, its folder and its open files under their numbers."""
    ours, theirs = pair
    theirs.sendall(b"S")
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    monkeypatch.setenv("SOME_NAME", "a=b\nc")
    try:
        assert resident._request(ours, ["score", "é x", ""]) is True
        command = _Command(theirs)
        resident_process._receive(command)
        assert command.words == [sys.argv[0], "score", "é x", ""]
        assert command.environment == dict(os.environ)
        assert command.group == os.getpgid(0)
        assert reading in command.numbers
        assert writing not in command.numbers
        assert len(command.files) == len(command.numbers) + 1
        for there, here in zip(command.numbers, command.files, strict=False):
            assert os.path.sameopenfile(there, here)
        assert os.path.samestat(os.fstat(command.files[-1]), os.stat("."))
        held = command.files
        command.close()
        for number in held:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(number)
    finally:
        os.close(reading)
        os.close(writing)


def test_a_command_that_is_not_taken_starts_as_usual(pair, monkeypatch):
    ours, theirs = pair
    theirs.sendall(b"X")
    assert resident._request(ours, ["score"]) is False
    theirs.close()
    assert resident._request(ours, ["score"]) is False
    before = os.listdir("/dev/fd")
    monkeypatch.setattr(resident, "MAX_FILES", 0)
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    with pytest.raises(OSError, match="this process has too many open files"):
        resident._request(ours, ["score"])
    for number in (reading, writing):
        os.close(number)
    assert len(os.listdir("/dev/fd")) == len(before)
    assert resident.MAX_FILES <= 253 - 3  # as many as one message carries, with some to spare


@pytest.mark.parametrize(
    "sent",
    [b"\0\0\0", (0).to_bytes(8, "big"), ((1 << 24) + 1).to_bytes(8, "big"), (5).to_bytes(8, "big") + b"1\0\0",
     (4).to_bytes(8, "big") + b"1\0\x001"],
    ids=["half a length", "nothing", "too much", "cut off", "no folder"],
)  # fmt: skip
def test_what_is_no_command_is_refused(pair, sent):
    ours, theirs = pair
    ours.sendall(sent)
    ours.close()
    with pytest.raises(ValueError):  # it says nothing: nobody reads it
        resident_process._receive(_Command(theirs))


def test_a_resident_process_is_started_on_a_socket_that_already_listens(asked, monkeypatch):
    started = []

    def begin(words, **how):
        with socket.socket(fileno=os.dup(how["pass_fds"][0])) as listening:
            started.append((words, how, listening.getsockname()))
            held.append(listening.dup())
        return SimpleNamespace()

    held = []
    monkeypatch.setattr(subprocess, "Popen", begin)
    path = resident.socket_path()
    open(path, "w").close()  # of one that was killed
    with resident._connected(path) as connection:
        assert connection.getpeername() == path
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    ((words, how, name),) = started
    assert name == path
    place = words.index("regard.cli.resident_process")
    assert words[place - 2 : place] == ["-P", "-m"]
    assert words[0] == sys.executable
    assert words[place + 1 :] == [path, str(how["pass_fds"][0]), "300.0", *sys.path]
    assert (how["process_group"], how["cwd"]) == (0, "/")
    assert {how[name] for name in ("stdin", "stdout", "stderr")} == {subprocess.DEVNULL}
    with resident._connected(path):  # the second finds it
        assert len(started) == 1
    monkeypatch.setattr(resident, "peer_user", lambda connection: os.getuid() + 1)
    with pytest.raises(OSError, match="belongs to another user"), resident._connected(path):
        pass
    held[0].close()


@pytest.mark.parametrize(
    ("answer", "code"),
    [(b"      77       3", 3), (b"      77      -2", -2), (b"      77", -signal.SIGKILL), (b"", -signal.SIGKILL)],
)
def test_a_command_ends_as_its_answer_ended(pair, monkeypatch, answer, code):
    """Of a fork that could not say how it ended nothing is known: it counts as killed."""

    class Ended(Exception):
        pass

    def end(with_code):
        raise Ended(with_code)

    ours, theirs = pair
    theirs.sendall(answer)
    theirs.shutdown(socket.SHUT_WR)
    monkeypatch.setattr(resident, "_end", end)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with pytest.raises(Ended, match=f"^{code}$"):
            resident._wait(ours)
        assert theirs.recv(1) == resident.GO
    finally:
        ours.close()  # from here on it sends no SIGIO
        signal.pthread_sigmask(signal.SIG_SETMASK, before[0])
        signal.signal(signal.SIGIO, before[1])


def test_a_file_is_inherited_if_it_says_so():
    reading, writing = os.pipe()
    assert not resident._is_inherited(reading)
    os.set_inheritable(reading, True)
    assert resident._is_inherited(reading)
    for number in (reading, writing):
        os.close(number)
    assert not resident._is_inherited(reading)


# -- the resident process --------------------------------------------------------------------------------------------


class Part:
    """With the attributes that it is given."""

    def __init__(self, **named):
        vars(self).update(named)


@pytest.fixture
def waiting(tmp_path):
    """A resident process that has not begun to serve."""
    made = _Resident.__new__(_Resident)
    path = tmp_path / "x.sock"
    path.touch()
    made._path, made._own, made._children, made._stamps = str(path), path.stat().st_ino, {}, {}
    made._listener = Part(closed=0)
    made._listener.close = lambda: setattr(made._listener, "closed", made._listener.closed + 1)
    return made


def test_a_file_that_was_written_has_another_stamp(tmp_path):
    path = tmp_path / "file"
    path.write_text("a")
    before = resident_process._stamps([str(path), str(tmp_path / "none")])
    assert list(before) == [str(path)]
    assert resident_process._stamps([str(path)]) == before
    state = path.stat()
    path.write_text("ab")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert resident_process._stamps([str(path)]) != before
    for place, name in enumerate(("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")):
        assert resident_process._stamps([str(path)])[str(path)][place] == getattr(path.stat(), name)


def test_a_process_exists_also_if_it_is_someone_elses(monkeypatch):
    assert resident_process._exists(os.getpid())
    for error, there in ((ProcessLookupError, False), (PermissionError, True)):

        def refuse(process, number, error=error):
            assert number == 0  # nothing is sent
            raise error

        monkeypatch.setattr(os, "kill", refuse)
        assert resident_process._exists(5) is there


@pytest.mark.parametrize(("status", "code"), [(0, 0), (3 << 8, 3), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_command_is_told_how_its_fork_ended(waiting, pair, monkeypatch, status, code):
    ours, theirs = pair
    waiting._children = {77: ours, 78: theirs}
    monkeypatch.setattr(os, "waitpid", lambda child, how: (child, status) if child == 77 else (0, 0))
    waiting._reap()
    assert theirs.recv(100) == resident_process._number(code)
    assert (len(resident_process._number(code)), int(resident_process._number(code))) == (resident.LENGTH, code)
    assert list(waiting._children) == [78]  # which still runs
    assert ours.fileno() == -1


def test_a_fork_whose_command_is_gone_is_ended(waiting, pair, monkeypatch):
    ours, theirs = pair
    killed = []
    monkeypatch.setattr(os, "kill", lambda *given: killed.append(given))
    waiting._children = {77: ours}
    ours.setblocking(True)  # as it is there
    waiting._watch(77)  # nothing has come
    theirs.sendall(b"G")
    waiting._watch(77)  # what the fork will read
    assert (killed, ours.recv(1), waiting._children[77]) == ([], b"G", ours)
    theirs.close()
    waiting._watch(77)
    assert killed == [(77, signal.SIGKILL)]
    assert waiting._children[77] is not ours
    assert ours.fileno() == -1
    waiting._children[77].close()


def test_the_name_is_freed_unless_it_is_anothers_by_now(waiting, tmp_path):
    path = tmp_path / "x.sock"
    waiting._free_the_name()
    assert (path.exists(), waiting._listener.closed) == (False, 1)
    (tmp_path / "other").touch()
    path.touch()
    waiting._own = (tmp_path / "other").stat().st_ino
    waiting._free_the_name()
    assert path.exists()


def test_only_the_same_user_is_answered_and_only_while_nothing_has_changed(waiting, pair, monkeypatch, tmp_path):
    ours, theirs = pair
    received = []
    monkeypatch.setattr(resident_process, "_receive", received.append)
    with monkeypatch.context() as other:
        other.setattr(resident, "peer_user", lambda connection: os.getuid() + 1)
        assert waiting._answer(theirs) is True
    assert (received, theirs.fileno()) == ([], -1)
    ours, theirs = socket.socketpair()
    with ours:
        waiting._stamps = {str(tmp_path / "gone"): (1, 2, 3, 4)}
        assert waiting._answer(theirs) is False
        assert (len(received), waiting._listener.closed, theirs.fileno()) == (1, 1, -1)
        assert not os.path.exists(waiting._path)


def test_the_streams_are_opened_as_at_the_start_of_python(monkeypatch, capfd):
    for name in ("stdin", "stdout", "stderr"):
        for each in (name, f"__{name}__"):
            monkeypatch.setattr(sys, each, getattr(sys, each))
    encoding = sys.stdout.encoding
    resident_process._open_streams({1, 2})
    assert sys.stdin is sys.__stdin__ is None
    assert (sys.stdout.encoding, sys.stdout.line_buffering, sys.stderr.line_buffering) == (encoding, False, True)
    assert sys.stdout is sys.__stdout__
    sys.stdout.write("data\n")
    assert capfd.readouterr().out == ""
    sys.stdout.flush()
    sys.stderr.write("log\n")
    assert capfd.readouterr() == ("data\n", "log\n")
    for stream in (sys.stdout, sys.stderr):
        stream.detach()


def test_serving_watches_its_forks_answers_and_ends_with_its_session(waiting, monkeypatch, tmp_path):
    class Over(Exception):
        pass

    def end():
        raise Over

    events, sessions, now = [], iter([True, False, *[True] * 9]), iter([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    waiting._idle, waiting._children = 5.0, {77: "a command"}
    waiting._ended = Part(recv=lambda size: events.append("woken"))
    waiting._listener.accept = lambda: ("a connection", None)
    waiting._watch = lambda child: events.append(("watched", child))
    waiting._answer = lambda connection: events.append(("answered", connection)) or True
    waiting._reap, waiting._end = lambda: events.append("reaped"), end
    ready = ["a command", waiting._ended, waiting._listener]
    monkeypatch.setattr(resident_process, "_exists", lambda process: next(sessions))
    monkeypatch.setattr(resident_process.select, "select", lambda *given: events.append(given[3]) or (ready, [], []))
    with pytest.raises(Over):
        waiting.serve()
    assert events == [1.0, ("watched", 77), "woken", ("answered", "a connection"), "reaped"]
    assert (waiting._listener.closed, (tmp_path / "x.sock").exists()) == (1, False)
    events.clear()
    waiting._idle, waiting._children, ready[:] = 0.5, {}, []
    monkeypatch.setattr(resident_process.time, "monotonic", lambda: next(now))
    with pytest.raises(Over):
        waiting.serve()
    assert events == [0.5, "reaped"] * 2  # after half a second without a command
    waiting._answer = lambda connection: False  # a file has changed
    ready[:] = [waiting._listener]
    waiting._children = {77: "a command"}
    with pytest.raises(Over):
        waiting.serve()
    assert events == [0.5, "reaped"] * 2 + [0.5]


def test_a_process_that_ends_waits_for_its_forks(waiting, monkeypatch):
    class Left(Exception):
        pass

    def leave(code):
        raise Left(code)

    waited = iter([(77, 0), (78, 1)])
    waiting._children = {77: "one", 78: "other"}
    waiting._ended_as = lambda child, status: waiting._children.pop(child)
    monkeypatch.setattr(os, "waitpid", lambda child, how: next(waited))
    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(Left, match="0"):
        waiting._end()
    assert waiting._children == {}


@pytest.mark.parametrize(("ignored", "code"), [(False, 7), (True, 7)])
def test_a_fork_takes_the_place_of_its_command_and_says_how_it_ended(pair, monkeypatch, ignored, code):
    """All but the fork itself: its signals, its group, its files, and its exit code."""

    class Left(Exception):
        pass

    def leave(status):
        raise Left(status)

    ours, theirs = pair
    theirs.sendall(b"G")
    asked = []
    monkeypatch.setattr(signal, "set_wakeup_fd", lambda number: asked.append(("wakes", number)))
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN if ignored else None)
    monkeypatch.setattr(signal, "signal", lambda *given: asked.append(given))
    monkeypatch.setattr(os, "setpgid", lambda *given: asked.append(given))
    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(resident_process, "_take_files", lambda command: ours)
    monkeypatch.setattr(resident_process, "_run", lambda command: code)
    with pytest.raises(Left, match="1"):
        resident_process._become(_Command(ours, group=33))
    default = [] if ignored else [(signal.SIGINT, signal.SIG_DFL)]  # as at the start of a process
    assert asked == [("wakes", -1), (signal.SIGCHLD, signal.SIG_DFL), *default, (0, 33)]
    said = theirs.recv(100)
    assert said == b"S" + resident_process._number(os.getpid()) + resident_process._number(code)


def test_a_signal_that_only_the_command_received_is_passed_on(pair, monkeypatch):
    """What the system sends, such as a terminal's Ctrl-C, the fork receives as well."""

    class Ended(Exception):
        pass

    def end(code):
        raise Ended(code)

    ours, theirs = pair
    ours.settimeout(None)
    came = iter([
        (signal.SIGTERM, 0, b""), (signal.SIGIO, 0, b"      77"), (signal.SIGINT, 0x80, b""), (signal.SIGHUP, 0, b""),
        (signal.SIGTERM, -6, b"       5"),
    ])  # fmt: skip
    killed, waited = [], []

    def wait(signals):
        assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGIO} == signals
        number, code, answer = next(came)
        theirs.sendall(answer)
        return SimpleNamespace(si_signo=number, si_code=code)

    def kill(child, number):
        killed.append((child, number))
        raise ProcessLookupError  # it has ended by now

    monkeypatch.setattr(resident, "_end", end)
    monkeypatch.setattr(signal, "sigwaitinfo", wait)
    monkeypatch.setattr(signal, "sigtimedwait", lambda *given: waited.append(given))
    monkeypatch.setattr(os, "kill", kill)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with pytest.raises(Ended, match="5"):
            resident._wait(ours)
    finally:
        ours.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, before[0])
        signal.signal(signal.SIGIO, before[1])
    assert killed == [(77, signal.SIGHUP), (77, signal.SIGTERM)]  # not the first: there was no fork yet
    assert waited == [({signal.SIGIO}, resident.WAITED)] * 2


@pytest.mark.parametrize(
    ("code", "default"), [(-signal.SIGTERM, True), (-signal.SIGKILL, False), (-signal.SIGSTOP, False)]
)
def test_a_command_ends_by_the_signal_that_ended_its_fork(monkeypatch, code, default):
    asked = []
    monkeypatch.setattr(signal, "signal", lambda *given: asked.append(given))
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *given: asked.append(given))
    monkeypatch.setattr(os, "kill", lambda *given: asked.append(given))
    monkeypatch.setattr(os, "_exit", lambda status: asked.append(status))
    resident._end(code)
    handled = [(-code, signal.SIG_DFL)] if default else []  # the others cannot be caught
    assert asked == [*handled, (signal.SIG_SETMASK, ()), (os.getpid(), -code), code]
    asked.clear()
    resident._end(3)
    assert asked == [3]


def test_a_resident_process_stamps_all_that_it_has_loaded_before_it_serves(monkeypatch, tmp_path):
    (tmp_path / "package").mkdir()
    for name in ("a.py", "b.toml", "c.pyc"):
        (tmp_path / "package" / name).touch()
    served, collected = [], []
    monkeypatch.setattr(resident_process, "PACKAGE", tmp_path / "package")
    monkeypatch.setattr(resident_process, "_load", lambda: served.append("loaded"))
    monkeypatch.setattr(resident_process.gc, "collect", lambda: collected.append("collect"))
    monkeypatch.setattr(resident_process.gc, "freeze", lambda: collected.append("freeze"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = os.dup(listening.fileno())
        monkeypatch.setattr(sys, "argv", ["x", "p.sock", str(number), "300.0", "one", "two"])
        seen = []
        monkeypatch.setattr(
            resident_process, "_Resident", lambda *given: seen.append(given) or Part(serve=lambda: None)
        )
        resident_process.main()
    ((path, listener, idle, stamps),) = seen
    assert (path, listener.fileno(), idle, sys.path) == ("p.sock", number, 300.0, ["one", "two"])
    listener.close()
    names = {name for name in stamps if name.startswith(str(tmp_path))}
    assert names == {str(tmp_path / "package" / name) for name in ("a.py", "b.toml")}
    assert resident_process.__file__ in stamps
    assert all(stamps)
    assert (served, collected) == (["loaded"], ["collect", "freeze"])


def test_a_resident_process_is_woken_when_a_fork_ends(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(signal, "set_wakeup_fd", lambda *given, **named: asked.append((given, named)))
    monkeypatch.setattr(signal, "signal", lambda *given: asked.append(given[0]))
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        made = _Resident(str(path), listening, 3.0, {})
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(path))
        assert asked == [((made._wakes.fileno(),), {"warn_on_full_buffer": False}), signal.SIGCHLD]
        assert (made._ended.getblocking(), made._wakes.getblocking()) == (False, False)
        made._wakes.send(b"x")
        assert made._ended.recv(9) == b"x"
        assert made._own == path.stat().st_ino
        for each in (made._ended, made._wakes):
            each.close()


def test_a_fork_is_made_for_each_command_and_holds_nothing_of_the_others(waiting, pair, monkeypatch):
    class Became(Exception):
        pass

    def become(command):
        raise Became

    ours, theirs = pair
    reading, writing = os.pipe()
    monkeypatch.setattr(resident_process, "_receive", lambda command: command.files.append(reading))
    monkeypatch.setattr(resident_process, "_become", become)
    monkeypatch.setattr(os, "fork", lambda: 77)
    assert waiting._answer(theirs) is True
    assert (list(waiting._children), theirs.fileno(), waiting._listener.closed) == ([77], -1, 0)
    held = waiting._children[77]
    held.sendall(b"x")
    assert (ours.recv(9), held.gettimeout()) == (b"x", None)  # the same connection, which waits
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)
    os.close(writing)
    closed = []
    waiting._ended, waiting._wakes = (Part(close=lambda name=name: closed.append(name)) for name in ("ended", "wakes"))
    monkeypatch.setattr(resident_process, "_receive", lambda command: None)
    monkeypatch.setattr(os, "fork", lambda: 0)
    one, other = socket.socketpair()
    with one, pytest.raises(Became):
        waiting._answer(other)
    assert (closed, waiting._listener.closed, held.fileno()) == (["ended", "wakes"], 1, -1)
    assert other.gettimeout() is None
    other.close()
