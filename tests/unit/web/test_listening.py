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
from regard.web import listening as listening_module
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
    with pytest.raises(RegardError, match="not an address of this machine"):
        listen("203.0.113.1", 0)
    with pytest.raises(RegardError, match="not an address of this machine"):
        listen("no such name", 0)
    with pytest.raises(RegardError, match="at most 65535"):
        listen("127.0.0.1", 65536)


REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def connected(place):
    with socket.create_connection(place, timeout=120) as connection:
        yield connection


def answered(connection):
    """What comes until the application's answer is whole."""
    answer = b""
    while not answer.endswith(b"hello"):
        piece = connection.recv(4096)
        assert piece, f"closed after {answer!r}"
        answer += piece
    return answer


def read_to_end(connection):
    with suppress(ConnectionError):  # closed before it has read what was sent
        return b"".join(iter(lambda: connection.recv(4096), b""))
    return b""


@pytest.mark.parametrize("sent", [b"", REQUEST[:-9], REQUEST[:-1]])
def test_a_connection_whose_headers_do_not_come_is_closed(sent):
    with serving(header_seconds=0.2) as (_, _, place), connected(place) as slow:
        with suppress(ConnectionError):
            slow.sendall(sent)
        assert read_to_end(slow) == b""


def test_the_headers_of_the_next_request_must_come_as_well():
    with serving(header_seconds=600) as (server, _, place), connected(place) as slow:
        slow.sendall(REQUEST)
        assert answered(slow).startswith(b"HTTP/1.1 200")
        server.config.http.seconds = 0.2
        slow.sendall(REQUEST[:3])
        assert read_to_end(slow) == b""


def test_headers_that_come_in_time_are_answered_and_the_deadline_is_over():
    """In pieces, and twice on one connection: what is not slow is not closed."""
    with serving(header_seconds=600) as (server, _, place), connected(place) as slow:
        for _ in range(2):
            slow.sendall(REQUEST[:10])
            slow.sendall(REQUEST[10:])
            assert answered(slow).startswith(b"HTTP/1.1 200")
            (protocol,) = server.server_state.connections
            assert protocol.deadline is None
        slow.close()
        while server.server_state.connections:  # one that is closed is counted no more
            assert server.started


def test_more_connections_than_allowed_are_answered_503(monkeypatch):
    monkeypatch.setattr(listening_module, "CONNECTIONS", 3)
    with serving(header_seconds=600) as (_, _, place), connected(place) as one, connected(place) as two:
        for connection in (one, two, one):
            connection.sendall(REQUEST)
            assert answered(connection).startswith(b"HTTP/1.1 200")
        with connected(place) as three:
            three.sendall(REQUEST)
            assert read_to_end(three).startswith(b"HTTP/1.1 503")
        one.sendall(REQUEST)
        assert answered(one).startswith(b"HTTP/1.1")  # who was there before is still served


@pytest.mark.parametrize("size", [1 << 10, 1 << 20])
def test_headers_that_never_end_are_refused(size):
    with serving(header_seconds=600) as (_, _, place), connected(place) as rude:
        with suppress(ConnectionError):
            rude.sendall(REQUEST[:-2] + b"X-Long: " + b"a" * size)
            if size < listening_module.HEADER_BYTES:
                rude.sendall(b"\r\n\r\n")
        answer = answered(rude) if size < listening_module.HEADER_BYTES else read_to_end(rude)
        assert answer[:12] == (
            b"HTTP/1.1 200" if size < listening_module.HEADER_BYTES else b"HTTP/1.1 400"[: len(answer)]
        )


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
