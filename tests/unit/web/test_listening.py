"""Where a page or an API of Regard listens: sockets, signals and connections that hang, on a real socket."""

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from urllib.request import urlopen

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from regard.base.errors import RegardError
from regard.web.guard import guarded
from regard.web.listening import Server, listen, url


def hello(request):
    return PlainTextResponse("hello")


@contextmanager
def serving(**options):
    listening, ready = listen("127.0.0.1", 0), threading.Event()
    app = guarded(Starlette(routes=[Route("/", hello)]), host="127.0.0.1")
    server = Server(app, listening, ready=lambda _: ready.set(), **options)
    thread = threading.Thread(target=server.run)
    address, place = url(listening), listening.getsockname()
    thread.start()
    assert ready.wait(600)
    try:
        yield server, address, place
    finally:
        server.should_exit = True
        thread.join()


def test_it_answers_at_the_address_it_says():
    with serving() as (_, address, _), urlopen(address) as answer:
        assert answer.read() == b"hello"


def test_an_address_that_cannot_be_had_is_one_sentence():
    with listen("127.0.0.1", 0) as held, pytest.raises(RegardError, match=r"in use.*--port"):
        listen("127.0.0.1", held.getsockname()[1])
    with pytest.raises(RegardError, match="no address of this machine"):
        listen("203.0.113.1", 0)
    with pytest.raises(RegardError, match="no address of this machine"):
        listen("no such name", 0)
    with pytest.raises(RegardError, match="at most 65535"):
        listen("127.0.0.1", 65536)


REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("before, sent", [(b"", b""), (b"", REQUEST[:-9]), (REQUEST, REQUEST[:3])])
def test_a_connection_whose_headers_do_not_come_is_closed(before, sent):
    with (
        serving(header_seconds=600 if before else 0.2) as (server, _, place),
        socket.create_connection(place, timeout=600) as slow,
    ):
        slow.sendall(before)
        answer = b""
        while before and not answer.endswith(b"hello"):
            piece = slow.recv(4096)
            assert piece
            answer += piece
        server.config.http.seconds = 0.2
        with suppress(ConnectionError):  # closed before it has read what was sent
            slow.sendall(sent)
            assert not b"".join(iter(lambda: slow.recv(4096), b""))  # ends where the server closes


def test_what_is_no_http_is_answered_400():
    with serving() as (_, _, place), socket.create_connection(place, timeout=600) as rude:
        rude.sendall(b"\x16\x03\x01 no such protocol\r\n\r\n")
        assert rude.recv(4096).startswith(b"HTTP/1.1 400")


PROGRAM = """
import asyncio, sys
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from regard.web.guard import guarded
from regard.web.listening import listen, run

async def slow(request):
    print("begun", flush=True)
    await asyncio.sleep(0.5)
    return PlainTextResponse("whole")

app = guarded(Starlette(routes=[Route("/", slow)]), host="127.0.0.1")
run(app, listen("127.0.0.1", 0), ready=lambda url: print(url, flush=True), hangup=lambda: print("hup", flush=True))
print("ended", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_signal_lets_it_finish_what_it_began():
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip()
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "hup\n"
        got = []
        asking = threading.Thread(target=lambda: got.append(urlopen(address).read()))
        asking.start()
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        asking.join()
        assert got == [b"whole"]
        assert process.stdout.readline() == "ended\n"
        assert process.wait() == 0
