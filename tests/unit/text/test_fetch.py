"""Downloads from a real server on this machine."""

import contextlib
import errno
import hashlib
import http.server
import io
import itertools
import threading
import urllib.request
import zipfile
from pathlib import Path

import pytest

from regard.base.cache import cache_folder
from regard.base.errors import RegardError
from regard.cli import main
from regard.corpora import fetch as fetch_module
from regard.corpora.downloads import CATALOGUE, Download, File
from regard.corpora.fetch import data_folders, fetch
from regard.text.corpus import open_corpus

TEXT = "".join(f"line {number}\n" for number in range(50_000)).encode()


class Server(http.server.ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.break_off = False
        self.trickle = False
        self.length: str | None = None  # what Content-Length says instead of the truth

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.asked.append(self.path)
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)) if self.server.length is None else self.server.length)
        self.end_headers()
        if self.server.trickle:
            with contextlib.suppress(OSError):  # until nobody listens
                while True:
                    self.wfile.write(b"x")
        else:
            self.wfile.write(content[: len(content) // 2] if self.server.break_off else content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def known(server, monkeypatch) -> Server:
    """A server with three corpora: a plain file, an archive, and one without a fixed sum."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr("about.txt", "not this one")
        files.writestr("inside", TEXT)
    server.files = {"/host.org/a/input.txt": TEXT, "/host.org/packed.zip": archive.getvalue()}
    genuine = hashlib.sha256(TEXT).hexdigest()
    for download in (
        Download("plain", "", "", (File("host.org/a/input.txt", genuine),), cuts=(0.9,)),
        Download("packed", "", "", (File("host.org/packed.zip", genuine, member="inside"),), cuts=(0.9, 0.95)),
        Download("changing", "", "", (File("host.org/packed.zip", member="inside"),), pairs=True),
    ):
        monkeypatch.setitem(CATALOGUE, download.name, download)
    monkeypatch.setenv("REGARD_MIRROR", server.address)
    return server


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")


@pytest.mark.parametrize(("name", "file"), [("plain", "input.txt"), ("packed", "inside")])
def test_a_fetched_corpus_can_be_opened(known, name, file):
    with pytest.raises(RegardError, match=f"regard data fetch {name}"):
        open_corpus(name)
    progress: list[tuple[int, int | None]] = []
    folder = fetch(name, progress=lambda *call: progress.append(call))
    assert folder == cache_folder() / "data" / name
    assert kept(folder) == [file]
    assert (folder / file).read_bytes() == TEXT
    assert progress[-1][0] == progress[-1][1]
    assert b"".join(f"{line}\n".encode() for lines in open_corpus(name).splits.values() for line in lines) == TEXT


def test_a_genuine_file_is_never_fetched_twice_and_a_false_one_is_replaced(known):
    folder = fetch("plain")
    fetch("plain")
    assert len(known.asked) == 1
    (folder / "input.txt").write_bytes(b"spoilt")
    fetch("plain")
    assert len(known.asked) == 2
    assert (folder / "input.txt").read_bytes() == TEXT


def test_where_no_sum_is_fixed_the_one_seen_is_recorded(known):
    folder = fetch("changing")
    assert (folder / "inside.sha256").read_text() == f"{hashlib.sha256(TEXT).hexdigest()}  inside\n"
    fetch("changing")
    assert len(known.asked) == 1
    (folder / "inside").write_bytes(b"spoilt")
    fetch("changing")
    assert (folder / "inside").read_bytes() == TEXT


def test_another_file_than_the_recorded_one_is_refused_until_it_is_accepted(known):
    folder = fetch("changing")
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as files:
        files.writestr("inside", "another text\n")
    known.files["/host.org/packed.zip"] = other.getvalue()
    (folder / "inside").unlink()
    with pytest.raises(
        RegardError,
        match=r"no longer provides the inside that was downloaded the first time .* To accept the new file, remove "
        r".*sha256\.",
    ):
        fetch("changing")
    assert kept(folder) == ["inside.sha256"]
    (folder / "inside.sha256").unlink()
    assert (fetch("changing") / "inside").read_text() == "another text\n"


def test_fetching_says_where_the_catalogue_has_no_sum(known, capsys):
    main(["data", "fetch", "changing"])
    assert "the publisher changes inside" in capsys.readouterr().err
    main(["data", "fetch", "plain"])
    assert "SHA-256" not in capsys.readouterr().err


def test_a_mirror_may_be_given_directly(known, monkeypatch):
    monkeypatch.delenv("REGARD_MIRROR")
    fetch("plain", mirror=known.address + "/")
    assert known.asked == ["/host.org/a/input.txt"]


def failure(name: str) -> str:
    with pytest.raises(RegardError) as raised:
        fetch(name)
    assert kept(cache_folder()) == []
    return str(raised.value)


def test_what_is_not_genuine_is_not_kept(known):
    known.files["/host.org/a/input.txt"] = TEXT + b"!"
    assert "not the genuine input.txt" in failure("plain")
    known.files["/host.org/packed.zip"] = b"<html>sorry</html>"
    assert "not a complete zip archive" in failure("packed")


def test_a_broken_connection_is_said_in_one_sentence(known, monkeypatch):
    known.break_off = True
    assert "stopped after" in failure("plain")
    known.files.clear()
    assert "404" in failure("plain")
    monkeypatch.setenv("REGARD_MIRROR", "http://127.0.0.1:9")
    assert "cannot be reached" in failure("plain")
    monkeypatch.setenv("REGARD_MIRROR", "nonsense")
    assert "cannot be reached" in failure("plain")


def test_a_full_disk_is_said_in_one_sentence(known, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("regard.base.writing.os.fsync", full)
    assert "disk is full" in failure("plain")


def test_a_cache_that_cannot_be_written_is_said_in_one_sentence(known, monkeypatch, tmp_path):
    (tmp_path / "occupied").write_text("")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "occupied"))
    with pytest.raises(RegardError, match=r"cannot be written .* REGARD_CACHE"):
        fetch("plain")


def packed(content: bytes, **options) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", **{"compression": zipfile.ZIP_DEFLATED} | options) as files:
        files.writestr("inside", content)
    return archive.getvalue()


def encrypted(archive: bytes) -> bytes:
    """The archive with the flag set that says a password is needed, in both of its headers."""
    changed = bytearray(archive)
    changed[6] |= 1
    changed[archive.index(b"PK\x01\x02") + 8] |= 1
    return bytes(changed)


def test_archives_that_cannot_be_unpacked_are_said_in_one_sentence(known):
    good = packed(TEXT)
    middle = good[:2000] + bytes(byte ^ 255 for byte in good[2000:2200]) + good[2200:]
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    unknown = bytearray(good)
    unknown[8] = unknown[good.index(b"PK\x01\x02") + 10] = 97  # the packing method
    for archive, said in {
        encrypted(good): "password",
        middle: "not a complete zip archive",
        good[:-30]: "not a complete zip archive",
        empty.getvalue(): "does not contain 'inside'",
        bytes(unknown): "cannot be unpacked",
    }.items():
        known.files["/host.org/packed.zip"] = archive
        assert said in failure("packed")


def test_what_is_larger_than_any_corpus_is_not_kept(known, monkeypatch):
    monkeypatch.setattr(fetch_module, "MAX_BYTES", 1 << 20)
    known.files["/host.org/packed.zip"] = packed(bytes(1 << 22))
    assert "is larger than 1 MiB" in failure("packed")
    known.files["/host.org/a/input.txt"] = bytes(1 << 21)
    assert "is larger than 1 MiB" in failure("plain")
    known.length = "99999999999"
    assert "is larger than 1 MiB" in failure("plain")


@pytest.mark.parametrize("length", ["many", "-5", "1e3", "", "9" * 5000])
def test_a_length_that_is_no_number_is_not_believed(known, length):
    known.length = length
    known.files["/host.org/a/input.txt"] = TEXT
    assert (fetch("plain") / "input.txt").read_bytes() == TEXT


def test_a_server_that_sends_too_slowly_is_given_up(known, monkeypatch):
    known.trickle, known.length = True, ""
    monkeypatch.setattr(fetch_module, "BLOCK", 64)
    monkeypatch.setattr(fetch_module, "monotonic", itertools.count(step=1).__next__)  # a second for each read
    assert "less than 131,072 bytes in 60 seconds" in failure("plain")


def test_what_a_kill_left_behind_is_removed_by_the_next_fetch(known):
    folder = cache_folder() / "data" / "plain"
    folder.mkdir(parents=True)
    (folder / ".input.txt.0badcafe.part").write_bytes(b"half")
    fetch("plain")
    assert kept(folder) == ["input.txt"]


@pytest.mark.parametrize("mirror", [None, "", "/", "/some/where/"])
@pytest.mark.parametrize("name", [*CATALOGUE])
def test_every_file_of_the_catalogue_is_asked_for_at_its_address(server, monkeypatch, name, mirror):
    """Through a mirror a real server is asked; without one, what urllib is asked is sent to that server instead."""
    files = CATALOGUE[name].files
    opened, urlopen = [], urllib.request.urlopen

    def nothing_but_the_server(url, **options):
        opened.append(url)
        return urlopen(url.replace("https:/", server.address, 1), **options)

    monkeypatch.setattr(urllib.request, "urlopen", nothing_but_the_server)
    small = [File(file.address, None, file.member) for file in files]
    monkeypatch.setitem(CATALOGUE, name, Download(name, "", "", tuple(small)))
    archives = {file.address: io.BytesIO() for file in files if file.member}
    for file in files:
        if file.member:
            with zipfile.ZipFile(archives[file.address], "w") as archive:
                archive.writestr(file.member, file.name)
    prefix = (mirror or "").rstrip("/")
    server.files = {
        f"{prefix}/{file.address}": archives[file.address].getvalue() if file.member else file.name.encode()
        for file in files
    }
    folder = fetch(name, mirror=None if mirror is None else server.address + mirror)
    assert opened == [("https:/" if mirror is None else server.address + prefix) + f"/{file.address}" for file in files]
    assert server.asked == [f"{prefix}/{file.address}" for file in files]
    assert all((folder / file.name).read_text() == file.name for file in files)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(RegardError, match="did you mean 'wikitext-2'"):
        fetch("wikitext2")


def test_every_known_address_is_complete():
    for download in CATALOGUE.values():
        assert download.title
        assert download.licence
        for file in download.files:
            assert "/" in file.address
            assert "://" not in file.address
            assert file.sha256 is None or len(bytes.fromhex(file.sha256)) == 32


def test_the_cache_lies_where_the_system_keeps_caches(monkeypatch):
    monkeypatch.delenv("REGARD_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/regard")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "regard"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert cache_folder() == Path("/local/regard")
    monkeypatch.setenv("REGARD_DATA", "/mine")
    assert data_folders() == [Path("/mine"), Path("/local/regard/data")]


def test_real_corpora_have_the_sums_of_the_catalogue(machine_data):
    plays = machine_data / "shakespeare" / "input.txt"
    assert hashlib.sha256(plays.read_bytes()).hexdigest() == CATALOGUE["shakespeare"].files[0].sha256
