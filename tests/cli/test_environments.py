"""The same bytes in any locale and time zone, and with a home that is no folder or is not set; in processes of their
own, since Python reads a locale when it starts."""

import hashlib
import os
import subprocess
import sys

import pytest

LINES = "".join(f"der Hund sieht Straße {n}\nla forêt ça {n}\n" for n in range(40))
TRAIN = ["train", "ngram", "--data", "text.txt", "--run", "run", "--data.tokenizer", "word"]
CODE = f"from regard.cli import main; main({TRAIN!r}); main(['score', 'run'])"
ENVIRONMENTS = {  # variables that are set, or None: not set
    "as here": {},
    "C": {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "Turkish": {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "7"},
    "no home": {"HOME": None, "USER": None, "LOGNAME": None},
    "a home that is no folder": {"HOME": "/dev/null", "REGARD_CACHE": None, "XDG_CACHE_HOME": None},
}


@pytest.fixture(scope="module")
def answers():
    return {}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="other variables")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_run_is_the_same_bytes_in_any_environment(name, answers, tmp_path):
    chosen = {**os.environ, "OMP_NUM_THREADS": "1", **ENVIRONMENTS[name]}
    environment = {key: value for key, value in chosen.items() if value is not None}
    (tmp_path / "text.txt").write_text(LINES, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        input="der Hund sieht ça\n".encode(),
        capture_output=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    found = [done.stdout]
    found.append(hashlib.sha256((tmp_path / "run" / "model.safetensors").read_bytes()).hexdigest())
    assert found == answers.setdefault("first", found)
