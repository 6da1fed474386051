"""The policy of pages word by word, tokens and bodies at their limits, and what a server is told once and for all."""

import errno
import os
import signal
import socket

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from regard.base.errors import RegardError
from regard.web import guard, listening
from regard.web.guard import PAGE_POLICY, guarded, is_loopback, new_token
from regard.web.listening import Server, TimelyHeaders, listen, url

TOKEN = "0123456789abcdef"


async def echo(request):
    return PlainTextResponse(f"{request.client.host} {request.url.scheme}")


def client(host="127.0.0.1", base="http://127.0.0.1:8000", path="/", **options):
    app = Starlette(routes=[Route("/{rest:path}", echo, methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])])
    return TestClient(guarded(app, host=host, **options), base_url=base, follow_redirects=False)


def test_a_page_loads_only_its_own_files_and_is_shown_by_no_other():
    policy = dict(part.strip().split(" ", 1) for part in PAGE_POLICY.split(";"))
    assert policy == {
        "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self' data:",
        "font-src": "'self'", "connect-src": "'self'", "base-uri": "'none'", "form-action": "'self'",
        "frame-ancestors": "'none'",
    }  # fmt: skip


def test_the_limits_of_a_request_are_those_that_are_documented():
    assert (guard.BODY, guard.BODY_SECONDS, guard.SHORTEST_TOKEN) == (1 << 20, 30.0, 16)
    assert (listening.HEADER_SECONDS, listening.HEADER_BYTES) == (10.0, 32 << 10)
    assert (listening.CONNECTIONS, listening.GRACE) == (1024, 30.0)
    assert TimelyHeaders.seconds == 10.0


def test_a_server_trusts_no_proxy_tells_no_name_and_keeps_its_limits():
    with listen("127.0.0.1", 0) as bound:
        config = Server(None, bound).config
        assert (config.proxy_headers, config.server_header, config.access_log) == (False, False, False)
        assert (config.limit_concurrency, config.h11_max_incomplete_event_size) == (1024, 32 << 10)
        assert (config.timeout_graceful_shutdown, config.ws) == (30.0, "none")
        assert config.http.seconds == 10.0
        assert Server(None, bound, grace=2.0, header_seconds=3.0).config.timeout_graceful_shutdown == 2.0
        assert Server(None, bound, header_seconds=3.0).config.http.seconds == 3.0
        assert url(bound) == f"http://127.0.0.1:{bound.getsockname()[1]}/"


def test_a_token_has_sixteen_characters_that_can_be_typed():
    assert client("0.0.0.0", token=TOKEN)
    for wrong in (TOKEN[:-1], "", "0123456789abcdeé", "0123456789abcde\n"):
        with pytest.raises(RegardError, match="at least 16"):
            client("0.0.0.0", token=wrong)
    made = {new_token() for _ in range(20)}
    assert len(made) == 20
    assert min(map(len, made)) >= 40


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_only_our_own_page_may_ask_for_a_change_by_any_method(method):
    site = client()
    for origin in ("http://127.0.0.1:8001", "http://127.0.0.1", "null", "file://127.0.0.1:8000", "http://evil.example"):
        assert site.request(method, "/", headers={"origin": origin}).status_code == 403
    assert site.request(method, "/", headers={"origin": "http://127.0.0.1:8000"}).status_code == 200
    for where, status in (("cross-site", 403), ("same-origin", 200), ("none", 200)):
        assert site.request(method, "/", headers={"sec-fetch-site": where}).status_code == status
    assert site.get("/", headers={"origin": "http://evil.example"}).status_code == 200  # it changes nothing


def test_the_length_that_is_announced_is_checked_before_anything_is_read():
    site = client(body_limit=10)
    for announced, status in (("10", 200), ("11", 413), ("-1", 413), ("1e3", 413), ("9" * 19, 413), ("²", 413)):
        headers = {"content-length": announced.encode("latin-1")}
        assert site.post("/", headers=headers).status_code == status
    assert site.post("/", content=b"x" * 10).status_code == 200


def test_a_token_in_an_address_becomes_a_cookie_of_this_port_alone():
    for base, name in (("http://127.0.0.1:8000", "regard-8000"), ("http://localhost", "regard")):
        answer = client(base=base, token=TOKEN).get("/a b", params=[("x", "1"), ("token", TOKEN), ("x", "")])
        assert answer.status_code == 303
        assert answer.headers["location"] == "/a%20b?x=1&x="
        cookie = answer.headers["set-cookie"].lower()
        assert cookie.startswith(f"{name}={TOKEN};")
        assert {"httponly", "path=/", "samesite=strict"} <= {part.strip() for part in cookie.split(";")}
    assert client(token=TOKEN).post(f"/?token={TOKEN}").status_code == 401  # only a page is opened so
    assert client(token=TOKEN).get("/", params={"token": TOKEN[:-1]}).status_code == 401
    refused = client(token=TOKEN).get("/")
    assert refused.headers["connection"] == "close"


def test_a_port_is_free_again_at_once_and_one_that_is_taken_keeps_nothing_open(monkeypatch):
    made = []

    class Socket(socket.socket):
        def __init__(self, *how):
            super().__init__(*how)
            made.append(self)

    monkeypatch.setattr(listening.socket, "socket", Socket)
    with listen("127.0.0.1", 0) as bound:
        assert bool(bound.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)) == (os.name == "posix")
        assert bound.family == socket.AF_INET
        with pytest.raises(RegardError, match="is in use"):
            listen("127.0.0.1", bound.getsockname()[1])
    assert [one.fileno() for one in made] == [-1, -1]
    for number, said in (
        (errno.EACCES, "is reserved by the system: choose a --port above 1023"),
        (errno.EIO, "is not an"),
    ):
        monkeypatch.setattr(
            Socket, "bind", lambda self, address, number=number: (_ for _ in ()).throw(OSError(number, "no"))
        )
        with pytest.raises(RegardError, match=said):
            listen("127.0.0.1", 80)
        assert made[-1].fileno() == -1


def test_of_a_names_addresses_that_of_the_older_protocol_is_taken(monkeypatch):
    four = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
    six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))
    for found in ([six, four], [four, six], [four]):
        monkeypatch.setattr(listening.socket, "getaddrinfo", lambda *words, found=found, **how: found)
        with listen("localhost", 0) as bound:
            assert bound.family == socket.AF_INET


def test_a_cookie_that_nobody_can_read_shows_no_token():
    site = client(token=TOKEN)
    assert site.get("/", headers={"cookie": f"a@b=c; regard-8000={TOKEN}"}).status_code == 401
    assert site.get("/", headers={"cookie": f"a=c; regard-8000={TOKEN}"}).status_code == 200
    assert site.get("/", headers={"cookie": f"regard-8001={TOKEN}"}).status_code == 401


def test_a_server_whose_address_cannot_be_printed_ends_and_gives_signals_back():
    def closed_stream(address):
        seen.append((address, [signal.getsignal(number) for number in numbers]))
        raise BrokenPipeError(32, "Broken pipe")

    async def app(scope, receive, send):
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": message["type"] + ".complete"})
        await send({"type": "lifespan.shutdown.complete"})

    numbers, seen = (signal.SIGINT, signal.SIGTERM), []
    before = [signal.getsignal(number) for number in numbers]
    bound = listen("127.0.0.1", 0)
    address = url(bound)
    with pytest.raises(BrokenPipeError):
        listening.run(app, bound, ready=closed_stream)
    ((printed, during),) = seen
    assert printed == address
    assert [signal.getsignal(number) for number in numbers] == before
    assert not set(during) & set(before)


def test_a_name_is_ours_if_it_is_a_loopback_one_or_the_one_we_listen_on():
    for name, status in (("localhost:1", 200), ("[::1]:9", 200), ("127.0.0.9", 200), ("192.168.1.5", 421), ("", 421)):
        assert client().get("/", headers={"host": name}).status_code == status
    beyond = client("192.168.1.5", base="http://192.168.1.5", token=TOKEN)
    assert beyond.get("/", headers={"authorization": f"Bearer {TOKEN}", "host": "my.machine"}).status_code == 200
    local = client("127.0.0.1", token=TOKEN)  # with a token, too, a page cannot come by a name of its own
    assert local.get("/", headers={"authorization": f"Bearer {TOKEN}", "host": "evil.example"}).status_code == 421
    assert [is_loopback(host) for host in ("127.1.2.3", "[::1]", "::ffff:8.8.8.8", "localhost.evil", "0.0.0.0")] == [
        True, True, False, False, False,
    ]  # fmt: skip
