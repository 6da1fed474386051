"""ARPA files: kenlm reads what is written, and what is written is read back to the last bit."""

import gzip
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.base.errors import RegardError
from regard.exchange.arpa import escape, read_arpa, unescape, write_arpa
from regard.systems.ngram import NGram, Settings

GOLDEN = Path(__file__).parents[2] / "golden"
TEXT = (GOLDEN / "harbour.txt").read_text(encoding="utf-8")
ODD = ["\t", "\n", "\u00a0", "\u2028", "␠", "␡", "\x85", "", "<s>", "</s>", "<eos>", "\x00", "\\", "ﬁ"]

GOOD = """
\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-99\t<s>\t-0.5
-0.5\t</s>
-1\t<unk>\t0
-0.3\ta\t-0.2

\\2-grams:
-0.1\t<s> a
-0.7\ta </s>

\\end\\
"""


def counted(ids, tokens, **chosen):
    model = NGram(len(tokens), Settings(**chosen)).eval()
    model.count(np.array(ids))
    return model


def words():
    tokens = ["<eos>", "<unk>", *dict.fromkeys(TEXT.split())]
    return [number for line in TEXT.split("\n")[:-1] for number in [*map(tokens.index, line.split()), 0]], tokens


def characters():
    tokens = ["<eos>", "<unk>", *sorted(set(TEXT) - {"\n"}), *ODD]
    numbers = {token: number for number, token in enumerate(tokens)}
    return [0 if symbol == "\n" else numbers[symbol] for symbol in TEXT], tokens


@pytest.mark.parametrize("text", [words, characters])
@pytest.mark.parametrize("order, smoothing", [(1, "kneser-ney"), (3, "kneser-ney"), (6, "kneser-ney"), (3, "counts")])
def test_reading_gives_back_every_bit(text, order, smoothing, tmp_path):
    ids, tokens = text()
    model = counted(ids, tokens, order=order, smoothing=smoothing)
    write_arpa(model, tokens, tmp_path / "model.arpa")
    again, names = read_arpa(tmp_path / "model.arpa")
    assert names == tokens
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_no_probability_above_1_is_written(order, tmp_path):
    """A probability of 1 may be rounded up in fp32; kenlm and others refuse a file with log P above 0."""
    ids, tokens = words()
    model = counted(ids, tokens, order=order)
    for level in model.levels:
        level.log_probability[:3] = torch.tensor([1e-7, 1e-6, 0.0])
    write_arpa(model, tokens, tmp_path / "model.arpa")
    lines = (tmp_path / "model.arpa").read_text(encoding="utf-8").splitlines()
    entries = [line.split("\t") for line in lines if "\t" in line]
    assert len(entries) == sum(int(line.split("=")[1]) for line in lines if line.startswith("ngram "))
    assert max(float(entry[0]) for entry in entries) == 0
    read_arpa(tmp_path / "model.arpa")


@pytest.mark.parametrize("order", [2, 3, 5])
def test_kenlm_gives_every_token_the_same_score(order, tmp_path):
    kenlm = pytest.importorskip("kenlm", reason="the kenlm package is the oracle here")
    ids, tokens = words()
    model = counted(ids, tokens, order=order)
    write_arpa(model, tokens, tmp_path / "model.arpa")
    theirs = kenlm.Model(str(tmp_path / "model.arpa"))
    for line in [*TEXT.split("\n")[::7], "the unheard boat saw the sailor", "", "never , never , NEVER ."]:
        line_ids = [tokens.index(word) if word in tokens else 1 for word in line.split()]
        loss, _ = model.loss(torch.tensor([[0, *line_ids]]), torch.tensor([[*line_ids, 0]]))
        expected = [score for score, _, _ in theirs.full_scores(line)]
        np.testing.assert_allclose(-loss[0].numpy() / log(10), expected, atol=1e-5)
        if line_ids:  # a text that does not begin at the start of a line
            inside, _ = model.loss(torch.tensor([line_ids]), torch.tensor([[*line_ids[1:], 0]]))
            expected = [score for score, _, _ in theirs.full_scores(line, bos=False)][1:]
            np.testing.assert_allclose(-inside[0].numpy() / log(10), expected, atol=1e-5)


def test_kenlm_reads_a_character_model(tmp_path):
    kenlm = pytest.importorskip("kenlm", reason="the kenlm package is the oracle here")
    ids, tokens = characters()
    model = counted(ids, tokens, order=5)
    write_arpa(model, tokens, tmp_path / "model.arpa")
    line = "the old boat ."
    line_ids = [tokens.index(symbol) for symbol in line]
    loss, _ = model.loss(torch.tensor([[0, *line_ids]]), torch.tensor([[*line_ids, 0]]))
    theirs = kenlm.Model(str(tmp_path / "model.arpa")).score(" ".join(map(escape, line)))
    assert theirs == pytest.approx(-float(loss.sum()) / log(10), abs=1e-4)


@settings(derandomize=True, deadline=None)
@given(st.text(st.sampled_from("ab<s>/ \t\n\x00\x1f␀␉␊␠␡\\\u00a0")) | st.text())
def test_any_token_can_be_written_and_read_back(token):
    word = escape(token)
    assert unescape(word) == token
    assert word
    assert not any(symbol <= " " for symbol in word)
    assert word not in ("<s>", "</s>", "<unk>")


def test_a_small_file_is_read(tmp_path):
    with gzip.open(tmp_path / "good.arpa.gz", "wb") as file:
        file.write(GOOD.encode())
    model, tokens = read_arpa(tmp_path / "good.arpa.gz")
    assert tokens == ["<eos>", "<unk>", "a"]
    loss, _ = model.loss(torch.tensor([[0, 2, 1]]), torch.tensor([[2, 1, 0]]))
    torch.testing.assert_close(loss, torch.tensor([[0.1, 1.2, 0.5]]) * log(10))


@pytest.mark.parametrize(
    "good, bad, line, part",
    [
        ("\\data\\", "\\date\\", 17, "the file ends where \\data\\ should be"),
        ("ngram 2=2", "ngram 3=2", 4, "expected `ngram 2=…`"),
        ("ngram 2=2", f"ngram 2={'9' * 5000}", 4, "expected `ngram 2=…`, not 'ngram 2=999"),
        ("ngram 2=2", f"ngram {'0' * 5000}2=2", 4, "expected `ngram 2=…`, not 'ngram 000"),
        ("ngram 1=4\nngram 2=2\n", "\n", 3, "orders 1 to 7"),
        ("ngram 2=2", "ngram 2=3", 15, "expected a probability, 2 words"),
        ("ngram 2=2", "ngram 2=1", 14, "expected \\end\\"),
        ("\\2-grams:", "\\3-grams:", 12, "expected \\2-grams:"),
        ("-0.3\ta\t-0.2", "-0.3 a b c", 10, "expected a probability, 1 words and a weight"),
        ("-0.3\ta\t-0.2", "-0.3\t<unk>\t-0.2", 10, "is listed twice"),
        ("-0.3\ta\t-0.2", "often\ta\t-0.2", 10, "is not a number"),
        ("-0.3\ta\t-0.2", "0.3\ta\t-0.2", 10, "at most 0"),
        ("-0.3\ta\t-0.2", "nan\ta\t-0.2", 10, "at most 0"),
        ("-0.3\ta\t-0.2", "-0.3\ta\tnan", 10, "a weight must be a number"),
        ("-0.5\t</s>", "-0.5\tb", 10, "the 1-grams lack </s>"),
        ("-0.1\t<s> a", "-0.1\t<s> b", 13, "'b' is not in the list of 1-grams"),
        ("-0.1\t<s> a", "-0.1\ta <s>", 13, "<s> may only be the first word"),
        ("-0.7\ta </s>", "-0.7\t</s> a", 14, "</s> only the last"),
        ("-0.7\ta </s>", "-0.7\t<s> a", 14, "are listed twice"),
        ("-0.7\ta </s>", "-0.7\ta </s>\t-0.1", 14, "expected a probability, 2 words;"),
        ("\\end\\\n", "", 16, "the file ends where \\end\\ should be"),
        ("\n-0.7\ta </s>\n\n\\end\\\n", "", 14, "the file ends where 2-gram 2 of 2 should be"),
    ],
)
def test_a_malformed_line_is_named(good, bad, line, part, tmp_path):
    assert good in GOOD
    path = tmp_path / "bad.arpa"
    path.write_text(GOOD.replace(good, bad, 1), encoding="utf-8")
    with pytest.raises(RegardError) as error:
        read_arpa(path)
    assert part in str(error.value)
    assert f"line {line}:" in str(error.value)


def test_a_gram_needs_its_context(tmp_path):
    path = tmp_path / "bad.arpa"
    grown = GOOD.replace("ngram 2=2\n", "ngram 2=2\nngram 3=1\n")
    path.write_text(grown.replace("\\end\\", "\\3-grams:\n-0.1\ta a </s>\n\n\\end\\"), encoding="utf-8")
    with pytest.raises(RegardError, match=r"line 18: its first 2 words are not among the 2-grams"):
        read_arpa(path)


def test_what_comes_before_a_model_ends_after_a_thousand_lines(tmp_path):
    path = tmp_path / "long.arpa"
    path.write_text("# about\n" * 999 + GOOD.removeprefix("\n"), encoding="utf-8")
    assert read_arpa(path)[1] == ["<eos>", "<unk>", "a"]
    path.write_text("# about\n" * 1000 + GOOD.removeprefix("\n"), encoding="utf-8")
    with pytest.raises(RegardError, match=r"line 1000: there is no \\data\\ on the first 1000 lines"):
        read_arpa(path)


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    (tmp_path / "bad.arpa").write_bytes(GOOD.encode().replace(b"<s> a", b"<s> \xff"))
    with pytest.raises(RegardError, match="line 13: this is not UTF-8"):
        read_arpa(tmp_path / "bad.arpa")
    with pytest.raises(RegardError, match="There is no file"):
        read_arpa(tmp_path / "none.arpa")


def test_tokens_must_be_the_models_own_and_different(tmp_path):
    model = NGram(4, Settings(order=2))
    with pytest.raises(RegardError, match="has 4 tokens, not 3"):
        write_arpa(model, ["<eos>", "a", "b"], tmp_path / "model.arpa")
    with pytest.raises(RegardError, match="both 'b'"):
        write_arpa(model, ["<eos>", "a", "b", "b"], tmp_path / "model.arpa")
    assert not list(tmp_path.iterdir())


def test_a_failed_write_keeps_the_file_there_was(tmp_path, monkeypatch):
    path = tmp_path / "model.arpa"
    path.write_text("before")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("regard.exchange.arpa._write", full)
    with pytest.raises(RegardError, match="disk is full"):
        write_arpa(NGram(2, Settings(order=2)), ["<eos>", "a"], path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
