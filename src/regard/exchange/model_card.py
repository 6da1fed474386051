"""A model card, README.md with the Hub's YAML front matter: data, license, scores, use and recipe."""

from __future__ import annotations

import json
from typing import Any

import tomli_w

import regard
from regard.base.errors import RegardError
from regard.base.fields import is_number
from regard.base.numbers import group_digits
from regard.report.progress import say
from regard.runs.ancestors import Ancestors, provenance
from regard.runs.load import AnyRun
from regard.runs.recipe import without_folders
from regard.runs.store.facts import read_facts
from regard.runs.store.history import read_metrics
from regard.runs.tasks.task import task_of
from regard.systems.catalogue import find

METRICS = {"bleu": "BLEU", "chrf": "chrF", "perplexity": "perplexity", "bits_per_character": "bits per character"}
USE = {
    "text-generation": """# in this folder
from transformers import AutoModelForCausalLM, AutoTokenizer

model, tokenizer = AutoModelForCausalLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")
written = model.generate(**tokenizer("The", return_tensors="pt"), max_new_tokens=40, do_sample=False)
print(tokenizer.decode(written[0], skip_special_tokens=True))""",
    "translation": """# in this folder
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")
written = model.generate(**tokenizer(["Hello."], return_tensors="pt"))
print(tokenizer.batch_decode(written, skip_special_tokens=True))""",
}


def model_card(run: AnyRun, architecture: str, *, license: str, scored: bool) -> str:
    task = "translation" if task_of(run).has_source else "text-generation"
    facts, system = read_facts(run.folder), find(run.recipe.system)
    corpus = facts.get("corpus", {})
    scores, why_not = _scores(run) if scored else ({}, "")
    name = run.folder.resolve().name
    boundary = (
        "A source ends with `<eos>`; a translation begins after one and ends with one."
        if task == "translation"
        else "A line begins after `<eos>` and ends with one; a line break in a text is `<eos>`."
    )
    parts = [
        _front_matter(run, name, task, license, scores),
        f"# {name}",
        f"{system.title[:1].upper()}{system.title[1:]} ({system.paper}). {group_digits(run.parameters)} parameters, as "
        f"`{architecture}`. Trained with Regard {facts.get('regard', regard.__version__)}.",
        "## Data",
        f"{corpus.get('name') or 'unknown'}"
        + (f", checksum `{corpus['checksum']}`." if corpus.get("checksum") else ".")
        + f" License of these weights: {license}"
        + ("; set it with `--license` once you know what the data allows." if license == "unknown" else "."),
        "\n".join(f"- {note}" for note in corpus.get("notes", [])),
        "\n".join(f"- Fine-tuned from {one['run']}: {provenance(one)}." for one in Ancestors.of(run.folder).runs),
        "## Scores",
        _table(scores) if scores else "",
        f"Seen in training: {scores['seen_in_training']}." if "seen_in_training" in scores else "",
        why_not,
        _validation(run),
        "## Use",
        f"```python\n{USE[task]}\n```",
        f"{boundary} Tokens: {run.tokenizer.kind}, {group_digits(run.tokenizer.vocabulary)} symbols.",
        "## Recipe",
        "`regard train recipe.toml`, with this recipe.toml"
        + (", which starts from the run that [from] names:" if run.recipe.start else ":"),
        f"```toml\n{tomli_w.dumps(without_folders(run.recipe.tree())).strip()}\n```",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front_matter(run: AnyRun, name: str, task: str, license: str, scores: dict[str, Any]) -> str:
    """YAML, in which JSON's strings and numbers are valid."""
    lines = [f"license: {json.dumps(license)}", "library_name: transformers", f"pipeline_tag: {task}"]
    languages = [x for x in (getattr(run.recipe.data, side, "") for side in ("source", "target")) if x.isalpha()]
    if languages:
        lines += ["language:", *(f"- {language}" for language in languages)]
    lines += ["tags:", "- regard", f"- {json.dumps(run.recipe.system)}"]
    if scores:
        metrics = [
            line
            for key, title in METRICS.items()
            if scores.get(key) is not None
            for line in (
                f"    - type: {key}",
                f"      name: {json.dumps(title)}",
                f"      value: {_value(scores[key]):.4f}",
                *([f"      args: {json.dumps(scores[key]['signature'])}"] if isinstance(scores[key], dict) else []),
            )
        ]
        lines += [
            "model-index:",
            f"- name: {json.dumps(name, ensure_ascii=False)}",
            "  results:",
            f"  - task:\n      type: {task}",
            f"    dataset:\n      type: {json.dumps(scores['corpus'])}\n      name: {json.dumps(scores['corpus'])}",
            f"      split: {json.dumps(scores['split'])}",
            "    metrics:",
            *metrics,
        ]
    return "\n".join(["---", *lines, "---"])


def _scores(run: AnyRun) -> tuple[dict[str, Any], str]:
    try:
        return run.evaluate(), ""
    except RegardError as error:
        say(f"note: the model card has no scores: {error}")
        return {}, "Not measured when it was exported."  # the error message may contain paths of this machine


def _value(score: Any) -> float:
    return float(score["score"] if isinstance(score, dict) else score)


def _table(scores: dict[str, Any]) -> str:
    rows = [f"On the {scores['split']} split of {scores['corpus']}:", "", "| measure | value | how |", "|---|---|---|"]
    for key, title in METRICS.items():
        if (score := scores.get(key)) is not None:
            signed = f"`{score['signature']}`".replace("|", "\\|") if isinstance(score, dict) else ""
            how = signed or scores.get("method") or scores.get("counted") or ""
            rows.append(f"| {title} | {_value(score):.2f} | {how} |")
    return "\n".join(rows)


def _validation(run: AnyRun) -> str:
    checked = [entry for entry in read_metrics(run.folder / "metrics.jsonl") if entry.get("split") == "valid"]
    checked = [entry for entry in checked if is_number(entry.get("loss"))]
    if not checked:
        return ""
    best = min(checked, key=lambda entry: entry["loss"])
    return (
        f"Lowest validation loss in training: {best['loss']:.4f} nats per token, at step {group_digits(best['step'])}."
    )
