"""The lab's server without a browser: its files, uploads, jobs, and that it is quick to start."""

import subprocess
import sys
import time

import pytest
from starlette.testclient import TestClient

from regard.web.lab.application import STATIC, application


@pytest.fixture
def client(tmp_path):
    with TestClient(application(tmp_path / "runs"), base_url="http://127.0.0.1") as client:
        yield client


def test_the_server_does_not_load_torch():
    code = (
        "import sys, tempfile, pathlib\n"
        "from starlette.testclient import TestClient\n"
        "import regard.web.lab.opening\n"
        "from regard.web.lab.application import application\n"
        "with TestClient(application(pathlib.Path(tempfile.mkdtemp()))) as client:\n"
        "    for path in ('/', '/api/runs', '/api/runs/choices', '/api/ladder', '/colours.js'):\n"
        "        assert client.get(path).status_code == 200, path\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_file_of_the_page_is_served_and_nothing_else(client):
    for path in STATIC.rglob("*.*"):
        answer = client.get(f"/{path.relative_to(STATIC).as_posix()}")
        assert answer.content == path.read_bytes()
        assert answer.headers["content-encoding"] == "gzip"
        again = client.get(f"/{path.relative_to(STATIC).as_posix()}", headers={"if-none-match": answer.headers["etag"]})
        assert again.status_code == 304
    for path in ("/../application.py", "/%2e%2e/application.py", "/static/shell.js", "/etc/passwd", "//etc/passwd"):
        assert client.get(path).status_code == 404


def test_no_file_of_the_page_makes_markup_of_text():
    for path in STATIC.rglob("*.js"):
        code = path.read_text(encoding="utf-8").partition("\n")[2]
        for way in (
            ".innerHTML",
            ".outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
        ):
            assert way not in code, f"{path.name}: {way}"
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert "style=" not in page
    assert "://" not in page


def test_a_file_comes_in_pieces_under_a_plain_name_and_replaces_none(client, tmp_path):
    first = client.put("/api/runs/upload", params={"name": "../../My <b>.txt"}, content=b"one\n").json()
    done = client.put(
        "/api/runs/upload", params={"name": "../../My <b>.txt", "token": first["token"], "last": 1}, content=b"two\n"
    ).json()
    again = client.put("/api/runs/upload", params={"name": "../../My <b>.txt", "last": 1}, content=b"three\n").json()
    assert (done["name"], again["name"]) == ("My-b.txt", "My-b-2.txt")
    assert (tmp_path / "runs" / "uploads" / "My-b.txt").read_bytes() == b"one\ntwo\n"
    for token in ("../x", "zz", "0" * 31):
        answer = client.put("/api/runs/upload", params={"name": "a", "token": token}, content=b"x")
        assert answer.status_code == 400


def test_a_check_is_a_job_whose_result_is_that_of_the_command_line(client):
    client.put("/api/runs/upload", params={"name": "my.txt", "last": 1}, content=b"a b\na b\nc\n")
    job = client.post("/api/runs/check", json={"data": "my.txt"}).json()
    while job["running"]:
        time.sleep(0.05)
        job = client.get("/api/runs/job", params={"id": job["id"]}).json()
    assert job["code"] == 0
    assert job["result"]["files"]["text"]["duplicate_lines"] == 1
    assert client.get("/api/runs/job", params={"id": "../../x"}).status_code == 400


def test_a_job_that_fails_says_why_in_a_sentence(client, tmp_path):
    body = {"system": "lstm", "data": "pyref", "name": "mine", "settings": {"training.steps": "many"}}
    job = client.post("/api/runs/start", json=body).json()
    while job["running"]:
        time.sleep(0.05)
        job = client.get("/api/runs/job", params={"id": job["id"]}).json()
    assert job["problem"] == "training.steps must be a whole number, not 'many'."
    assert not (tmp_path / "runs" / "mine").exists()


@pytest.mark.parametrize(
    "path, body",
    [
        ("runs/start", b"[1]"),
        ("runs/start", b"{" * 100_000),
        ("runs/start", b'{"system": 3}'),
        ("runs/start", b'{"system": "lstm", "settings": [1]}'),
        ("runs/stop", b'{"run": "../x"}'),
        ("runs/stop", b'{"id": "../x"}'),
        ("runs/go-on", b'{"run": "x"}'),
        ("runs/delete", b'{"run": "uploads"}'),
        ("runs/restore", b'{"mark": "../../x"}'),
        ("ladder/start", b'{"data": "/etc/passwd"}'),
        ("ladder/start", b'{"systems": ["--run=/tmp/x"], "data": "pyref"}'),
        ("ladder/go-on", b'{"run": ".."}'),
    ],
)
def test_what_is_wrong_is_answered_with_one_sentence(client, path, body):
    answer = client.post(f"/api/{path}", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"].endswith((".", "?"))
