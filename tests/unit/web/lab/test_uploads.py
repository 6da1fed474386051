"""Files that are dropped into the page: never a run, and what is not sent to its end does not stay for ever."""

import os
import time

import pytest
from starlette.testclient import TestClient

from regard.base.errors import RegardError
from regard.web.lab import uploads
from regard.web.lab.application import application
from regard.web.lab.runs_folder import RunsFolder
from regard.web.lab.trash import Trash


@pytest.fixture
def folder(tmp_path):
    return RunsFolder(tmp_path / "runs")


@pytest.mark.parametrize("name", ["run.json", "comparison.json", "claims.json", "Run.JSON", "a/run.json"])
def test_no_upload_gets_a_name_that_marks_a_run(folder, name):
    stored = uploads.take(folder, name, "", b"{}", last=True)["name"]
    assert stored.casefold() in ("run-2.json", "comparison-2.json", "claims-2.json")
    assert (folder.root / "uploads" / stored).read_bytes() == b"{}"


@pytest.mark.parametrize("name", ["uploads", "uploads/x", ".lab", ".lab/x"])
def test_uploads_are_neither_a_run_nor_a_comparison(folder, name):
    place = folder.root / name
    place.mkdir(parents=True)
    for file in ("run.json", "comparison.json", "claims.json", "report.html"):
        (place / file).write_text("{}")
    for find in (folder.run, folder.comparison, folder.report, folder.plain_run, Trash(folder).put):
        with pytest.raises(RegardError):
            find(name)
    assert place.is_dir()
    assert folder.runs() == folder.comparisons() == []


def test_a_run_beside_the_uploads_is_still_found(folder):
    for name in ("uploads", "lstm", "demo/uploads"):
        (folder.root / name).mkdir(parents=True)
        (folder.root / name / "run.json").write_text("{}")
    assert folder.run("lstm").is_dir()
    assert folder.run("demo/uploads").is_dir()


def test_all_that_waits_together_is_limited(folder, monkeypatch):
    monkeypatch.setattr(uploads, "MOST_UPLOAD", 10)
    first = uploads.take(folder, "a", "", b"12345", last=False)["token"]
    second = uploads.take(folder, "b", "", b"1234", last=False)["token"]
    with pytest.raises(RegardError, match="use the terminal"):
        uploads.take(folder, "b", second, b"12", last=True)
    assert uploads.take(folder, "a", first, b"67890", last=True) == {"name": "a.txt", "bytes": 10}
    assert folder.own_names("uploads") == []
    monkeypatch.setattr(uploads, "MOST_PARTS", 2)
    token = uploads.take(folder, "a", "", b"", last=False)["token"]
    uploads.take(folder, "a", "", b"", last=False)
    with pytest.raises(RegardError, match="already in progress"):
        uploads.take(folder, "a", "", b"", last=False)
    uploads.take(folder, "a", token, b"1", last=False)


def test_a_token_that_was_never_given_is_refused(folder):
    for token in ("0" * 32, "../x", "zz"):
        with pytest.raises(RegardError, match="This upload is unknown"):
            uploads.take(folder, "a", token, b"x", last=True)
    assert folder.own_names("uploads") == []


def test_what_waits_for_more_than_a_day_is_removed_at_the_start(folder):
    old, new = (uploads.take(folder, "a", "", b"x", last=False)["token"] for _ in range(2))
    before = time.time() - 2 * 24 * 3600
    os.utime(folder.own("uploads") / f"{old}.part", (before, before))
    with TestClient(application(folder.root)):
        assert folder.own_names("uploads") == [f"{new}.part"]


def test_the_same_file_twice_is_kept_once(folder):
    for content, name in ((b"one", "my.txt"), (b"one", "my.txt"), (b"two", "my-2.txt"), (b"two", "my-2.txt")):
        assert uploads.take(folder, "my.txt", "", content, last=True)["name"] == name
    assert sorted(path.name for path in (folder.root / "uploads").iterdir()) == ["my-2.txt", "my.txt"]
    assert not list((folder.root / ".lab" / "uploads").iterdir())
