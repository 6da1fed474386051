"""Fuzzing: the real command is given damaged files, runs, settings and words. It must answer rightly (exit code 0) or
refuse in one sentence (exit code 2); anything else is a defect.

A few cases of each kind run with the other tests. `make fuzz` draws new ones for as long as it is told to, and prints
how many came out how. Input that once found a defect lies in corpus/ and is tried each time.
"""

import gzip
import json
import os
import shutil
import struct
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from forked import forked
from regard.base.digests import with_digest

CORPUS = Path(__file__).parent / "corpus"
GOLDEN = Path(__file__).parents[1] / "golden"
SECONDS = float(os.environ.get("REGARD_FUZZ_SECONDS", "0"))  # for each kind of input; 0: a few cases, always the same
COUNTS: Counter[tuple[str, str]] = Counter()
MODEST = settings(
    max_examples=20 if SECONDS else 6,
    derandomize=not SECONDS,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if SECONDS else [])],
    suppress_health_check=[*HealthCheck],
)
TINY = ["--size", "tiny", "--training.threads", "1", "--training.batch-tokens", "128", "--training.evaluate-every", "2"]
TINY += ["--training.steps", "4", "--model.width", "8", "--data.tokenizer", "word"]


@pytest.fixture(scope="module", autouse=True)
def counts():
    yield
    kinds = ("answered", "refused", "defect")
    for name in sorted({name for name, _ in COUNTS}):
        print(f"\nfuzz: {name:16}" + "".join(f"{COUNTS[name, kind]:8} {kind}" for kind in kinds), end="")
    total = sum(COUNTS.values())
    print(f"\nfuzz: {total} cases, {sum(COUNTS[each] for each in COUNTS if each[1] == 'defect')} defects")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a text, pairs, and a run of a recurrent network and of an n-gram model."""
    folder = tmp_path_factory.mktemp("fuzz")
    lines = [f"the {who} {what} a {n}" for n in range(20) for who in ("cat", "dog") for what in ("sees", "hears")]
    (folder / "my.txt").write_text("\n".join(lines) + "\n")
    for system, words in {"rnn": TINY, "ngram": ["--model.order", "2"]}.items():
        assert run(folder, "train", system, "--data", "my.txt", "--run", system, *words).code == 0
    return folder


def run(folder, *words, **options):
    return forked(*words, cwd=folder, environment={"REGARD_CACHE": str(folder / "cache")}, memory=4 << 30, **options)


def judged(kind, folder, *words, **options):
    """What came of a command; a defect fails the test."""
    outcome = run(folder, *words, **options)
    COUNTS[kind, outcome.kind] += 1
    assert outcome.kind != "defect", (words, outcome)
    return outcome


# -- what is drawn -----------------------------------------------------------------------------------------------------

CHARACTERS = st.text(st.characters(codec="utf-8"), max_size=12)
FIELD = st.one_of(CHARACTERS, st.sampled_from(["the cat", "", " ", '"', '""', "a\tb", "\u2028", "\ufeff", "\x00", "ﬁ"]))
LINES = st.lists(st.lists(FIELD, min_size=1, max_size=3), max_size=12)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), CHARACTERS, st.just([]), st.just({}),
    st.sampled_from([0, -1, 2**31, 2**63, 1e308, "nan", "../x", "/", "\x1b[31m"]),
)  # fmt: skip


def written(rows, kind):
    """A table of fields as a file of some format, right or nearly so."""
    if kind == "jsonl":
        return "\n".join(json.dumps({str(n): text for n, text in enumerate(row)}) for row in rows).encode()
    if kind == "tmx":
        units = "".join(
            "<tu>" + "".join(f"<tuv xml:lang='{n}'><seg>{text}</seg></tuv>" for n, text in enumerate(row)) + "</tu>"
            for row in rows
        )
        return f"<tmx version='1.4'><body>{units}</body></tmx>".encode()
    if kind == "xlf":
        units = "".join(f"<trans-unit><source>{row[0]}</source><target>{row[-1]}</target></trans-unit>" for row in rows)
        return f"<xliff version='1.2'><file><body>{units}</body></file></xliff>".encode()
    return "\n".join(("," if kind == "csv" else "\t").join(row) for row in rows).encode()


@st.composite
def files(draw):
    kind = draw(st.sampled_from(["txt", "tsv", "csv", "jsonl", "tmx", "xlf"]))
    content = written(draw(LINES), kind)
    if draw(st.booleans()):
        content = draw(damaged(content))
    if draw(st.integers(0, 5)) == 0:
        return f"x.{kind}.gz", draw(damaged(gzip.compress(content, mtime=0)))
    return f"x.{kind}", content


@st.composite
def damaged(draw, content):
    """Bytes flipped, cut, doubled or put in."""
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        match draw(st.sampled_from(["flip", "cut", "remove", "put", "double"])):
            case "flip" if content:
                content[at] ^= draw(st.integers(1, 255))
            case "cut":
                del content[at:]
            case "remove":
                del content[at : at + draw(st.integers(1, 40))]
            case "put":
                content[at:at] = draw(st.binary(max_size=20))
            case "double":
                content[at:at] = content[at : at + 100]
    return bytes(content)


@st.composite
def changed_tree(draw, tree):
    """A JSON tree with one of its values replaced, removed, or put under another name."""
    places = [()]
    todo = [((), tree)]
    while todo:
        path, node = todo.pop()
        children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, child in list(children)[:30]:
            places.append((*path, key))
            todo.append(((*path, key), child))
    *path, key = draw(st.sampled_from(places[1:] or [("x",)]))
    tree = json.loads(json.dumps(tree))
    node = tree
    for step in path:
        node = node[step]
    match draw(st.sampled_from(["replace", "remove", "rename"])):
        case "replace":
            node[key] = draw(VALUES)
        case "remove":
            del node[key]
        case "rename" if isinstance(node, dict):
            node[draw(CHARACTERS)] = node.pop(key)
    return tree


# -- kinds of input ----------------------------------------------------------------------------------------------------


def repeated(campaign):
    """A few cases, or new ones until the time is over."""
    ends = time.monotonic() + SECONDS
    campaign()
    while time.monotonic() < ends:
        campaign()


def try_file(place, name, content):
    path = place / name
    path.write_bytes(content)
    judged("files", place, "data", "check", name)
    shutil.rmtree(place / "new", ignore_errors=True)
    judged("files", place, "train", "ngram", "--data", name, "--run", "new", "--model.order", "2")
    path.unlink()


def test_files(place):
    @MODEST
    @given(files())
    def campaign(file):
        try_file(place, *file)

    repeated(campaign)


def try_arpa(place, content):
    (place / "x.arpa").write_bytes(content)
    shutil.rmtree(place / "imported", ignore_errors=True)
    if judged("arpa", place, "import", "x.arpa", "--run", "imported").code == 0:
        judged("arpa", place, "score", "imported", stdin=b"the harbour\n\n")


def test_arpa(place):
    whole = (GOLDEN / "harbour.3.arpa").read_bytes()

    @MODEST
    @given(damaged(whole))
    def campaign(content):
        try_arpa(place, content)

    repeated(campaign)


def test_imports(place):
    """Models of strangers: a Hugging Face folder and a GGUF file."""
    gguf = pytest.importorskip("gguf", reason="which reads GGUF files")
    words = [*TINY, "--data.tokenizer", "bpe", "--model.heads", "2"]
    assert run(place, "train", "llama", "--data", "my.txt", "--run", "llama", *words).code == 0
    for name in ("huggingface", "gguf"):
        assert run(place, "export", "llama", f"llama.{name}", "--to", name).code == 0
    whole = (place / "llama.gguf").read_bytes()
    header = gguf.GGUFReader(place / "llama.gguf").data_offset
    trees = {name: json.loads((place / "llama.huggingface" / name).read_text()) for name in TREES}

    @MODEST
    @given(st.data())
    def campaign(data):
        shutil.rmtree(place / "imported", ignore_errors=True)
        if data.draw(st.booleans()):
            (place / "x.gguf").write_bytes(data.draw(damaged(whole[:header])) + whole[header:])
            judged("gguf", place, "import", "x.gguf", "--run", "imported")
            return
        name = data.draw(st.sampled_from(TREES))
        shutil.rmtree(place / "copy", ignore_errors=True)
        shutil.copytree(place / "llama.huggingface", place / "copy")
        (place / "copy" / name).write_text(json.dumps(data.draw(changed_tree(trees[name]))))
        if judged(name, place, "import", "copy", "--run", "imported").code == 0:
            judged(name, place, "score", "imported", stdin=b"the cat sees a 3\n")

    repeated(campaign)


TREES = ["config.json", "tokenizer.json", "tokenizer_config.json"]
SETTINGS = ["model.width", "model.layers", "model.dropout", "training.steps", "training.learning_rate", "training.clip",
            "training.batch_tokens", "training.precision", "data.tokenizer", "data.vocabulary", "data.corpus",
            "training.schedule", "training.budget", "model.x", "x", "size", "system"]  # fmt: skip


def try_recipe(place, content):
    (place / "x.toml").write_bytes(content)
    judged("recipes", place, "train", "x.toml", "--print-recipe")


def test_recipes(place):
    import tomli_w

    whole = tomli_w.dumps(
        {"system": "rnn", "size": "tiny", "data": {"corpus": "my.txt"}, "model": {"width": 8}}
    ).encode()
    values = VALUES.filter(lambda value: value is not None).map(lambda value: {"x": value})

    @MODEST
    @given(st.one_of(damaged(whole), st.tuples(st.sampled_from(SETTINGS), values)))
    def campaign(change):
        if isinstance(change, tuple):
            section, _, name = change[0].rpartition(".")
            tree = {"system": "rnn", "data": {"corpus": "my.txt"}}
            (tree.setdefault(section, {}) if section else tree)[name] = change[1]["x"]
            try:
                change = tomli_w.dumps(tree).encode()
            except (UnicodeEncodeError, ValueError, TypeError):
                return
        try_recipe(place, change)

    repeated(campaign)


def try_run(place, system, name, content, verb):
    """A run with a damaged file is refused, or the damage changes no result."""
    copy = place / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(place / system, copy)
    (copy / name).write_bytes(content)
    words = {"evaluate": ["--json"], "generate": ["--seed", "1", "--max-tokens", "5"], "resume": []}[verb]
    outcome = judged(f"run: {name}", place, verb, "copy", *words)
    if outcome.code == 0 and verb == "evaluate":
        expected = json.loads(run(place, "evaluate", system, "--json").out)
        found = json.loads(outcome.out)
        assert found["perplexity"] == expected["perplexity"], (system, name, content[:300])


def test_damaged_runs(place):
    names = ["run.json", "recipe.toml", "tokenizer.json", "metrics.jsonl"]
    names += ["model.safetensors", "training.safetensors"]

    @MODEST
    @given(st.data())
    def campaign(data):
        system = data.draw(st.sampled_from(["rnn", "ngram"]))
        name = data.draw(st.sampled_from([name for name in names if (place / system / name).exists()]))
        whole = (place / system / name).read_bytes()
        way = data.draw(st.sampled_from(["bytes", "tree"]))
        if way == "tree" and name.endswith(".json"):
            content = json.dumps(data.draw(changed_tree(json.loads(whole)))).encode()
        elif way == "tree" and name.endswith(".safetensors"):
            (size,) = struct.unpack("<Q", whole[:8])
            header = json.dumps(data.draw(changed_tree(json.loads(whole[8 : 8 + size])))).encode()
            content = struct.pack("<Q", len(header)) + header + whole[8 + size :]
        else:
            content = data.draw(damaged(whole))
        verbs = ["evaluate", "generate"] + (["resume"] if system == "rnn" else [])
        try_run(place, system, name, content, data.draw(st.sampled_from(verbs)))

    repeated(campaign)


def test_tokenizers(place):
    """A tokenizer.json that no digest protects, as a stranger may send it."""
    facts = json.loads((place / "rnn" / "run.json").read_text())
    old = {key: value for key, value in facts.items() if key not in ("files", "blake2b")}
    shutil.rmtree(place / "old", ignore_errors=True)
    shutil.copytree(place / "rnn", place / "old")
    (place / "old" / "run.json").write_text(json.dumps(with_digest(old)))
    tree = json.loads((place / "rnn" / "tokenizer.json").read_text())

    @MODEST
    @given(changed_tree(tree))
    def campaign(changed):
        (place / "old" / "tokenizer.json").write_text(json.dumps(changed))
        judged("tokenizer.json", place, "score", "old", stdin=b"the cat sees a 3\n")

    repeated(campaign)


VERBS = [
    "evaluate",
    "score",
    "generate",
    "translate",
    "train",
    "resume",
    "data",
    "systems",
    "inspect",
    "export",
    "import",
]
WORDS = [*VERBS, "check", "help", "rnn", "ngram", "my.txt", "cpu", "tiny", "0", "-1", "3", "1e9", "new/x", "--"]
WORDS += ["--run", "--json", "--beam", "--n-best", "--max-tokens", "--seed", "--data", "--prompt", "--in", "--out"]
WORDS += ["--weights", "--device", "--rows", "--segment", "--help", "--to", "--print-recipe", "--dry-run", "--size"]
WORDS += ["--training.steps", "--temperature", "--top-k", "--top-p", "--average"]


def try_words(place, words):
    judged("command lines", place, *words, stdin=b"the cat\n")
    for name in ("new", "runs"):
        shutil.rmtree(place / name, ignore_errors=True)


def test_command_lines(place):
    word = st.one_of(st.sampled_from(WORDS), st.sampled_from(WORDS), CHARACTERS, st.integers().map(str))

    @MODEST
    @given(st.sampled_from(VERBS), st.lists(word, max_size=6))
    def campaign(verb, rest):
        rest = [each.replace("\0", "") for each in rest]  # no shell can pass it
        if verb == "train" and "rnn" in rest and "--training.steps" not in rest:
            rest += ["--training.steps", "2"]
        try_words(place, [verb, *rest])

    repeated(campaign)


# -- what once was a defect --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", sorted(path for path in CORPUS.rglob("*") if path.is_file()), ids=lambda path: path.name
)
def test_what_once_was_a_defect(place, path):
    content = path.read_bytes()
    match path.parent.name:
        case "files":
            try_file(place, path.name, content)
        case "arpa":
            try_arpa(place, content)
        case "recipes":
            try_recipe(place, content)
        case "commands":
            try_words(place, json.loads(content))
