"""A read-only lab: every route is walked, none changes a file or starts a process, and what may is a short list."""

import json
import os
from pathlib import Path

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from regard.cli import main
from regard.web.guard import SAFE, guarded
from regard.web.lab import read_only
from regard.web.lab.application import VIEWS, application

TOKEN = "a-token-of-this-test-0123"
FORMS = {  # what would change something, if it were allowed
    "/api/runs/start": {"system": "ngram", "data": "copy", "name": "new"},
    "/api/runs/estimate": {"system": "ngram", "data": "copy"},
    "/api/runs/check": {"data": "my.txt"},
    "/api/runs/stop": {"run": "ngram"},
    "/api/runs/go-on": {"run": "ngram"},
    "/api/runs/delete": {"run": "ngram"},
    "/api/runs/restore": {"mark": "0123456789abcdef"},
    "/api/ladder/start": {"data": "copy", "systems": [{"system": "ngram"}]},
    "/api/ladder/go-on": {"run": "ngram"},
    "/api/claims/run": {"name": "hull", "quick": True},
    "/api/translation/evaluate": {"run": "ngram", "data": "valid"},
    "/api/exercises/check": {"name": "causal-mask", "code": "raise SystemExit"},
}
LOOKING = {  # questions that come by POST and write nothing
    "/api/runs/sample": {"run": "ngram"},
    "/api/runs/learned": {"run": "ngram"},
    "/api/runs/page": {"run": "ngram"},
    "/api/runs/characters": {"run": "ngram"},
    "/api/runs/form": {"system": "lstm"},
    "/api/sentence/{name}": {"run": "ngram", "text": "the"},
    "/api/translation/{name}": {"run": "ngram", "text": "the"},
    "/api/time/film": {"run": "ngram", "text": "the"},
    "/api/time/heads": {"run": "ngram", "text": "the"},
    "/api/ladder/check": {"data": "copy", "systems": ["ngram"]},
    "/api/text/statistics": {"corpus": "copy"},
    "/api/text/tokens": {"corpus": "copy", "kind": "char", "text": "the"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("class")
    (place / "my.txt").write_text("the cat sees the dog\nthe dog sees a bird\n" * 20, encoding="utf-8")
    words = ["ngram", "--data", str(place / "my.txt"), "--data.tokenizer", "char", "--model.order", "2"]
    main(["train", *words, "--run", str(place / "runs" / "ngram")])
    (place / "runs" / "uploads").mkdir()
    (place / "runs" / "uploads" / "my.txt").write_text("a b\n", encoding="utf-8")
    return place / "runs"


def contents(*folders):
    return {
        Path(place, name): (os.stat(Path(place, name)).st_mtime_ns, Path(place, name).read_bytes())
        for folder in folders
        for place, _, names in os.walk(folder)
        for name in names
    }


def all_routes():
    routes = [route for route in application(Path("/nowhere-that-is-written")).routes if isinstance(route, Route)]
    return [(route, method) for route in routes for method in sorted(route.methods - SAFE)]


@pytest.fixture(scope="module")
def client(folder):
    with TestClient(application(folder, read_only=True), base_url="http://127.0.0.1") as client:
        yield client


def test_every_route_that_may_change_something_is_refused_and_no_file_changes(client, folder, monkeypatch):
    def started(*words, **named):
        raise AssertionError(f"a process was started: {words}")

    monkeypatch.setattr("regard.web.lab.jobs.Jobs._start", started)
    cache = Path(os.environ["REGARD_CACHE"])
    before = contents(folder), contents(cache)
    refused, looked = set(), set()
    for route, method in all_routes():
        name = "trace" if "{name}" in route.path else ""
        answer = client.request(
            method,
            route.path.replace("{name}", name),
            params={"name": "mine.txt", "last": 1} if method == "PUT" else None,
            content=json.dumps(FORMS.get(route.path) or LOOKING.get(route.path) or {}),
        )
        if answer.status_code == 403:
            assert "read-only" in answer.json()["error"]
            assert answer.json()["error"].count(". ") == 0  # one sentence
            refused.add(route.path)
        else:
            assert route.path in LOOKING, f"{method} {route.path} is not refused: {answer.status_code}"
            assert answer.status_code in (200, 400), (route.path, answer.text)
            looked.add(route.path)
    assert looked == set(LOOKING)
    assert refused == {*FORMS, "/api/runs/upload", "/api/runs/trash"}
    assert contents(folder) == before[0]
    assert {path.parent for path in contents(cache).keys() - before[1].keys()} <= {cache / "tokens"}


def test_what_is_looked_at_by_get_changes_no_file_either(client, folder):
    cache = Path(os.environ["REGARD_CACHE"])
    before = contents(folder), contents(cache)
    asked = {"run": "ngram", "name": "causal-mask", "corpus": "copy", "id": "0"}
    for view in VIEWS:
        routes = __import__(f"regard.web.lab.routes_{view}", fromlist=["ROUTES"]).ROUTES
        for route in routes:
            if "GET" in route.methods and not route.path.endswith("/events"):
                assert client.get(route.path, params=asked).status_code in (200, 400, 404), route.path
    assert contents(folder) == before[0]
    assert {path.parent for path in contents(cache).keys() - before[1].keys()} <= {cache / "tokens"}


def test_it_keeps_no_progress_of_exercises_and_says_that_it_is_read_only(client):
    assert client.get("/api/lab").json()["read_only"] is True
    sheet = client.get("/api/exercises/one", params={"name": "causal-mask"}).json()
    assert "read-only" in sheet["refusal"]
    assert sheet["answer"] == ""


def test_a_new_route_is_refused_until_it_is_marked(monkeypatch):
    async def new(request):
        raise AssertionError

    route = Route("/new", new, methods=["POST", "GET"])
    assert read_only.read_only_route(route).endpoint is not new
    monkeypatch.setattr(read_only, "READING", {new})
    assert read_only.read_only_route(route) is route


# -- who may run code -------------------------------------------------------------------------------------------------


def lab(folder, *, is_local=True, **options):
    app = guarded(application(folder, is_local=is_local), **{"host": "127.0.0.1", "token": TOKEN, **options})
    return TestClient(app, base_url="http://127.0.0.1")


def test_code_runs_only_for_who_has_the_token(folder, monkeypatch):
    asked = []

    async def ask(self, work, body, **named):
        from regard.web.lab.worker import WorkerAnswer

        asked.append(work)
        return WorkerAnswer("json", b"{}")

    monkeypatch.setattr("regard.web.lab.application.Lab.ask", ask)
    body = {"name": "causal-mask", "code": "x"}
    shown = {"authorization": f"Bearer {TOKEN}"}
    with lab(folder, token_optional=True) as local:
        assert local.get("/api/exercises").status_code == 200  # looking needs none
        answer = local.post("/api/exercises/check", json=body)
        assert (answer.status_code, asked) == (403, [])
        assert "URL that `regard lab` printed" in answer.json()["error"]
        foreign = local.post("/api/exercises/check", json=body, headers=shown | {"origin": "http://evil.example"})
        assert (foreign.status_code, asked) == (403, [])
        assert local.post("/api/exercises/check", json=body, headers=shown).status_code == 200
        assert local.get("/", params={"token": TOKEN}).status_code == 200  # the printed address
        assert local.post("/api/exercises/check", json=body).status_code == 200
        assert asked == ["exercises.check"] * 2
    asked.clear()
    with lab(folder, is_local=False) as reached:
        answer = reached.post("/api/exercises/check", json=body, headers=shown)
        assert (answer.status_code, asked) == (403, [])
        assert "Other machines" in answer.json()["error"]
    with TestClient(application(folder), base_url="http://127.0.0.1") as unguarded:
        assert unguarded.post("/api/exercises/check", json=body).status_code == 403


def test_a_token_is_optional_on_this_machine_alone(folder):
    from regard.base.errors import RegardError

    with pytest.raises(RegardError, match="Other machines"):
        guarded(application(folder), host="0.0.0.0", token=TOKEN, token_optional=True)
