"""Who may talk to a page or an API of Regard: what the guard lets through, and what it refuses in one sentence."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from regard.base.errors import RegardError
from regard.web.guard import PAGE_POLICY, guarded, is_loopback

TOKEN = "a-token-of-this-test-0123"


async def echo(request):
    return PlainTextResponse(await request.body() or "hello")


def client(host="127.0.0.1", base="http://127.0.0.1:8000", **options):
    app = Starlette(routes=[Route("/", echo, methods=["GET", "POST"]), Route("/health", echo)])
    return TestClient(guarded(app, host=host, **options), base_url=base, follow_redirects=False)


def refused(answer, status):
    assert answer.status_code == status
    assert answer.json()["error"].endswith(".")
    assert answer.headers["content-security-policy"] == PAGE_POLICY
    return True


def test_every_answer_forbids_what_a_page_does_not_need():
    for answer in (client().get("/"), client().get("/nowhere"), client().get("/", headers={"host": "evil.example"})):
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",  # no other site's page may show or read an answer
    "cache-control": "no-store",
}


@pytest.mark.parametrize(
    "ask",
    [
        lambda: client().get("/"),
        lambda: client().post("/", content="a"),
        lambda: client().get("/nowhere"),
        lambda: client().get("/", headers={"host": "evil.example"}),
        lambda: client().post("/", headers={"origin": "http://evil.example"}),
        lambda: client(body_limit=1).post("/", content="too long"),
        lambda: client(token=TOKEN).get("/"),
        lambda: client(token=TOKEN).get("/", params={"token": TOKEN}),
    ],
)
def test_every_answer_and_every_refusal_has_every_header(ask):
    found = ask().headers
    assert {name: found.get(name) for name in HEADERS} == HEADERS


@pytest.mark.parametrize("name", ["127.0.0.1:8000", "localhost", "localhost:9000", "[::1]:8000"])
def test_the_machine_may_be_called_by_its_own_names(name):
    assert client().get("/", headers={"host": name}).text == "hello"


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "", "[::1"])
def test_another_name_is_refused(name):
    assert refused(client().get("/", headers={"host": name}), 421)


def test_only_our_own_page_may_change_something():
    site = client()
    assert site.post("/", content="a").text == "a"  # a program has no origin
    assert site.post("/", content="a", headers={"origin": "http://127.0.0.1:8000"}).text == "a"
    for origin in ("http://evil.example", "http://127.0.0.1:9999", "null", "file://", "http://127.0.0.1:8000.evil"):
        assert refused(site.post("/", headers={"origin": origin}), 403)
    assert refused(site.post("/", headers={"sec-fetch-site": "cross-site"}), 403)


def test_any_other_address_needs_a_token():
    for host in ("0.0.0.0", "", "::", "192.168.1.1", "example.org"):
        assert not is_loopback(host)
        with pytest.raises(RegardError, match="token"):
            client(host)
    with pytest.raises(RegardError, match="16"):
        client("0.0.0.0", token="short")
    assert all(map(is_loopback, ("127.0.0.1", "localhost", "::1")))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_token_is_asked_for_and_open_paths_are_not(host):
    site = client(host, token=TOKEN, open_paths=["/health"])
    assert site.get("/health").text == "hello"
    for headers in (
        {},
        {"authorization": "Bearer"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer é".encode("latin-1")},
        {"cookie": "regard-8000=no"},
        {"cookie": "regard-9000=" + TOKEN},
        {"cookie": ";;=,"},
    ):
        answer = site.get("/", headers=headers)
        assert refused(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
    assert site.get("/", headers={"authorization": f"Bearer {TOKEN}"}).text == "hello"
    assert site.post("/", content="a", headers={"authorization": f"bearer {TOKEN}"}).text == "a"


def test_a_token_in_a_pages_address_becomes_a_cookie():
    site = client("0.0.0.0", token=TOKEN)
    answer = site.get("/", params={"token": TOKEN, "q": "a b"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/?q=a+b"
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    assert site.get("/").text == "hello"  # the client keeps the cookie
    assert refused(client("0.0.0.0", token=TOKEN).get("/", params={"token": "wrong"}), 401)


def test_a_body_that_is_too_long_is_refused_whether_it_was_announced_or_not():
    site = client(body_limit=10)
    assert site.post("/", content=b"x" * 10).text == "x" * 10
    assert refused(site.post("/", content=b"x" * 11), 413)

    def pieces():
        yield from (b"xxxx" for _ in range(3))

    assert refused(site.post("/", content=pieces()), 413)
    assert refused(site.post("/", content=pieces(), headers={"content-length": "9" * 30}), 413)
    assert refused(site.post("/", content=b"", headers={"content-length": "-1"}), 413)


def ask(app, messages, **scope):
    """What an ASGI application answers to these messages; after them nothing ever comes."""
    sent, waiting = [], list(messages)

    async def receive():
        if waiting:
            return waiting.pop(0)
        return await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", **scope}
    asyncio.run(app({"headers": [(b"host", b"localhost")], **scope}, receive, send))
    return sent


async def never(scope, receive, send):
    raise AssertionError("the application was asked")


def test_a_body_that_never_comes_is_given_up():
    app = guarded(never, host="localhost", body_seconds=0.01)
    start, *_ = ask(app, [{"type": "http.request", "body": b"a", "more_body": True}])
    assert start["status"] == 408


def test_a_client_that_leaves_while_it_sends_is_forgotten():
    assert not ask(guarded(never, host="localhost"), [{"type": "http.disconnect"}])


def test_the_token_never_leads_to_another_site():
    app = guarded(never, host="localhost", token=TOKEN)
    start, *_ = ask(app, [], method="GET", path="//evil.example/", query_string=f"token={TOKEN}".encode())
    assert dict(start["headers"])[b"location"] == b"/evil.example/"


def test_two_hosts_or_a_web_socket_are_refused():
    app = guarded(never, host="localhost")
    assert ask(app, [], headers=[(b"host", b"localhost"), (b"host", b"localhost")])[0]["status"] == 421
    assert ask(app, [], headers=[])[0]["status"] == 421
    assert ask(app, [], type="websocket") == [{"type": "websocket.close", "code": 1008}]


def test_a_refusal_is_written_as_the_application_wants_it():
    answer = client(refusal=lambda path, status, sentence: {path: [status, sentence]}).get("/", headers={"host": "x"})
    assert answer.json()["/"][0] == 421
