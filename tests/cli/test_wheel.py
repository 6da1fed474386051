"""What `pip install` gives: the wheel holds everything that the command line needs, and works where it is installed."""

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from regard.runs.recipe import SHIPPED

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if find_spec("hatchling") is None or find_spec("pip") is None:
        pytest.skip("hatchling and pip build the wheel: pip install '.[test]'")
    folder = tmp_path_factory.mktemp("wheel")
    made = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--wheel-dir", folder],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    return next(folder.glob("regard-*.whl"))


def test_the_wheel_holds_recipes_types_and_licence(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "regard/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert {f"regard/recipes/{path.name}" for path in SHIPPED.glob("*.toml")} <= names
    assert len([*SHIPPED.glob("*.toml")]) > 10
    package = {
        f"regard/{path.relative_to(SHIPPED.parent).as_posix()}"
        for path in SHIPPED.parent.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert package <= names
    assert {f"regard/learn/lectures/pages/{number}.md" for number in ("counting", "gpt", "mistakes")} <= names
    assert "regard/learn/lectures/pages/figures/unrolled.svg" in names


@pytest.mark.slow
def test_an_installed_wheel_trains_a_recipe_that_came_with_it(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    bin = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    install = [sys.executable, "-m", "pip", "--python", bin / "python", "install", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True, capture_output=True)
    (site,) = (tmp_path / "venv").rglob("site-packages")
    (site / "others.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")  # torch and what else it needs
    text = tmp_path / "text"
    text.mkdir()
    for split, lines in {"train": 60, "valid": 12, "test": 12}.items():
        (text / f"ptb.{split}.txt").write_text("".join(f"the cat sat on mat {n} .\n" for n in range(lines)))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}

    def regard(*words):
        done = subprocess.run(
            [bin / "regard", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = subprocess.run(
        [bin / "python", "-c", "import regard; print(regard.__file__)"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(site.resolve()) or Path(where.stdout.strip()).is_relative_to(site)
    assert regard("--version").strip()
    assert "transformer" in regard("systems")
    assert "layers/recurrent.py" in regard("lecture", "003:49")
    run = regard("train", "ptb-kn5.toml", "--data", text, "--run", "mine").strip()
    assert "perplexity" in regard("evaluate", run)
