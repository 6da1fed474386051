"""A run goes to another machine as one file, whole, and what is not a run does not come out of one."""

import hashlib
import json
import os
import shutil
import stat
import sys
import zipfile

import pytest

import regard
from regard.base.digests import DIGEST, with_digest
from regard.base.errors import RegardError
from regard.base.locks import try_lock
from regard.exchange.archive import FILES, MANIFEST, TEXTS
from regard.exchange.formats import export, import_file

MINE = '''
from regard.layers.cell import Cell
import torch
class Mine(Cell):
    """Remembers the last word."""
    def step(self, x, state): return {"hidden": torch.tanh(x)}
'''


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that learned from a file of this machine."""
    folder = tmp_path_factory.mktemp("secret-place")
    (folder / "my.txt").write_text("\n".join(f"The ship number {n} left the harbour." for n in range(60)))
    settings = {"training": {"steps": 2}, "data": {"tokenizer": "char"}, "model": {"width": 8, "heads": 1, "layers": 1}}
    return regard.train("gpt", data=str(folder / "my.txt"), size="tiny", run=folder / "mine", settings=settings)


@pytest.fixture(scope="module")
def archive(trained, tmp_path_factory):
    file = tmp_path_factory.mktemp("archive") / "mine.zip"
    export(trained.folder, "archive", file)
    return file


def test_it_opens_elsewhere_with_the_same_weights_and_can_be_resumed(trained, archive, tmp_path):
    back = regard.load(import_file(archive, tmp_path / "back"), device="cpu")
    lines = ["The ship left.", "zzz"]
    assert [s.log_probability for s in back.score(lines)] == [s.log_probability for s in trained.score(lines)]
    kept = {path.name for path in trained.folder.iterdir()} - {"report.html", ".lock"}
    assert {path.name for path in back.folder.iterdir()} == kept
    with pytest.raises(RegardError, match="was trained on is missing"):
        back.evaluate()
    (back.folder / "my.txt").write_bytes((trained.folder.parent / "my.txt").read_bytes())
    assert back.evaluate()["perplexity"] == pytest.approx(trained.evaluate()["perplexity"])


def test_a_chat_template_travels(trained, tmp_path):
    copy = shutil.copytree(trained.folder, tmp_path / "copy")
    (copy / "chat_template.jinja").write_text("{{ messages[0].content }}")
    export(copy, "archive", tmp_path / "a.zip")
    assert regard.import_model(tmp_path / "a.zip", run=tmp_path / "run").chat_template == "{{ messages[0].content }}"


def test_the_same_run_gives_the_same_bytes_without_a_path_of_this_machine(trained, archive, tmp_path):
    export(trained.folder, "archive", tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()
    assert b"secret-place" not in archive.read_bytes()


def test_the_checkpoint_may_stay_behind(trained, archive, tmp_path):
    export(trained.folder, "archive", tmp_path / "small.zip", options={"training": "no"})
    assert (tmp_path / "small.zip").stat().st_size < archive.stat().st_size / 2
    assert regard.load(import_file(tmp_path / "small.zip", tmp_path / "back")).generate("The", max_tokens=2)


def test_its_digests_can_be_checked_without_regard(archive):
    with zipfile.ZipFile(archive) as opened:
        listed = json.loads(opened.read(MANIFEST))["files"]
        for name, expected in listed.items():
            assert hashlib.sha256(opened.read(name)).hexdigest() == expected["sha256"]


def test_a_run_that_is_being_trained_waits(trained, tmp_path):
    with try_lock(trained.folder / ".lock"), pytest.raises(RegardError, match="Another process"):
        export(trained.folder, "archive", tmp_path / "x.zip")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
@pytest.mark.parametrize("name", [*sorted({*FILES} - {*TEXTS, "tokenizer.source.json"}), "kept/7.safetensors"])
def test_what_is_not_a_plain_file_of_the_run_is_never_packed(trained, tmp_path, name, kind):
    """A run may come from a stranger: a link in it must not carry a file of this machine into an archive."""
    run, secret = tmp_path / "run", tmp_path / "secret"
    shutil.copytree(trained.folder, run)
    secret.write_text("a file of this machine")
    file = run / name
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    if kind == "link":
        file.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    with pytest.raises(RegardError, match=f"{file.name} is a link or not a regular file"):
        export(run, "archive", tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


@pytest.mark.parametrize("name", TEXTS)
def test_a_recipe_or_record_that_is_a_link_is_never_packed(trained, tmp_path, name):
    run = tmp_path / "run"
    shutil.copytree(trained.folder, run)
    (run / name).rename(tmp_path / name)
    (run / name).symlink_to(tmp_path / name)
    with pytest.raises(RegardError, match=f"{name} is a link or not a regular file"):
        export(run, "archive", tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


def test_code_that_is_a_link_is_never_packed(trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained.folder, run)
    facts = json.loads((run / "run.json").read_text()) | {"code": {"file": "mine.py", "sha256": ""}}
    facts.pop(DIGEST, None)
    (run / "run.json").write_text(json.dumps(with_digest(facts)))
    (tmp_path / "secret.py").write_text(MINE)
    (run / "mine.py").symlink_to(tmp_path / "secret.py")
    with pytest.raises(RegardError, match=r"mine.py is a link or not a regular file"):
        export(run, "archive", tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


def test_code_of_ones_own_travels_and_is_not_trusted_on_arrival(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "my.txt").write_text("\n".join(f"The ship number {n} left." for n in range(60)))
    settings = {"training": {"steps": 1}, "data": {"tokenizer": "char"}}
    made = regard.train(
        f"{tmp_path}/mine.py:Mine", data=str(tmp_path / "my.txt"), size="tiny", run=tmp_path / "a", settings=settings
    )
    export(made.folder, "archive", tmp_path / "a.zip")
    assert str(tmp_path).encode() not in (tmp_path / "a.zip").read_bytes()
    back = import_file(tmp_path / "a.zip", tmp_path / "elsewhere/b")
    (tmp_path / "mine.py").rename(tmp_path / "other.py")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "another-machine"))
    monkeypatch.setattr("regard.systems.own.code._named_here", set())
    monkeypatch.setattr("regard.systems.own.code._in_use", {})
    with pytest.raises(RegardError, match="has not been approved on this machine"):
        regard.load(back)
    from regard.systems.own.code import trust_code

    trust_code(f"{back}/mine.py:Mine")  # as `regard laws` does
    assert regard.load(back).generate("The", max_tokens=2)


# -- hostile archives --------------------------------------------------------------------------------------------------


def rebuilt(archive, out, *, add=(), change=None, without=(), listed=True, compress=False):
    """A copy with files added or changed; `listed`: with a manifest that says so."""
    with zipfile.ZipFile(archive) as old:
        files = {name: old.read(name) for name in old.namelist() if name not in (MANIFEST, *without)}
    files |= change or {}
    if listed:
        files |= dict(add)
    recorded = {n: {"bytes": len(c), "sha256": hashlib.sha256(c).hexdigest()} for n, c in files.items()}
    content = json.dumps({"archive": 1, "regard": "0", "files": recorded}).encode()
    how = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(out, "w", how) as new:
        for name, data in [*files.items(), (MANIFEST, content), *(() if listed else add)]:
            new.writestr(name, data)
    return out


def refused(file, folder):
    with pytest.raises(RegardError) as error:
        import_file(file, folder / "run")
    assert not [path for path in folder.iterdir() if path.name.startswith((".", "run"))]
    return str(error.value)


@pytest.mark.parametrize("name", [
    "../evil.txt", "/tmp/evil.txt", "kept/../../evil.safetensors", "kept\\1.safetensors", "evil.sh", "extra.py",
    ".lock", "C:evil.py", "kept/one.safetensors", "model.safetensors/x", "kept/",
])  # fmt: skip
def test_a_name_that_is_no_file_of_a_run_is_not_unpacked(archive, tmp_path, name):
    said = refused(rebuilt(archive, tmp_path / "x.zip", add=[(name, b"evil")]), tmp_path)
    assert "nothing was unpacked" in said or "damaged" in said or "in compressed or encrypted form or as a link" in said
    assert not list(tmp_path.parent.glob("evil*"))


@pytest.mark.parametrize("name", ["torch", "json", "numpy", "regard", "sitecustomize", "usercustomize", "code", "mine"])
def test_code_that_would_hide_a_module_is_not_unpacked(archive, tmp_path, name):
    with zipfile.ZipFile(archive) as opened:
        facts = json.loads(opened.read("run.json"))
    facts.pop(DIGEST, None)
    facts["code"] = {"file": f"{name}.py", "sha256": hashlib.sha256(b"evil").hexdigest()}
    change = {"run.json": json.dumps(with_digest(facts)).encode(), f"{name}.py": b"evil"}
    file = rebuilt(archive, tmp_path / "x.zip", change=change)
    if name == "mine":
        assert (import_file(file, tmp_path / "run") / "mine.py").exists()
    else:
        assert "would hide the module" in refused(file, tmp_path)


def test_what_is_not_a_whole_run_is_refused(archive, tmp_path):
    for without, said in [
        (("recipe.toml",), "has no recipe.toml"),
        (("run.json",), "has no run.json"),
        (("model.safetensors", "training.safetensors"), "has no weights"),
        (("recipe.toml", "tokenizer.json", "metrics.jsonl", "model.safetensors", "training.safetensors"), "has no"),
    ]:
        assert said in refused(rebuilt(archive, tmp_path / "x.zip", without=without), tmp_path)
    for recipe in (b"system = ", b"soup = 'leek'", b"\xff"):
        said = refused(rebuilt(archive, tmp_path / "x.zip", change={"recipe.toml": recipe}), tmp_path)
        assert "x.zip/recipe.toml" in said


def test_what_is_not_listed_or_listed_twice_is_refused(archive, tmp_path):
    file = rebuilt(archive, tmp_path / "x.zip", add=[("kept/1.safetensors", b"")], listed=False)
    assert "does not contain the files that it lists" in refused(file, tmp_path)
    with pytest.warns(UserWarning, match="Duplicate name"):
        file = rebuilt(archive, tmp_path / "y.zip", add=[("metrics.jsonl", b"other")], listed=False)
    assert "does not contain the files that it lists" in refused(file, tmp_path)


def test_packed_members_and_links_are_refused(archive, tmp_path):
    bomb = rebuilt(archive, tmp_path / "x.zip", change={"metrics.jsonl": b"0" * (1 << 22)}, compress=True)
    assert "declares more content than fits into it" in refused(bomb, tmp_path)
    assert "packed" in refused(rebuilt(archive, tmp_path / "z.zip", compress=True), tmp_path).replace(
        "damaged", "packed"
    )
    link = zipfile.ZipInfo("kept/1.safetensors")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    file = rebuilt(archive, tmp_path / "y.zip", add=[(link, b"/etc/passwd")], listed=False)
    assert "as a link" in refused(file, tmp_path)


def test_every_kind_of_damage_is_found(archive, tmp_path):
    content = archive.read_bytes()
    with zipfile.ZipFile(archive) as opened:
        start = opened.getinfo("model.safetensors").header_offset + 200
    for broken in (
        content[: len(content) // 2],
        content[:start] + bytes([content[start] ^ 1]) + content[start + 1 :],
        content[:4],
        content[:4] + b"\xff" * 500,
        content[:-10],
    ):
        (tmp_path / "x.zip").write_bytes(broken)
        assert "is damaged" in refused(tmp_path / "x.zip", tmp_path)


def test_another_zip_or_version_says_what_it_is(archive, tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as new:
        new.writestr("archive/data.pkl", b"\x80")
    assert "pickled PyTorch model" in refused(tmp_path / "x.zip", tmp_path)
    with zipfile.ZipFile(tmp_path / "y.zip", "w") as new:
        new.writestr(MANIFEST, json.dumps({"archive": 2}))
    assert "archive format 2" in refused(tmp_path / "y.zip", tmp_path)
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as new:
        new.writestr(MANIFEST, "[" * 200_000)
    assert "is damaged" in refused(tmp_path / "z.zip", tmp_path)


def test_nothing_is_overwritten(archive, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/mine.txt").write_text("mine")
    with pytest.raises(RegardError, match="already exists"):
        import_file(archive, tmp_path / "run")
    assert (tmp_path / "run/mine.txt").read_text() == "mine"
