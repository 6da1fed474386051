"""Every input has limits: what exceeds them is refused in one sentence, with bounded memory and in bounded time.

Each command may take 1 GiB beyond what importing PyTorch takes; the limits are listed in docs/reference/limits.md.
"""

import gzip
import json
import shutil
import struct

import pytest

from forked import forked
from regard.base.digests import with_digest
from regard.base.reading import MAX_HEADER_BYTES, MAX_JSON_BYTES, MAX_UNPACKING
from regard.exchange.arpa import PREAMBLE
from regard.runs.recipe import MOST_RECIPE
from regard.text.readers.lines import MAX_LINE_BYTES
from regard.text.readers.tables import MAX_COLUMNS
from regard.text.tokenizers import tokenizer as tokenizer_module

TMX = '<tmx version="1.4"><body>{}<tu><tuv xml:lang="en"><seg>{}</seg></tuv></tu></body></tmx>'


def laughs():
    entities = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10 if i else "lol"}">' for i in range(10))
    return f"<?xml version='1.0'?><!DOCTYPE tmx [{entities}]>" + TMX.format("", "&l9;")


def zstandard():
    return pytest.importorskip("backports.zstd").compress(b"a b c\n" * 900_000)


FILES = {
    "bomb.txt.gz": (lambda: gzip.compress(b"a b c\n" * 900_000), f"more than {MAX_UNPACKING} times its size"),
    "bomb.txt.zst": (zstandard, f"more than {MAX_UNPACKING} times its size"),
    "line.txt": (lambda: b"a " * MAX_LINE_BYTES, "has a line of more than 4 MiB"),
    "laughs.tmx": (laughs, "declares XML entities"),
    "tag.tmx": (lambda: TMX.format(f"<note {'x' * 6_000_000}='1'/>", "a"), "a tag or comment of more than 4 MiB"),
    "comment.tmx": (lambda: TMX.format(f"<!--{'x' * 20_000_000}-->", "a"), "a tag or comment of more than 4 MiB"),
    "sentence.tmx": (lambda: TMX.format("", "x " * MAX_LINE_BYTES), "has a sentence of more than 4 MiB"),
    "deep.tmx": (lambda: TMX.format("<a>" * 100_000, ""), "nests elements more than 64 deep"),
    "deep.jsonl": (lambda: '{"text": ' + "[" * 200_000 + "]" * 200_000 + "}\n", "no JSON object on line 1"),
    "wide.jsonl": (lambda: json.dumps({f"k{n}": "x" for n in range(200_000)}), f"more than {MAX_COLUMNS}"),
    "wide.tsv": (lambda: ("x\t" * 500_000 + "x\n") * 3, f"more than {MAX_COLUMNS}"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_text_is_refused(name, tmp_path):
    make, said = FILES[name]
    content = make()
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    outcome = forked("train", "ngram", "--data", path, "--run", tmp_path / "run")
    assert (outcome.kind, outcome.code) == ("refused", 2), outcome
    assert said in outcome.said
    assert not (tmp_path / "run").exists()


def test_a_parquet_file_of_absurd_size_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    same = pyarrow.table({"text": ["the same line"] * 500_000})
    with parquet.ParquetWriter(tmp_path / "rows.parquet", same.schema) as writer:
        for _ in range(10):
            writer.write_table(same)
    parquet.write_table(pyarrow.table({"text": ["x" * 100_000_000]}), tmp_path / "cell.parquet", compression="zstd")
    for name in ("rows", "cell"):
        words = ["train", "ngram", "--data", tmp_path / f"{name}.parquet", "--run", tmp_path / "run"]
        outcome = forked(*words, memory=4 << 30)  # Arrow reserves addresses that it does not use
        assert outcome.kind == "refused", outcome
        assert f"more than {MAX_UNPACKING} times its size" in outcome.said


ARPA = {
    "counts": ("\\data\\\nngram 1=99999999999999\nngram 2=9999999999999999999999\n\n\\1-grams:\n-1\t</s>\n", "line 7"),
    "preamble": ("x\n" * 1_000_000, f"no \\data\\ on the first {PREAMBLE} lines"),
    "line": ("x" * 3 * MAX_LINE_BYTES, "has a line of more than 4 MiB"),
}


@pytest.mark.parametrize("name", ARPA)
def test_an_arpa_file_that_promises_too_much_is_refused(name, tmp_path):
    content, said = ARPA[name]
    (tmp_path / "x.arpa").write_text(content)
    outcome = forked("import", tmp_path / "x.arpa", "--run", tmp_path / "run")
    assert outcome.kind == "refused", outcome
    assert said in outcome.said


def test_a_recipe_of_absurd_size_is_refused(tmp_path):
    (tmp_path / "x.toml").write_text('system = "lstm"\n' + "# a\n" * MOST_RECIPE)
    outcome = forked("train", tmp_path / "x.toml")
    assert outcome.kind == "refused", outcome
    assert "is larger than 1 MiB, more than Regard accepts" in outcome.said


def test_a_run_with_absurd_files_is_refused(trained, tmp_path):
    run = shutil.copytree(trained["lstm"], tmp_path / "run")

    def refused_for(name, said):
        outcome = forked("evaluate", run)
        assert outcome.kind == "refused", outcome
        assert name in outcome.said
        assert said in outcome.said
        shutil.copy(trained["lstm"] / name, run / name)

    (run / "run.json").write_text("[" + " " * MAX_JSON_BYTES)
    refused_for("run.json", "is larger than 64 MiB, so Regard did not write it")
    header = b'{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' + b" " * (67 << 20)
    (run / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    refused_for("model.safetensors", f"larger than {MAX_HEADER_BYTES >> 20} MiB")
    with open(run / "tokenizer.json", "wb") as stream:
        stream.truncate(1 << 36)  # sparse; nobody reads 64 GiB for its digest
    refused_for("tokenizer.json", "is larger than 256 MiB")
    facts = json.loads((run / "run.json").read_text())
    del facts["files"], facts["blake2b"]
    (run / "run.json").write_text(json.dumps(with_digest(facts)))
    with open(run / "tokenizer.json", "wb") as stream:
        stream.truncate(tokenizer_module.MAX_FILE_BYTES + 1)
    refused_for("tokenizer.json", "is larger than 256 MiB")


@pytest.mark.parametrize("words", [["score"], ["generate", "--prompt", "-"], ["inspect"]])
def test_an_endless_line_through_a_pipe_is_refused(words, trained):
    outcome = forked(words[0], trained["lstm"], *words[1:], stdin=b"a" * (MAX_LINE_BYTES + 10))
    assert outcome.kind == "refused", outcome
    assert "The input has a line of more than 4 MiB" in outcome.said


def test_an_endless_line_of_a_file_is_refused(trained, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"a" * (MAX_LINE_BYTES + 10))
    outcome = forked("generate", trained["lstm"], "--in", tmp_path / "in.txt", "--out", tmp_path / "out.txt")
    assert outcome.kind == "refused", outcome
    assert "in.txt' has a line of more than 4 MiB" in outcome.said
    assert not (tmp_path / "out.txt").exists()


def test_a_million_blanks_are_scored_piece_by_piece(trained, monkeypatch):
    """So Ctrl-C is heard between two pieces, and the sum is that of reading the line at once."""
    import regard
    from regard.evaluation import scoring

    run = regard.load(trained["lstm"], device="cpu")
    lines = [" " * 6000, "The cat sees a tree."]
    whole = [score.log_probability for score in run.score(lines)]
    widths = []
    loss = run.model.loss
    monkeypatch.setattr(run.model, "loss", lambda tokens, *rest: widths.append(tokens.shape[1]) or loss(tokens, *rest))
    assert [score.log_probability for score in run.score(lines)] == whole
    assert max(widths) <= 256
    monkeypatch.setattr(scoring, "LONG", 10**6)
    assert [score.log_probability for score in run.score(lines)] == pytest.approx(whole, rel=1e-5)
    assert max(widths) > 6000
