"""What strangers may send to the lab, and what may lie in a folder that came from one: a sentence, and nothing else."""

import http.client
import json
import os
import signal
import socket
import subprocess
from contextlib import suppress
from urllib.parse import quote, urlsplit

import pytest

MARKUP = "<img src=x onerror=alert(1)>"
ESCAPES = "\x1b]0;mine\x07\x1b[2J"
SECRET = "nobody's business"
DEEP = "[" * 20_000
TOKEN = "a-token-that-is-long-enough"


def write(folder, **files):
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content, encoding="utf-8")
    return folder


def facts(**more):
    recipe = {"system": MARKUP, "size": ESCAPES, "training": {"budget": MARKUP, "steps": "many"}}
    return json.dumps({"format": 1, "created": "2026-01-01", "recipe": recipe, **more})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs, comparisons and claims as nobody's `regard` writes them, beside a file that no request may see."""
    place = tmp_path_factory.mktemp("hostile")
    write(place / "outside", run_json="{}", report_html=SECRET, metrics_jsonl=SECRET, recipe_toml=SECRET)
    root = place / "runs"
    row = {"step": 1, "tokens": 10, "seconds": 0.5, "loss": 2.0}
    rows = [
        json.dumps(row),
        DEEP,
        '{"step": 1e999}',
        json.dumps(row | {"loss": MARKUP}),
        "x" * 3_000_000,
        "\x1b[2J",
        json.dumps(row | {"perplexity": [1]}),
        json.dumps(row | {"step": 2, "split": MARKUP}),
    ]
    write(
        root / MARKUP, run_json=facts(corpus={"name": MARKUP, "notes": [ESCAPES]}), metrics_jsonl="\n".join(rows) + "\n"
    )
    write(root / "types", run_json=facts(corpus=[1], created=[1], parameters=MARKUP, device={"a": DEEP}))
    write(root / "notes", run_json=facts(corpus={"notes": 5, "name": {}}))
    write(root / "list", run_json="[1]")
    write(root / "deep", run_json=DEEP)
    write(root / "cut", run_json='{"format"', recipe_toml="= =")
    (root / "latin").mkdir()
    (root / "latin" / "run.json").write_bytes(b'{"created": "\xff\xfe"}')
    os.mkdir(os.fsencode(root) + b"/not-\xff-utf8")
    (root / "not-\udcff-utf8" / "run.json").write_text(facts())
    linked = write(root / "linked", run_json=facts())
    for name in ("report.html", "metrics.jsonl", "recipe.toml"):
        os.symlink(place / "outside" / name, linked / name)
    os.symlink(place / "outside", root / "outside")
    piped = write(root / "piped", run_json=facts())
    for name in ("report.html", "metrics.jsonl", "recipe.toml", "model.safetensors", ".lock"):
        os.mkfifo(piped / name)
    for number, tree in enumerate(
        [
            {},
            {"entrants": 5},
            {"entrants": [{"label": "../..", "seeds": 7}]},
            {"facts": [], "question": 3},
            {"entrants": [{"label": [MARKUP], "seeds": {"a": 1}}], "facts": {"created": 3, "corpus": {"name": MARKUP}}},
        ]
    ):
        write(root / f"compared-{number}", comparison_json=json.dumps(tree))
    for number, tree in enumerate([{}, [3], [{"name": "hull", "numbers": 5}], [{"name": ["hull"], "numbers": {}}]]):
        write(root / f"claims-{number}", claims_json=json.dumps(tree))
    samples = root / ".lab" / "samples"
    write(samples, **{"types.jsonl": "\n".join(['{"step": "a"}', '{"step": 1, "created": [1]}', DEEP, "\x1b"])})
    write(
        root / ".lab" / "jobs",
        **{
            "aa.json": '{"pid": 1}',
            "ab.json": DEEP,
            "ac.json": '{"pid": 1, "words": 5}',
            "ad.json": '{"id": "aa", "pid": []}',
        },
    )
    return root


@pytest.fixture(scope="module")
def lab_at(folder, warm):
    """`regard lab` over that folder, on a real socket: lab_at(*words) → its address."""
    started = []

    def start(*words):
        command = [warm, "-P", "-m", "regard", "lab", str(folder), "--port", "0", "--no-browser", *words]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return urlsplit(started[-1].stdout.readline().strip())

    yield start
    for process in started:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        assert "Traceback" not in said, said[-4000:]
        assert "\x1b" not in said


@pytest.fixture(scope="module")
def lab(lab_at):
    return lab_at()


def ask(lab, method, path, body=None, **headers):
    """Status and content; the path goes as it is, which no browser would send."""
    connection = http.client.HTTPConnection(lab.hostname, lab.port, timeout=600)
    with suppress(ConnectionError):  # it may answer and close before it has read all
        connection.putrequest(method, path, skip_host="host" in headers)
        content = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        for name, value in ({"content-length": str(len(content or b""))} | headers).items():
            connection.putheader(name, value)
        connection.endheaders(content)
    answer = connection.getresponse()
    found = answer.status, answer.read(), dict(answer.headers)
    connection.close()
    return found


def refused(answer, *statuses):
    status, content, _ = answer
    assert 400 <= status < 500, (status, content[:300])
    assert not statuses or status in statuses
    sentence = json.loads(content)["error"]
    assert sentence.endswith((".", "?"))
    assert "\n" not in sentence
    assert "Traceback" not in sentence
    assert SECRET not in sentence
    return sentence


LEADING_OUT = [
    "../outside",
    "..%2foutside",
    "%2e%2e%2foutside",
    "/etc",
    "//etc",
    "outside",
    "linked/../../outside",
    "a%00b",
    "%00",
    "..%5coutside",
    ".",
    "..",
    "",
    ".lab",
    "%ff",
    "x" * 3000,
    "~",
    "linked/report.html",
]


@pytest.mark.parametrize("name", LEADING_OUT)
def test_no_name_leads_out_of_the_folder(lab, name):
    for path in ("runs/one?run=", "runs/report?name=", "runs/curves?run=", "ladder/one?name=", "time/about?run="):
        refused(ask(lab, "GET", f"/api/{path}{name}"), 400)


@pytest.mark.parametrize(
    "path",
    [
        "/../runs/types/run.json",
        "/%2e%2e/%2e%2e/outside/run.json",
        "/..%2f..%2foutside",
        "//etc/passwd",
        "/types/run.json",
        "/%00",
        "/views/../../application.py",
        "/views/%2e%2e/%2e%2e/opening.py",
        "/api/../opening.py",
        "/.lab/jobs/aa.json",
        "/static/../x",
        "/api/runs/../../../x",
        "/" + "a/" * 500,
        "/api/sentence/../../x",
        "/api/sentence/__class__",
    ],
)
def test_only_files_of_the_page_are_served(lab, path):
    refused(ask(lab, "GET", path), 404, 405)


def test_what_a_link_points_to_is_not_sent(lab):
    for path in (
        "runs",
        "runs/one?run=linked",
        "runs/curves?run=linked",
        "runs/report?name=linked",
        "ladder",
        "runs/one?run=piped",
        "runs/curves?run=piped",
        "runs/report?name=piped",
    ):
        status, content, _ = ask(lab, "GET", f"/api/{path}")
        assert status in (200, 400), path
        assert SECRET.encode() not in content


def test_a_page_of_another_site_cannot_ask_through_a_name_of_its_own(lab):
    for host in ("evil.example", "127.0.0.1.evil.example", "", f"evil.example:{lab.port}", "a@b", "[::"):
        refused(ask(lab, "GET", "/api/runs", host=host), 400, 421)


@pytest.mark.parametrize("path", ["runs/start", "runs/delete", "ladder/start", "claims/run", "translation/evaluate"])
def test_a_page_of_another_site_cannot_post(lab, path):
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{lab.port + 1}", "file://"):
        refused(ask(lab, "POST", f"/api/{path}", {}, origin=origin), 403)
    refused(ask(lab, "POST", f"/api/{path}", {}, **{"sec-fetch-site": "cross-site"}), 403)
    refused(ask(lab, "PUT", "/api/runs/upload?name=a", b"x", origin="http://evil.example"), 403)
    refused(ask(lab, "DELETE", "/api/runs/trash", origin="http://evil.example"), 403)


def test_another_address_needs_the_token(lab_at):
    open_lab = lab_at("--host", "0.0.0.0", "--token", TOKEN)
    for headers in (
        {},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": "Basic YTpi"},
        {"cookie": "regard=x"},
        {"cookie": f"regard-{open_lab.port}="},
    ):
        for path in ("/", "/api/runs", "/shell.js", "/api/runs/report?name=types", "/?token=wrong"):
            refused(ask(open_lab, "GET", path, **headers), 401)
        refused(ask(open_lab, "POST", f"/api/runs/start?token={TOKEN}", {}, **headers), 401)
    assert ask(open_lab, "GET", "/api/runs", authorization=f"Bearer {TOKEN}")[0] == 200


BODIES = {
    "no JSON": b"{",
    "a list": b"[1]",
    "null": b"null",
    "nested": DEEP.encode(),
    "nested objects": b'{"a":' * 50_000,
    "no UTF-8": b'{"run": "\xff"}',
    "many digits": b'{"seed": ' + b"9" * 5000 + b"}",
}
KEYS = (
    "run",
    "name",
    "system",
    "systems",
    "size",
    "data",
    "from",
    "id",
    "mark",
    "text",
    "corpus",
    "only",
    "settings",
    "token",
    "step",
    "parts",
    "weights",
    "seeds",
    "seed",
    "knobs",
    "match",
    "budget",
    "columns",
    "kind",
    "jobs",
)
VALUES = [
    3,
    [3],
    {"a": [3]},
    True,
    "\ud800",
    "<b>x</b>",
    "x" * 20_000,
    "../outside",
    "a\0b",
    ESCAPES,
    "--run=/tmp/x",
    1e308,
    -1,
]


def posts():
    """Every route that takes a body."""
    from importlib import import_module

    from regard.web.lab.application import VIEWS

    for view in VIEWS:
        for route in import_module(f"regard.web.lab.routes_{view}").ROUTES:
            if "POST" not in route.methods:
                continue
            if "{name}" in route.path:
                yield from (
                    route.path.replace("{name}", name) for name in import_module(f"regard.web.lab.routes_{view}").LONG
                )
            else:
                yield route.path


@pytest.mark.parametrize("path", list(posts()))
def test_wrong_types_are_refused_on_every_route(lab, folder, path):
    before = sorted(path.name for path in folder.iterdir())
    shown = {"authorization": f"Bearer {lab.query.removeprefix('token=')}"}  # an exercise's answer asks for the token
    for body in BODIES.values():
        refused(ask(lab, "POST", path, body, **shown), 400)
    for value in VALUES:
        refused(ask(lab, "POST", path, dict.fromkeys(KEYS, value), **shown), 400)
    assert sorted(path.name for path in folder.iterdir()) == before


ODD = ["\ud800", "a\0b", "x" * 200_000, "a\nb", "9" * 5000, "²", "1e400", "٣", "-1", "NaN", 10**400, -(10**400), 1e308]
FIELDS = {  # that once reached int(), a path or a command
    "runs/start": {"system": "lstm", "data": "copy", "size": "tiny", "name": "x", "from": "types"},
    "runs/estimate": {"system": "lstm", "data": "copy", "size": "tiny"},
    "runs/check": {"data": "my.txt", "columns": "1,2"},
    "ladder/start": {
        "systems": [],
        "data": "copy",
        "match": "",
        "budget": "9",
        "seeds": "1",
        "size": "tiny",
        "name": "x",
    },
    "claims/run": {"name": "hull", "seed": 1, "knobs": {}},
    "translation/evaluate": {"run": "types", "data": "valid"},
}


@pytest.mark.parametrize("path", FIELDS)
def test_an_odd_value_in_any_field_is_refused_in_a_sentence_that_names_it(lab, folder, path):
    before = sorted(path.name for path in folder.iterdir())
    for key in FIELDS[path]:
        for value in ODD[:4]:
            sentence = refused(ask(lab, "POST", f"/api/{path}", {**FIELDS[path], key: value}), 400)
            assert sentence.startswith(f"{key} "), sentence
    numbers = {"claims/run": ["seed"], "ladder/start": ["seeds"]}.get(path, [])
    for key in numbers:
        for value in ODD:
            sentence = refused(ask(lab, "POST", f"/api/{path}", {**FIELDS[path], key: value}), 400)
            assert sentence.startswith((f"{key} ", "The request must contain one JSON object.")), sentence
    assert sorted(path.name for path in folder.iterdir()) == before


def test_odd_values_of_settings_and_knobs_are_refused(lab):
    for value in (*ODD[:4], [1], {"a": 1}):
        for path in ("runs/start", "runs/estimate", "runs/form"):
            for settings in ({"training.steps": value}, {str(value): "1"}):
                body = {"system": "lstm", "data": "copy", "settings": settings}
                refused(ask(lab, "POST", f"/api/{path}", body), 400)
    for value in (*ODD[:5], [1], "1"):
        if value != "1":
            refused(ask(lab, "POST", "/api/claims/run", {"name": "hull", "knobs": {"a": value}}), 400)
        refused(ask(lab, "POST", "/api/claims/run", {"name": "hull", "knobs": {str(value) + "\0": 1}}), 400)


@pytest.mark.parametrize("value", ["9" * 5000, quote("²"), "1e400", quote("٣"), "-1", "0", "1.5", "%00", "%ed%a0%80"])
def test_odd_digits_in_an_address_are_refused(lab, value):
    sentence = refused(ask(lab, "GET", f"/api/runs/curves?run=types&width={value}"), 400)
    assert sentence.startswith("width must be ")
    connection = http.client.HTTPConnection(lab.hostname, lab.port, timeout=600)
    connection.request("GET", f"/api/runs/events?since=types:{value}.{value}")
    assert connection.getresponse().status in (200, 400)
    connection.close()


def test_a_misspelt_field_is_told(lab):
    sentence = refused(ask(lab, "POST", "/api/runs/start", {"system": "lstm", "setings": {}}), 400)
    assert sentence == 'There is no field "setings": did you mean settings?'


def test_too_much_is_refused_before_it_is_read(lab):
    refused(ask(lab, "POST", "/api/runs/start", None, **{"content-length": str(1 << 40)}), 413)
    with socket.create_connection((lab.hostname, lab.port), timeout=600) as connection:
        with suppress(ConnectionError):
            connection.sendall(b"GET /api/runs HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"a" * 200_000 + b"\r\n\r\n")
        assert b" 4" in connection.recv(100)


def test_every_view_answers_over_a_folder_from_a_stranger(lab):
    status, content, headers = ask(lab, "GET", "/api/runs")
    assert status == 200
    assert headers["content-type"].startswith("application/json")
    assert headers["x-content-type-options"] == "nosniff"
    assert "script-src 'self'" in headers["content-security-policy"]
    names = [run["name"] for run in json.loads(content)["runs"]]
    assert {MARKUP, "types", "list", "deep", "cut", "linked", "piped"} <= set(names)
    for name in names:
        word = quote(name, errors="surrogateescape")
        for path in (
            "runs/one?run=",
            "runs/curves?run=",
            "time/about?run=",
            "time/vectors?run=",
            "translation/results?run=",
        ):
            status, content, _ = answer = ask(lab, "GET", f"/api/{path}{word}")
            if status != 200:
                refused(answer)
        for path in ("runs/sample", "runs/stop", "sentence/trace", "translation/trace"):
            status, _, _ = answer = ask(lab, "POST", f"/api/{path}", {"run": name, "text": "a"})
            if status != 200:
                refused(answer)
    for path in (
        "ladder",
        "claims",
        "claims/one?name=hull",
        "runs/trash",
        "runs/choices",
        *(f"ladder/one?name=compared-{number}" for number in range(5)),
    ):
        status, _, _ = answer = ask(lab, "GET", f"/api/{path}")
        if status != 200:
            refused(answer)


def test_a_report_is_a_file_to_keep_and_can_do_nothing_here(lab, folder):
    (folder / "types" / "report.html").write_text("<script>alert(1)</script>")
    status, content, headers = ask(lab, "GET", "/api/runs/report?name=types")
    assert (status, content) == (200, b"<script>alert(1)</script>")
    assert headers["content-disposition"] == 'attachment; filename="types.html"'
    assert headers["content-security-policy"] == "sandbox; default-src 'none'"
    (folder / "uploads").mkdir(exist_ok=True)
    (folder / "uploads" / "report.html").write_text("x")
    refused(ask(lab, "GET", "/api/runs/report?name=uploads"), 400)
