"""The lab's modules, run by Node or, without it, by headless Chromium."""

import json
import re
import shutil
import subprocess

import pytest

from regard.exchange.chromium import Chromium, find_chromium
from regard.report.offline_page import script_of

# JSON has no word for these numbers.
READ = (
    'const back = (key, value) => ({ "number ∞": Infinity, "number -∞": -Infinity, "number ?": NaN })[value] ?? value;'
)
WRITE = """const plain = (key, value) => ArrayBuffer.isView(value) ? [...value].map((one) => plain("", one))
  : value === Infinity ? "number ∞" : value === -Infinity ? "number -∞" : Number.isNaN(value) ? "number ?" : value;"""
WORDS = {"number ∞": float("inf"), "number -∞": float("-inf"), "number ?": float("nan")}


def javascript(module: str, body: str, given):
    """What `body` returns: a function's body, in which `given` and the module's exports are in reach."""
    script = script_of(module)
    names = re.findall(r"\w+", script.rpartition("return{")[2].partition("}")[0])
    scope = re.findall(r"^const (module_\w+)=", script, re.M)[-1]
    whole = (
        f"(async () => {{ {script}\n{READ}\n{WRITE}\nconst {{ {', '.join(names)} }} = {scope};\n"
        f"const given = JSON.parse({json.dumps(json.dumps(given))}, back);\n"
        f"const returned = await (async () => {{ {body} }})();\nreturn JSON.stringify(returned, plain); }})()"
    )
    return _decoded(json.loads(evaluated(whole)))


def evaluated(whole: str) -> str:
    if node := shutil.which("node"):
        program = f"{whole}.then((text) => process.stdout.write(text, () => process.exit(0)))"
        done = subprocess.run([node, "-"], input=program, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout
    if find_chromium() is None:
        pytest.skip("neither Node nor Chromium is here to run JavaScript")
    with Chromium.start() as browser:
        return str(browser.open("about:blank").evaluate(whole))


def _decoded(value):
    if isinstance(value, list):
        return [_decoded(one) for one in value]
    if isinstance(value, dict):
        return {name: _decoded(one) for name, one in value.items()}
    return WORDS.get(value, value) if isinstance(value, str) else value
