"""Tests of this folder exchange functions of other modules. Whoever imports such a function by its name must have done
so before, or would keep the stand-in for all tests that follow in this process."""

import ast
import importlib
from contextlib import suppress
from pathlib import Path

import regard

ROOT = Path(regard.__file__).parent
EXCHANGED = (
    "regard.bench.measure", "regard.bench.server_load", "regard.comparison.comparison", "regard.comparison.findings",
    "regard.corpora.downloads", "regard.corpora.fetch", "regard.demo", "regard.exchange.engines",
    "regard.exchange.formats", "regard.laws.registry", "regard.runs.compose", "regard.runs.dry_run", "regard.runs.load",
    "regard.runs.resume", "regard.runs.store.list", "regard.runs.train", "regard.web.lab.opening",
    "regard.web.listening", "regard.web.serve.api_server", "regard.web.serve.served_models",
)  # fmt: skip


def binding():
    """The modules that import something of those by its name, when they are imported themselves."""
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.ImportFrom) and node.module in EXCHANGED for node in tree.body):
            yield ".".join(("regard", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


for module in (*EXCHANGED, *binding()):
    with suppress(ImportError):  # it needs a package that is not installed
        importlib.import_module(module)
