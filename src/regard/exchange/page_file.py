"""A run as one self-contained HTML file: model, tokenizers, views and worker, with no network and no server.

`page_graphs.py` exports the graphs, `page_model.py` and `page_weights.py` make them data, and the modules in
`web/lab/static/page` compute them in the browser. The views are the lab's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tomli_w
import torch

from regard.base.errors import RegardError
from regard.base.numbers import format_bytes
from regard.base.settings import check_choice
from regard.base.writing import write_text
from regard.exchange.chromium import Chromium
from regard.exchange.page_weights import FORMATS, PageWeights
from regard.exchange.parity import Parity, texts, token_rows
from regard.insight.interventions.lens import output_map
from regard.insight.words import GATES, attention_name, part_name
from regard.report.offline_page import SPOKEN, STATIC, offline_page, script_of
from regard.report.progress import say
from regard.report.table import significant
from regard.report.tight import tight_style, used_rules
from regard.runs.ancestors import Ancestors, provenance
from regard.runs.load import AnyRun
from regard.runs.recipe import without_folders
from regard.runs.run_report import MEASURES, effort, finding
from regard.runs.store.facts import read_facts
from regard.runs.store.gallery import is_shipped
from regard.runs.store.history import read_metrics
from regard.runs.tasks.task import task_of
from regard.systems.catalogue import find
from regard.systems.classifier import Classifier
from regard.systems.model import Model
from regard.systems.ngram import NGram
from regard.systems.own.code import is_own
from regard.text.tokenizers.tokenizer import Tokenizer

LARGEST = 200_000_000  # bytes of a page; browsers hold several copies of the text and the numbers
PROGRAM, STYLES = "page/page", ("style", "reading", "page/page")
FRAME = (
    '<main class="offline page" id="main"></main>\n<div id="notices" role="status"></div>\n'
    "<noscript>This model needs JavaScript, which is turned off.</noscript>\n"
)
ROWS = {"cross": ("written", "source"), "encoder": ("source", "source")}


def write(
    run: AnyRun, out: Path, *, weights: str = "fp32", license: str = "", scores: str = "", embed: str = ""
) -> None:
    """`weights`: fp32, fp16 or int8; `scores`: no = do not evaluate the model; `embed`: yes = for another page."""
    whole = page(run, weights=weights, license=license, scored=scores != "no")
    write_text(out, _embedded(run, whole) if embed == "yes" else whole)


def page(run: AnyRun, *, weights: str = "fp32", license: str = "", scored: bool = False) -> str:
    """The whole file; `scored`: evaluate the model on its test split and show the scores."""
    check_choice("--weights", weights, FORMATS)
    block = PageWeights(weights)
    made = model_data(run, block)
    size = round(block.size * 4 / 3)
    if size > LARGEST:
        smaller = "" if weights == "int8" else " --weights int8 makes it smaller;"
        raise RegardError(
            f"The page of this model would be {format_bytes(size)}, but the limit is "
            f"{format_bytes(LARGEST)}:{smaller} "
            "--to onnx and `regard serve` have no such limit."
        )
    return _page(run, made, block, weights, license, scored)


def _embedded(run: AnyRun, page: str) -> str:
    """A part that another page can include: a sandboxed page that cannot access anything outside."""
    inside = page.replace("&", "&amp;").replace("'", "&#39;")  # scripts and JSON have few of these, but many "
    return (
        f'<iframe title="{escape(_title(run))}" sandbox="allow-scripts allow-downloads" loading="lazy" '
        f"style=\"width:100%;height:44rem;border:0\" srcdoc='{inside}'></iframe>\n"
    )


# -- the model -------------------------------------------------------------------------------------------------------


def model_data(run: AnyRun, block: PageWeights) -> dict[str, Any]:
    """Everything that the worker needs, except the weights, which are added to `block`."""
    model, task = run.model, task_of(run).name
    about = {
        "system": str(run.recipe.system).rpartition(":")[2],
        "name": run.folder.resolve().name,
        "task": task,
        "forbidden": [] if isinstance(model, Classifier) else run.forbidden,
        "parts": [],
        "notes": [],
        **_lens(model),
    }
    made: dict[str, Any] = {"about": about, "tokenizer": _tokenizer(run.tokenizer)}
    if run.source_tokenizer is not None:
        about["longest"] = run.recipe.data.longest + 1
        if run.source_tokenizer is not run.tokenizer:
            made["source"] = _tokenizer(run.source_tokenizer)
    if isinstance(model, NGram):
        made["ngram"] = {"vocabulary": model.vocabulary, "levels": list(_levels(model, block))}
    else:
        made["network"], about["parts"] = _network(run, block)
    made["table"] = block.table
    return made


def _lens(model: Model) -> dict[str, Any]:
    """For each layer, whether attention is added as a plain sum; or the reason why the lens is not available."""
    try:
        output_map(model)
    except RegardError as error:
        return {"cannot": str(error)}
    return {"lens": [bool(getattr(layer, "norm_first", False)) for layer in model.layers]}  # type: ignore[union-attr]


def _tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    whole = json.loads(tokenizer.json)
    return {name: whole[name] for name in ("normalizer", "pre_tokenizer", "model")}


def _levels(model: NGram, block: PageWeights) -> Iterator[dict[str, int]]:
    """For each order, the words after each context, in order: those after context c are begin[c] … begin[c + 1]."""
    contexts = 1
    for level in model.levels:
        keys, *numbers = (part[:-1].cpu().numpy() for part in (level.keys, level.log_probability, level.log_backoff))
        begin = np.searchsorted(keys, np.arange(contexts + 1) * model.vocabulary)
        words = (keys % model.vocabulary).astype(np.uint16 if model.vocabulary <= 1 << 16 else np.uint32)
        arrays = {"begin": begin.astype(np.uint32), "words": words, "logs": numbers[0], "backoffs": numbers[1]}
        yield {name: block.add(array) for name, array in arrays.items()}
        contexts = len(keys)


def _network(run: AnyRun, block: PageWeights) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        from regard.exchange.onnx_graphs import Example, plain
        from regard.exchange.page_graphs import graphs
        from regard.exchange.page_model import PageGraph
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("regard"):
            raise
        raise RegardError(f"--to page needs the package {missing.name}: pip install 'regard[onnx]'.") from None
    model = plain(run)
    described, parts = {}, []
    for name, graph in graphs(model):
        described[name] = PageGraph(graph, block).description
        parts += [{"graph": name, **part} for part in map(_part, described[name]["outputs"]) if part]
    parts.sort(key=lambda part: (part["kind"] in ("hidden", "gates"), *_order(part)))
    network: dict[str, Any] = {"graphs": described, "context": model.context}
    if run.source_tokenizer is None:
        first = Example(sources=1, past=0).state(model)
        if any(bool(leaf.any()) for leaf in first.values()):
            raise RegardError("--to page starts every text from zeros, but this model starts differently.")
        kinds = {True: "f", False: "i"}
        network["state"] = [[path, list(leaf.shape), kinds[leaf.is_floating_point()]] for path, leaf in first.items()]
    return network, parts


def _order(part: dict[str, Any]) -> tuple[bool, bool]:
    """The order of a trace: gates before states, and for both the decoder first."""
    inside = part["kind"] in ("hidden", "gates")
    return inside and part["name"].startswith("encoder"), part["kind"] == "hidden"


def _part(output: str) -> dict[str, Any] | None:
    """The page's description of an output that it shows."""
    kind, _, name = output.partition("/")
    if output == "alignment":
        return {"output": output, "kind": "alignment", "name": "alignment"}
    if kind == "attention":
        rows, columns = ROWS.get(name.partition("/")[0], ("read", "read"))
        axes = {"rows": rows, "columns": columns, "causal": columns == "read"}
        return {"output": output, "kind": kind, "name": name, "title": attention_name(name), **axes}
    if kind == "matrices":
        return {"output": output, "kind": kind, "name": name, "title": part_name(name)}
    if kind in ("hidden", "gates") and name:
        unit = "gate: 0 closed, 1 open" if name.rpartition("/")[2] in GATES else "value of the unit"
        rows = "source" if name.startswith("encoder") else "read"
        return {"output": output, "kind": kind, "name": name, "title": part_name(name), "rows": rows, "unit": unit}
    return None


# -- the page --------------------------------------------------------------------------------------------------------


def _page(run: AnyRun, made: dict[str, Any], block: PageWeights, form: str, license: str, scored: bool) -> str:
    facts = read_facts(run.folder)
    shown = {"title": _title(run), **_told(run, facts, form, license, scored), "examples": _examples(run)}
    body = (
        f'{FRAME}<script type="application/json" id="shown">{_json(shown)}</script>\n'
        f'<script type="application/json" id="model">{_json(made)}</script>\n'
        f'<script type="text/plain" id="worker">{script_of("page/worker")}</script>\n'
        f'<script type="text/plain" id="weights">{block.packed()}</script>'
    )
    files = ((STATIC / f"{name}.css").read_text(encoding="utf-8") for name in STYLES)
    style = used_rules(tight_style("".join(files)), script_of(PROGRAM), FRAME + SPOKEN)
    return offline_page(shown["title"], body, styles=(), style=style, entry=PROGRAM, sources="; worker-src blob:")


def _json(value: Any) -> str:
    """JSON that no string in it can end: it has no <, and no & that an old parser could read as an entity."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return (
        text.replace("<", "\\u003c").replace("&", "\\u0026").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    )


def _title(run: AnyRun) -> str:
    corpus = read_facts(run.folder).get("corpus", {}).get("name")
    system = str(run.recipe.system).rpartition(":")[2]
    return f"{run.folder.resolve().name}: {system}" + (f" on {corpus}" if corpus else "")


def _told(run: AnyRun, facts: dict[str, Any], form: str, license: str, scored: bool) -> dict[str, Any]:
    """The page's facts about the model: scores, data, license, recipe, and how it was made."""
    found, why_not = {}, "no scores were measured for this page."
    if is_shipped(run.folder):
        found = facts["gallery"]["score"]
    elif scored:
        found, why_not = _scores(run)
    entries = read_metrics(run.folder / "metrics.jsonl")
    corpus = facts.get("corpus", {})
    ancestors = Ancestors.of(run.folder).runs
    rows = {
        "system": _system(run),
        "trained": effort(run, facts, entries),
        "data": corpus.get("name") or "unknown",
        "data checksum": corpus.get("checksum"),
        **{f"started from {one['run']}": provenance(one) for one in ancestors},
        "license": license or "not stated",
        "seed": facts.get("seed"),
        "started": facts.get("created"),
        "weights in this page": {
            "fp32": "fp32",
            "fp16": "fp16, half precision",
            "int8": "8-bit integers, which change the probabilities slightly",
        }[form],
        "created with": f"Regard {facts.get('regard')}, PyTorch {facts.get('torch')}",
    }
    measured = [[MEASURES[key], _value(found[key])] for key in MEASURES if found.get(key) is not None]
    return {
        "finding": finding(entries, found or None),
        "about": [[name, str(value)] for name, value in rows.items() if value is not None],
        "split": found.get("split", ""),
        "scores": measured,
        "unscored": why_not,
        "notes": corpus.get("notes", []),
        "recipe": tomli_w.dumps(without_folders(run.recipe.tree())),
    }


def _system(run: AnyRun) -> str:
    """The name of the system, with its title and paper unless it is a user's own."""
    name = str(run.recipe.system)
    if is_own(name):
        return name.rpartition(":")[2]
    known = find(name)
    return f"{name}: {known.title} ({known.paper})"


def _value(score: Any) -> str:
    return significant(float(score["score"] if isinstance(score, dict) else score))


def _scores(run: AnyRun) -> tuple[dict[str, Any], str]:
    try:
        return run.evaluate(), ""
    except RegardError as error:
        say(f"note: the page has no scores: {error}")
        return (
            {},
            "the scores could not be measured for this page.",
        )  # the error message may contain paths of this machine


def _examples(run: AnyRun) -> list[str]:
    """A few example lines: from the held-out text, if the data still exist."""
    try:
        lines = [line for line in texts(run, 24) if line.strip()]
    except RegardError:
        return []
    return sorted(dict.fromkeys(lines), key=lambda line: abs(len(line) - 45))[:5]


# -- checking --------------------------------------------------------------------------------------------------------


def check(run: AnyRun, out: Path, **options: str) -> Parity:
    """Compare the page, in headless Chromium, with Regard: log-probabilities of token rows, and greedy texts."""
    if options.get("embed") == "yes":  # the frame contains a whole page
        with TemporaryDirectory() as scratch:
            inside = Path(scratch) / "page.html"
            (held,) = re.findall("srcdoc='([^']*)'", out.read_text(encoding="utf-8"))
            inside.write_text(unescape(held), encoding="utf-8")
            return check(run, inside)
    sources = token_rows(run, 3, 12, source=True) if task_of(run).has_source else [None] * 3
    largest, same = 0.0, 0
    with Chromium.start() as browser:
        page = browser.open_file(out)
        page.evaluate("regard.ready")

        def ask(name: str, **given: Any) -> Any:
            return page.evaluate(f"regard.call({json.dumps(name)}, {json.dumps(given)})")

        for row, source in zip(token_rows(run, 3), sources):
            given = None if source is None else [*source, run.tokenizer.eos]
            ours = log_probabilities(run, [run.tokenizer.eos, *row[:-1]], given)
            theirs = np.array(ask("logs", ids=[run.tokenizer.eos, *row[:-1]], source=given))
            seen = ours > -1e4  # for impossible words, log 0 is only a very low number
            largest = max(largest, float(np.abs(ours - theirs)[seen].max()))
        lines = texts(run)
        for line in lines:
            same += answer(run, line) == page_answer(run, line, ask)
        program = page.evaluate("navigator.userAgent.match(/\\w*Chrom\\w*\\/[\\d.]+/)[0].replace('/', ' ')")
    return Parity(run.recipe.system, "page", program, "log-probabilities", largest, f"{same} of {len(lines)} answers")


@torch.no_grad()
def log_probabilities(run: AnyRun, ids: list[int], source: list[int] | None) -> np.ndarray:
    state = run.model.begin(torch.tensor([source])) if source else None
    tokens = torch.tensor([ids[:1] if isinstance(run.model, Classifier) else ids])
    return run.model(tokens, state)[0][0].double().log_softmax(-1).numpy()


def answer(run: Any, line: str) -> str:
    """A label, a greedy translation, or a greedy continuation of the first words of a line."""
    task = task_of(run).name
    if task == "classification":
        return str(run.classify(line))
    if task == "translation":
        return str(run.translate(line, beam=1))
    return str(run.generate(_beginning(line), max_tokens=24, temperature=0.0))


def page_answer(run: Any, line: str, ask: Any) -> str:
    task = task_of(run).name
    if task == "classification":
        return str(ask("trace", text=line)["facts"]["top"][0][0]["token"])
    if task == "translation":
        return str(ask("translated", text=line, beam=1)["text"])
    return str(ask("write", text=_beginning(line), tokens=24, temperature=0)["text"])


def _beginning(line: str) -> str:
    return " ".join(line.split(" ")[:3])
