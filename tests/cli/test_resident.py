"""REGARD_RESIDENT: the same answers from a process that stays loaded, and only to those who may have them."""

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import regard
from regard.cli import resident

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="REGARD_RESIDENT works only on Linux")

REGARD = [sys.executable, "-P", "-m", "regard"]  # -P: the path has no folder of the moment, as in the script `regard`
GALLERY = Path(regard.__file__).parent / "gallery"
SHELL = " ".join(REGARD)
WAITED = 20.0  # seconds for what takes a moment, on a machine however busy
LEADER = """
import base64, json, subprocess, sys
for line in sys.stdin:
    asked = json.loads(line)
    done = subprocess.run(asked["words"], input=base64.b64decode(asked["input"]), capture_output=True, cwd=asked["cwd"])
    said = [base64.b64encode(text).decode() for text in (done.stdout, done.stderr)]
    print(json.dumps([done.returncode, *said]), flush=True)
"""


class Session:
    """A session as a terminal has it: commands run in it one after the other, and it ends with its leader."""

    def __init__(self, folder: Path, **variables: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "REGARD_RESIDENT": "5", **variables}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = [sys.executable, "-c", LEADER]
        self.leader = subprocess.Popen(command, env=self.environment, start_new_session=True, **pipes)

    def run(self, *words: str, text: bytes = b"", cwd: Path = Path("/"), shell: str = "") -> tuple[int, bytes, bytes]:
        words = ("sh", "-c", shell) if shell else (*REGARD, *words)
        asked = {"words": words, "input": base64.b64encode(text).decode(), "cwd": str(cwd)}
        self.leader.stdin.write(json.dumps(asked) + "\n")
        self.leader.stdin.flush()
        code, out, err = json.loads(self.leader.stdout.readline())
        return code, base64.b64decode(out), base64.b64decode(err)

    @property
    def sockets(self) -> set[Path]:
        return {*self.folder.glob("regard-*/*.sock")}

    @property
    def socket(self) -> Path:
        """The oldest, which is that of commands without circumstances of their own."""
        return min(self.sockets, key=lambda path: path.stat().st_ctime_ns, default=self.folder / "none")

    @property
    def resident(self) -> int:
        """The process that listens; 0 if none does."""
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.socket))
            except OSError:
                return 0
            return int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)

    def close(self) -> None:
        self.leader.stdin.close()
        self.leader.wait()
        self.leader.stdout.close()


def until(true, what):
    end = time.monotonic() + WAITED
    while not (found := true()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return found


def exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    opened = Session(tmp_path_factory.mktemp("resident"))
    opened.run("score", str(GALLERY / "ngram"), text=b"The cat sleeps.\n")
    yield opened
    opened.close()
    listening = opened.resident
    until(lambda: not (listening and exists(listening)) and not opened.sockets, "a resident process was left over")


RUN = {name: str(GALLERY / name) for name in ("gpt", "transformer", "ngram")}
COMMANDS = {
    "translate": ("translate", RUN["transformer"], "--n-best", "2"),
    "generate": ("generate", RUN["gpt"], "--prompt", "The cat", "--seed", "3", "--max-tokens", "12"),
    "score": ("score", RUN["ngram"], "--tokens"),
    "no such run": ("score", "no-such-run"),
    "no such option": ("generate", RUN["gpt"], "--tempe", "1"),
    "help": ("score", "--help"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_output_and_exit_code_are_those_of_a_process_of_its_own(session, tmp_path, name):
    text = "Où est le chat ?\nThey are watching.\n\n".encode()
    there = session.run(*COMMANDS[name], text=text, cwd=tmp_path)
    here = subprocess.run([*REGARD, *COMMANDS[name]], input=text, capture_output=True, cwd=tmp_path, env=os.environ)
    assert session.resident, "nothing answered but the command itself"
    assert there == (here.returncode, here.stdout, here.stderr)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "</dev/full >/dev/full"])
def test_closed_and_full_files_are_the_commands_own(session, closed):
    command = f"echo The cat. | REGARD_RESIDENT=$R {SHELL} score {RUN['ngram']} {closed}; echo $?"
    there = session.run(shell=command.replace("$R", "5"))
    assert there == session.run(shell=command.replace("$R", "0"))


def test_files_are_found_from_the_folder_of_the_command_and_other_open_files_are_passed_on(session, tmp_path):
    shutil.copytree(GALLERY / "ngram", tmp_path / "mine")
    (tmp_path / "lines.txt").write_text("The cat sleeps.\n")
    there = session.run("score", "mine", cwd=tmp_path, text=b"The cat sleeps.\n")
    assert there[0] == 0
    assert there[1].endswith(b"The cat sleeps.\n")
    generate = f"{SHELL} generate {RUN['gpt']} --max-tokens 3 --in /dev/fd/9 --out there.txt"
    assert session.run(shell=f"cd {tmp_path} && {generate} 9<lines.txt")[0] == 0
    assert (tmp_path / "there.txt").exists()


def test_a_line_is_answered_before_the_next_is_written(session):
    program = (
        f"import subprocess; p = subprocess.Popen({[*REGARD, 'score', RUN['ngram']]!r}, "
        "stdin=-1, stdout=-1, text=True)\n"
        "for line in ('The cat.', 'A dog.'):\n"
        "    print(line, file=p.stdin, flush=True); print(p.stdout.readline().split('\\t')[-1].strip(), flush=True)\n"
        "p.stdin.close(); print(p.wait())"
    )
    assert session.run(shell=f'{sys.executable} -c "{program}"')[1].decode().split("\n")[:3] == [
        "The cat.",
        "A dog.",
        "0",
    ]


def test_the_files_of_a_run_are_read_anew_for_each_command(session, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(GALLERY / "gpt", run)
    first = session.run("generate", str(run), "--seed", "1", "--max-tokens", "9")
    shutil.rmtree(run)
    shutil.copytree(GALLERY / "lstm", run)
    then = session.run("generate", str(run), "--seed", "1", "--max-tokens", "9")
    assert first[0] == then[0] == 0
    assert then == session.run("generate", str(GALLERY / "lstm"), "--seed", "1", "--max-tokens", "9") != first


def test_commands_of_one_session_share_a_process_and_other_circumstances_get_another(session):
    before = session.resident
    session.run("score", RUN["ngram"], text=b"The cat.\n")
    assert session.resident == before
    others = session.sockets
    command = f"echo The cat. | {SHELL} score {RUN['ngram']}"
    assert session.run(shell=f"ulimit -n 200; {command}")[0] == 0  # a limit that is inherited
    assert len(session.sockets - others) == 1
    assert session.run(shell=f"COLUMNS=40 {command}")[0] == 0  # what each command may have of its own
    assert len(session.sockets - others) == 1


def test_only_the_user_can_reach_the_socket(session):
    assert session.socket.parent.stat().st_mode & 0o777 == 0o700
    assert session.socket.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_signal_to_the_command_ends_its_answer(session, number):
    command = f"{SHELL} score {RUN['ngram']}"
    program = (
        f"import subprocess, sys, time; p = subprocess.Popen({command.split()!r}, stdin=-1, stdout=-1, stderr=-1, "
        "text=True)\n"
        "print('A cat.', file=p.stdin, flush=True); p.stdout.readline()\n"
        f"p.send_signal({int(number)}); print(p.wait(), p.stdout.read(), p.stderr.read().strip())"
    )
    said = session.run(shell=f'{sys.executable} -c "{program}"')[1].decode().split(maxsplit=1)
    expected = ["130", "regard: interrupted\n"] if number == signal.SIGINT else [str(-number)]
    assert said == expected  # its output is closed, so the answering process has ended, too


def test_one_that_was_killed_is_replaced(session):
    before = session.resident
    os.kill(before, signal.SIGKILL)
    until(lambda: not exists(before), "it was not killed")
    code, out, err = session.run("score", RUN["ngram"], text=b"The cat.\n")
    assert (code, err) == (0, b"")
    assert out
    assert session.resident not in (0, before)


@pytest.fixture
def short_folder():
    """A folder whose sockets have short names: the system allows about a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="regard-") as folder:
        yield Path(folder)


def test_ctrl_c_in_a_terminal_and_a_new_process_after_a_loaded_file_changed(short_folder):
    """One session with a terminal, which ends when the terminal is closed."""
    tmp_path = short_folder
    (tmp_path / "modules").mkdir()
    loaded = tmp_path / "modules" / "sitecustomize.py"
    loaded.write_text("number = 1\n")
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "REGARD_RESIDENT": "5"}
    environment["PYTHONPATH"] = os.pathsep.join([str(loaded.parent), os.environ.get("PYTHONPATH", "")]).strip(
        os.pathsep
    )
    leader, terminal = pytest.importorskip("pty").fork()
    if not leader:
        os.environ.update(environment)
        os.execvp("sh", ["sh"])
    seen = b""

    def says(text: bytes) -> bytes:
        nonlocal seen
        while text not in seen:
            seen += os.read(terminal, 4096)
        before, _, seen = seen.partition(text)
        return before

    os.write(terminal, f"stty -echo; {SHELL} generate {RUN['gpt']} --max-tokens 100000; echo rc=$?=\n".encode())
    says(b"The")  # tokens are printed as they come
    os.write(terminal, b"\x03")
    assert says(b"rc=130=").count(b"interrupted") == 1
    view = Session.__new__(Session)
    view.folder = tmp_path
    first = until(lambda: view.resident, "no process listens")
    kept = loaded.stat()
    loaded.write_text("number = 2\n")  # of the same size …
    os.utime(loaded, ns=(kept.st_atime_ns, kept.st_mtime_ns))  # … and with the same mtime
    os.write(terminal, f"echo The cat. | {SHELL} score {RUN['ngram']}; echo rc=$?=\n".encode())
    assert b"The cat." in says(b"rc=0=")
    second = until(
        lambda: {view.resident} - {0, first}, "no new process listens"
    ).pop()  # the first may still be ending
    os.close(terminal)
    os.waitpid(leader, 0)
    until(lambda: not exists(first) and not exists(second), "it outlived its terminal")


def test_it_ends_after_the_idle_minutes(tmp_path):
    session = Session(tmp_path / "s", REGARD_RESIDENT="0.001")
    assert session.run("score", RUN["ngram"], text=b"The cat.\n")[0] == 0
    until(lambda: not session.sockets, "it stayed")
    session.close()


@pytest.mark.parametrize("minutes", ["soon", "-1", "inf", "nan"])
def test_what_is_no_number_of_minutes_is_refused_in_one_sentence(minutes):
    words = [*REGARD, "score", RUN["ngram"]]
    done = subprocess.run(
        words, env={**os.environ, "REGARD_RESIDENT": minutes}, capture_output=True, text=True, input=""
    )
    assert done.returncode == 2
    assert "REGARD_RESIDENT" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "prepare", [lambda folder: folder.chmod(0o755), lambda folder: (folder.rmdir(), folder.touch())]
)
def test_a_folder_that_others_could_enter_is_not_used(tmp_path, monkeypatch, prepare):
    folder = tmp_path / f"regard-{os.getuid()}"
    folder.mkdir(mode=0o700)
    prepare(folder)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(OSError, match="only you can enter"):
        resident.socket_path()


def test_the_process_of_another_user_is_not_asked(tmp_path, monkeypatch):
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        monkeypatch.setattr(os, "getuid", lambda: os.stat(path).st_uid + 1)
        with pytest.raises(OSError, match="belongs to another user"), resident._connected(str(path)):
            pass


def test_another_user_is_not_answered(tmp_path, monkeypatch):
    from regard.cli import resident_process

    path = tmp_path / "own.sock"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(str(path))
        listener.listen()
        client.connect(str(path))
        client.sendall(b"\0" * 8)
        server = resident_process._Resident.__new__(resident_process._Resident)
        server._children = {}
        monkeypatch.setattr(os, "getuid", lambda: os.stat(path).st_uid + 1)
        assert server._answer(listener.accept()[0])
        assert not server._children
        monkeypatch.undo()
        client.settimeout(WAITED)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


@pytest.mark.parametrize(
    "sent", [b"", b"\0" * 8, b"\xff" * 8, (5).to_bytes(8, "big") + b"1\0,\0x", (1).to_bytes(8, "big")]
)
def test_nonsense_on_the_socket_is_dropped(session, sent):
    before = session.resident
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(session.socket))
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(WAITED)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    assert session.resident == before
