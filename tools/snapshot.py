"""Writes down what a refactoring must not change, and compares two such snapshots.

    python tools/snapshot.py write FOLDER            about eight minutes on one core
    python tools/snapshot.py compare BEFORE AFTER    prints a diff of each file that differs; exit 1 if one does

A snapshot is a folder of text files: the help and the `--json` output of every verb on fixed runs, the recipe of every
system and size, report pages, the OpenAPI document, every error sentence, public signatures, and digests of the tensors
of short trainings (every optimizer, schedule and task, also killed and resumed, also in two processes). Only times,
speeds, versions and paths are masked. Both snapshots must come from one machine and one version of PyTorch: digests are
exact.
"""

import argparse
import ast
import contextlib
import difflib
import hashlib
import inspect
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZES = "tiny", "small", "medium", "large"
VERBS = (
    "", "demo", "systems", "data", "data check", "data fetch", "train", "resume", "compare", "runs", "runs compare",
    "runs remove", "runs rename", "generate", "chat", "translate", "classify", "score", "serve", "lab", "inspect",
    "claims", "laws", "lecture", "exercise", "exercise check", "export", "import", "evaluate", "bench", "doctor",
)  # fmt: skip
SMALL = (
    "--training.steps 24 --training.evaluate_every 8 --training.checkpoint_every 8 --training.device cpu --size tiny"
)
NARROW = "--model.width 16 --training.batch_tokens 256"
ATTENTION = f"{NARROW} --model.layers 2 --model.heads 2"
TRAININGS = {
    "lstm-adamw-cosine": f"lstm --data text.txt {NARROW} --model.dropout 0.1",
    "rnn-sgd-plateau": f"rnn --data text.txt {NARROW} --training.optimizer sgd --training.schedule plateau",
    "gru-asgd-constant": f"gru --data text.txt {NARROW} --training.optimizer asgd --training.schedule constant",
    "lstm-sgd-decay": f"lstm --data text.txt {NARROW} --training.optimizer sgd --training.schedule decay "
    "--training.accumulate 2 --training.decay_after 1",
    "gpt-ema-tokens": f"gpt --data text.txt {ATTENTION} --training.ema 0.9 --training.budget 5k --training.snapshots 3",
    "llama-muon": f"llama --data text.txt {ATTENTION} --training.optimizer muon --training.schedule inverse-sqrt",
    "mingru-validations": f"mingru --data text.txt {NARROW} --training.validations 3",
    "nnlm-char": f"nnlm --data text.txt {NARROW} --data.tokenizer char --training.patience 1",
    "ngram-counts": "ngram --data text.txt",
    "transformer-accumulate": f"transformer --data pairs.tsv {ATTENTION} --training.accumulate 2",
    "bahdanau-bpe": f"bahdanau --data pairs.tsv {NARROW} --data.tokenizer bpe --data.vocabulary 300",
    "seq2seq-words": f"seq2seq --data pairs.tsv {NARROW}",
    "classifier-dan": f"classifier --data labels.tsv {NARROW}",
}
MASKED = re.compile(
    r"(?i)seconds|_time|^time|created|elapsed|per_second|speed|memory|peak|version|platform|python|host|modified|bytes"
    r"|^date|wrote$|crc32|blake2b"
)


def write_texts(folder):
    """512 sentences with a translation word by word and a label, from a grammar of one line."""
    who = "the cat", "a dog", "my sister", "the old man", "nobody", "our teacher", "the red bird", "a child"
    does = "sees", "hears", "follows", "likes", "finds", "loses", "paints", "reads about"
    what = "the sea", "a ship", "the moon", "two apples", "the letter", "a garden", "the harbor", "rain"
    lines = [" ".join(words) for words in itertools.product(who, does, what)]
    lines.sort(key=lambda line: hashlib.sha256(line.encode()).digest())
    (folder / "text.txt").write_text("".join(f"{line}.\n" for line in lines))
    (folder / "pairs.tsv").write_text(
        "".join(f"{line}.\t{' '.join(word[::-1] for word in line.split())}.\n" for line in lines)
    )
    (folder / "labels.tsv").write_text(
        "".join(f"{line}\t{'animal' if line[2:5] in ('cat', 'dog') else 'other'}\n" for line in lines)
    )


def environment(folder):
    """The caller's environment without its terminal, one thread, and a cache of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REGARD_", "OMP_"))}
    return kept | {
        "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb",
        "REGARD_CACHE": str(folder / "cache"),
    }  # fmt: skip


def regard(folder, words, stdin="", python=("-m", "regard")):
    """Output and exit code of one command, run in `folder`."""
    arguments = words if isinstance(words, list) else words.split()
    done = subprocess.run(
        [sys.executable, *python, *arguments],
        cwd=folder,
        env=environment(folder),
        input=stdin,
        capture_output=True,
        text=True,
    )
    return done.stdout, done.stderr, done.returncode


def masked(value, folder):
    """JSON without times, speeds, versions and paths."""
    if isinstance(value, dict):
        return {key: "…" if MASKED.search(key) else masked(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item, folder) for item in value]
    return masked_text(value, folder) if isinstance(value, str) else value


def masked_text(text, folder):
    """Text without paths of this machine, times, speeds and memory."""
    text = text.replace(str(folder.resolve()), "FOLDER").replace(str(ROOT), "ROOT")
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|Z|\+00:00)?", "DATE", text)
    text = re.sub(r"[\d.,]+ ?(min )?(h|min|s|ms|µs|seconds?|minutes?)\b", "TIME", text)
    text = re.sub(r"[\d.,]+[kM]? ?((target )?tokens?|tok)/s", "SPEED", text)
    return re.sub(r"[\d.,]+ ?([KMG]i?B|bytes)\b", "SIZE", text)


def as_json(text, folder):
    """Indented, so that a diff shows the line that changed; the text itself where it is not JSON."""
    try:
        return json.dumps(masked(json.loads(text), folder), indent=1, ensure_ascii=False)
    except ValueError:
        return masked_text(text, folder)


def help_texts(folder):
    for verb in VERBS:
        yield f"help/{verb.replace(' ', '-') or 'regard'}.txt", regard(folder, f"{verb} --help")[0]


def recipes(folder):
    names = [system["name"] for system in json.loads(regard(folder, "systems --json")[0])]
    for name, size in itertools.product(names, SIZES):
        yield f"recipes/{name}-{size}.toml", regard(folder, f"train {name} --size {size} --print-recipe")[0]


def train(folder, name, words, *more):
    """Trains one run, unless it is there."""
    return regard(folder, [*f"train {words} {'' if name == 'ngram-counts' else SMALL} --run {name}".split(), *more])


def killed_and_resumed(folder, name, words):
    """The same training, killed once its first checkpoint is written, then resumed."""
    command = [sys.executable, "-m", "regard", *f"train {words} {SMALL} --run {name}".split()]
    process = subprocess.Popen(
        command, cwd=folder, env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    curve = folder / name / "metrics.jsonl"
    while process.poll() is None and not (curve.exists() and '"step": 8' in curve.read_text()):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return regard(folder, f"resume {name}")


def tensors(path):
    """One line per tensor: name, type, shape, digest of its bytes."""
    import torch
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name).contiguous()
            digest = hashlib.sha256(tensor.flatten().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]
            clock = any(word in name for word in ("seconds", "clock", "elapsed"))
            yield f"{name} {tensor.dtype} {list(tensor.shape)} {'…' if clock else digest}"


def folder_of_run(folder, name):
    """The files of one run: names, recipe, facts, curve and tensors."""
    run = folder / name
    yield (
        f"runs/{name}/files.txt",
        "\n".join(sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())),
    )
    for path in sorted(run.rglob("*")):
        inside = path.relative_to(run)
        if path.suffix == ".safetensors":
            yield f"runs/{name}/{inside}.txt", "\n".join(tensors(path))
        elif path.suffix == ".toml":
            yield f"runs/{name}/{inside}", masked_text(path.read_text(), folder)
        elif path.name == "run.json":
            yield f"runs/{name}/{inside}", as_json(path.read_text(), folder)
        elif path.name == "metrics.jsonl":
            rows = [masked(json.loads(line), folder) for line in path.read_text().splitlines()]
            rows = [
                {key: value for key, value in row.items() if key != "crc"}
                for row in rows
                if row.get("split") != "train"
            ]
            yield f"runs/{name}/{inside}", "\n".join(json.dumps(row) for row in rows)
        elif path.name == "report.html":
            yield f"pages/{name}.html", page(path, folder)


def page(path, folder):
    """A report without its script and style, one element a line."""
    text = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", path.read_text(), flags=re.DOTALL)
    text = re.sub(r' d="[^"]*"| (points|x|y|x1|x2|y1|y2|cx|cy|r|transform)="[^"]*"', "", text)
    return masked_text(text.replace("><", ">\n<"), folder)


def runs(folder):
    for name, words in TRAININGS.items():
        out, errors, code = train(folder, name, words)
        yield f"runs/{name}/output.txt", masked_text(f"{out}\n{code}\n" + (errors if code else ""), folder)
        yield from folder_of_run(folder, name)
    for name in ("lstm-adamw-cosine", "gpt-ema-tokens", "transformer-accumulate"):
        killed_and_resumed(folder, f"{name}-killed", TRAININGS[name])
        yield f"runs/{name}-killed/training.txt", "\n".join(tensors(folder / f"{name}-killed" / "training.safetensors"))
    words = f"train {TRAININGS['gpt-ema-tokens']} {SMALL} --run two-processes"
    python = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "regard")
    regard(folder, words, python=python)
    yield from folder_of_run(folder, "two-processes")
    train(folder, "tuned", f"lstm --data text.txt {NARROW} --from lstm-adamw-cosine")
    yield from folder_of_run(folder, "tuned")


def answers(folder):
    """`--json` of every verb that has it."""
    lines = "the cat sees the moon.\nnobody likes rain.\n"
    commands = {
        "systems": "systems --json", "data": "data --json", "runs": "runs . --json", "laws": "laws gru --json",
        "data-check": "data check text.txt --json", "data-check-pairs": "data check pairs.tsv --json",
        "data-check-labels": "data check labels.tsv --json",
        "lecture": "lecture 003:49 --json", "exercise": "exercise --json",
        "runs-compare": "runs compare lstm-adamw-cosine gpt-ema-tokens --json",
        "claims": "claims softmax-gradient gaussian-dot hull --json --run claims",
        "compare": "compare lstm ngram --data text.txt --budget 3k --seeds 2 --run comparison --size tiny --json",
        "compare-pairs": "compare seq2seq bahdanau --data pairs.tsv --budget 3k --run two-pairs --size tiny --json",
        "inspect-work": ["inspect", "lstm-adamw-cosine", "the cat sees", "--work", "--json"],
        "inspect-example": ["inspect", "lecture:any-b", "--json"],
        "nbest": "translate transformer-accumulate --json --nbest 2 --beam 3",
        "classify": "classify classifier-dan --json",
    }  # fmt: skip
    for name in TRAININGS:
        commands |= {f"evaluate-{name}": f"evaluate {name} --json", f"score-{name}": f"score {name} --json"}
        commands[f"inspect-{name}"] = ["inspect", name, "the cat sees the sea.", "--json"]
        commands[f"inspect-text-{name}"] = ["inspect", name, "the cat sees the sea."]
        if name.startswith(("transformer", "bahdanau", "seq2seq")):
            commands[f"translate-{name}"] = f"translate {name}"
        elif name != "classifier-dan":
            commands[f"generate-{name}"] = ["generate", name, "--prompt", "the cat", "--max-tokens", "12", "--json"]
    for name, words in commands.items():
        out, errors, code = regard(folder, words, stdin=lines)
        yield (
            f"answers/{name}.json",
            as_json(out, folder) + f"\nexit {code}\n" + (masked_text(errors, folder) if code else ""),
        )
    for name in ("comparison", "two-pairs", "claims"):
        if (folder / name / "report.html").exists():
            text = page(folder / name / "report.html", folder)  # numbers of the table are in answers/; some are times
            yield f"pages/{name}.html", re.sub(r"<td class=right>[\d., ]+</td>| data-figure=.*?>", "", text)


def sentence(node):
    """An f-string with its values as {}, a text as it is."""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (sentence(node.left) or "{}") + (sentence(node.right) or "{}")
    return None


def error_sentences(folder):
    """Every text handed to an error class of Regard, wherever its file is now."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args:
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                if name.endswith(("Error", "Refused", "Problem")):
                    found += [text for part in ast.walk(node.args[0]) if (text := sentence(part)) and " " in text]
    yield "sentences.txt", "\n".join(sorted(set(found)))


def signatures(folder):
    """The public names of `regard`, with the parameters of each callable."""
    import regard as package

    lines = []
    for name in sorted(package.__all__):
        value = getattr(package, name)
        lines.append(f"{name}{_signature(value)}")
        if inspect.isclass(value):
            lines += [
                f"{name}.{inner}{_signature(inspect.getattr_static(value, inner))}"
                for inner in dir(value)
                if inner[0] != "_"
            ]
    yield "signatures.txt", "\n".join(lines)


def _signature(value):
    value = getattr(value, "__func__", value)
    with contextlib.suppress(TypeError, ValueError):
        return str(inspect.signature(value)) if callable(value) else ""
    return ""


def openapi(folder):
    code = (
        "import json; from regard.web.serve.openapi import document; print(json.dumps(document(['a'], ['en'], True)))"
    )
    out, errors, _ = regard(folder, [], python=("-c", code))
    yield "openapi.json", as_json(out or errors[-500:], folder)


def write(folder):
    if folder.exists():
        sys.exit(f"{folder} exists: name a new folder.")
    work = folder / "work"
    work.mkdir(parents=True)
    write_texts(work)
    for part in (error_sentences, signatures, openapi, help_texts, recipes, runs, answers):
        started = time.perf_counter()
        count = 0
        for name, text in part(work):
            path = folder / "facts" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.rstrip() + "\n")
            count += 1
        print(f"{part.__name__}: {count} files in {time.perf_counter() - started:.0f} s", flush=True)
    shutil.rmtree(work)


def compare(before, after):
    """Prints a diff of each file; returns the number of files that differ."""
    names = sorted(
        {
            str(path.relative_to(root / "facts"))
            for root in (before, after)
            for path in (root / "facts").rglob("*")
            if path.is_file()
        }
    )
    different = 0
    for name in names:
        old, new = ((root / "facts" / name) for root in (before, after))
        lines = [path.read_text().splitlines() if path.exists() else [] for path in (old, new)]
        if lines[0] != lines[1]:
            different += 1
            print("\n".join(difflib.unified_diff(*lines, f"before/{name}", f"after/{name}", lineterm="", n=1)))
    print(f"{len(names)} files, {different} differ")
    return different


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("folders", nargs="+", type=Path)
    chosen = parser.parse_args()
    if chosen.action == "write":
        write(chosen.folders[0])
    else:
        sys.exit(compare(*chosen.folders) > 0)
