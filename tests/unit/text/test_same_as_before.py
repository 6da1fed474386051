"""A run that was begun with an earlier version goes on with the same batches, splits and checksums: these are its.

A digest here changes only together with a note to the users that runs of before cannot be resumed exactly.
"""

import hashlib

import numpy as np

from regard.text.batches.pair_batches import PairBatches, pair_batches_in_order
from regard.text.batches.pair_shapes import ShapedPairBatches
from regard.text.batches.text_batches import Streams, Windows
from regard.text.corpus import Corpus, open_corpus
from regard.text.pairs import PairCorpus, Pairs, open_pairs, toy_pairs
from regard.text.readers.sources import FileLines, GivenLines, ManyFiles, open_text
from regard.text.split import draw_pairs
from regard.text.tokenizers.bpe_dropout import DropoutPairs, Segmentations
from regard.text.tokenizers.engine import BYTE_SYMBOLS, byte_pairs
from regard.text.tokenizers.pair_tokens import TokenPairs, encode_pairs, offsets_of
from regard.text.tokenizers.tokenizer import Tokenizer

WORDS = str.split("they are watching the watchers watch she watched it l'été n'est pas fini wait")
LINES = [" ".join(WORDS[(7 * n + k * k) % len(WORDS)] for k in range(1 + n % 9)) for n in range(300)]
MERGES = str.split(  # of a run that was begun before characters were merged first
    "h+e a+t w+at wat+c Ġ+watc Ã+© Ġwatc+he i+t Ġ+it a+r Ġ+ar Ġar+e t+he the+y a+s h+i n+g p+as r+s Ġ+pas Ġwatc+hi "
    "Ġwatche+rs Ġwatchi+ng t+Ã© Ġ+l Ã©+tÃ© he+d watc+hed Ġ+they Ġwatche+d"
)
SYMBOLS = ["<eos>", *sorted(BYTE_SYMBOLS), *(pair.replace("+", "") for pair in MERGES)]
PAIRS = [tuple(pair.split("+")) for pair in MERGES]
TOKENIZER = Tokenizer(byte_pairs({symbol: n for n, symbol in enumerate(SYMBOLS)}, PAIRS, True))


def digest(*arrays):
    """Of numbers, whatever their type, and of their shapes."""
    found = hashlib.blake2b(digest_size=6)
    for array in arrays:
        found.update(repr((np.shape(array), np.ravel(array).tolist())).encode())
    return found.hexdigest()


def numbered(count=400):
    """Pairs of many lengths; all tokens of pair i are i + 1."""
    shapes = [(3 + i * 7 % 23, 2 + i * 11 % 29) for i in range(count)]
    sides = []
    for side in range(2):
        rows = [[pair + 1] * shape[side] + [0] for pair, shape in enumerate(shapes)]
        sides += [np.concatenate(rows).astype(np.uint16), offsets_of(np.array([len(row) for row in rows]))]
    return TokenPairs(*sides, np.arange(count), {}, 0, 256, 0, 0)


def batches_of(source, epochs=2):
    parts = []
    for step in range(epochs * source.steps_per_epoch):
        batch = source.batch(step)
        parts += [batch.tokens, batch.targets, [] if batch.lengths is None else batch.lengths]
        parts += [batch.source, batch.source_lengths] if hasattr(batch, "source") else []
    return source.steps_per_epoch, digest(*parts)


def test_batches_of_text():
    ids = np.arange(1, 1004, dtype=np.uint16)
    assert batches_of(Streams(ids, 7, 16, 0)) == (9, "97c2a72ec910")
    assert batches_of(Windows(ids, 7, 16, 0, seed=5)) == (10, "bd9ca8695340")
    assert batches_of(Windows(ids, 1, 50, 0, seed=2**63), 3) == (21, "7985462f08d5")


def test_batches_of_pairs():
    pairs = numbered()
    assert batches_of(PairBatches(pairs, 500, 3)) == (32, "0a15bb7bb556")
    assert batches_of(PairBatches(numbered(9), 90, 2**63), 5) == (5, "d4fc9410ea3d")
    assert batches_of(ShapedPairBatches(pairs, 500, 3)) == (33, "9d25603396df")
    read = [part for batch, rows in pair_batches_in_order(pairs, 300) for part in (batch.source, batch.targets, rows)]
    assert digest(*read) == "21068b3c528d"


def test_segmentations_and_their_batches():
    for dropout, expected in ((0.0, "d5818eb109d8"), (0.3, "bcf6e0a13a39")):
        ids, starts = Segmentations(LINES, TOKENIZER, dropout, 7).epoch(2)
        assert digest(ids, starts) == expected
    pairs = Pairs(LINES, LINES[::-1])
    plain = encode_pairs(pairs, TOKENIZER, TOKENIZER, longest=40)
    anew = DropoutPairs(pairs, plain, TOKENIZER, TOKENIZER, 0.4, 5)
    assert batches_of(PairBatches(plain, 200, 1, epochs=anew.epoch)) == (73, "dbc2993cca1e")
    assert batches_of(ShapedPairBatches(plain, 200, 1, epochs=anew.epoch)) == (78, "fd09befe357e")


def test_splits_of_pairs():
    chained = [(f"s {n // 3}", f"t {n // 2}") for n in range(90)]
    alone = [(f"u{n}", f"v{n}!") for n in range(700)]
    drawn = draw_pairs(*zip(*(chained + alone)))
    assert digest(*drawn.splits.values()) == "58684ec2c4ae"
    assert drawn.origin == (
        "Drawn by hash: 39 pairs for valid and 39 pairs for test (5 % each, at most 2000); pairs that share a "
        "source or a target, ignoring case and punctuation, share a split; 15 large groups of such pairs (up to "
        "6) are trained on."
    )
    labels = draw_pairs([f"text {n}" for n in range(100)], [f"label {n % 3}" for n in range(100)], ("valid",))
    assert digest(*labels.splits.values()) == "9d28e44a25b1"
    assert labels.origin == (
        "Drawn by hash: 5 pairs for valid (5 % each, at most 2000); pairs that share a source, ignoring case "
        "and punctuation, share a split, and the targets, being labels, are in all of them."
    )
    other = draw_pairs([f"label {n % 3}" for n in range(100)], [f"text {n}" for n in range(100)])
    assert digest(*other.splits.values()) == "3e1e2c381192"
    assert other.origin == (
        "Drawn by hash: 5 pairs for valid and 5 pairs for test (5 % each, at most 2000); pairs that share a "
        "target, ignoring case and punctuation, share a split, and the sources, being labels, are in all of "
        "them."
    )


def test_splits_of_text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"line {n}\n" for n in range(200)), encoding="utf-8")
    drawn, cut = open_corpus(path), open_corpus(path, split="tail")
    assert {name: len(list(lines)) for name, lines in drawn.splits.items()} == {"train": 182, "valid": 10, "test": 8}
    assert {name: next(iter(lines)) for name, lines in drawn.splits.items()} == {
        "train": "line 0",
        "valid": "line 14",
        "test": "line 16",
    }
    assert drawn.origin == "Lines for valid and test are drawn by hash (5 % each); identical lines share a split."
    assert {name: next(iter(lines)) for name, lines in cut.splits.items()} == {
        "train": "line 0",
        "valid": "line 182",
        "test": "line 191",
    }
    assert drawn.checksum() == "6e8f7e9d07fa6dc1f983e9fda2ff1fc3"
    assert cut.checksum() == "382f27cbe08a92f7a09bc47c2e3068ea"
    assert {name: lines.size for name, lines in drawn.splits.items()} == {"train": 1521, "valid": 84, "test": 84}
    path.write_text("a\nb\nc\n\n", encoding="utf-8")
    tiny = open_corpus(path)
    assert {name: list(lines) for name, lines in tiny.splits.items()} == {
        "train": ["b"],
        "valid": ["c", ""],
        "test": ["a"],
    }
    assert tiny.origin == (
        "Lines for valid and test are drawn by hash (one line each, because the file is tiny); identical lines "
        "share a split."
    )
    assert tiny.checksum() == "ab5d7023f1c8cf27c0410bf658d3db51"


def test_checksums(tmp_path):
    path, other = tmp_path / "one.txt", tmp_path / "two.tsv"
    path.write_text("one\ntwo\n", encoding="utf-8")
    other.write_text("a\tb\nc\td\n", encoding="utf-8")
    assert GivenLines(("one", "two")).checksum() == "f71d668fb51f4a7d2bf58c5f080db5f5"
    assert FileLines(path).checksum() == "2bbb778a89d4a76a9c44b3a457b80afd"
    assert FileLines(path, 4, 8).checksum() == "be6ea510479f729f3b36c51840f1d8ea"
    assert ManyFiles((path, other)).checksum() == "4da90723e56d439b9cc0ee1aa0a68bf2"
    assert open_text([other], "2").checksum() == "ae0f443cc85d80921a43f909240e4a3a"
    assert (
        Corpus("x", {"train": GivenLines(("a",)), "test": GivenLines(("b",))}).checksum()
        == "9a7b82c1a6591415406bcb0f89826c8b"
    )
    pairs = Pairs(["a", "b"], ["c", "d"])
    assert pairs.checksum() == "bbd39557e4969dd8555224db1079eb2f"
    assert PairCorpus("x", {"train": pairs, "test": pairs}).checksum() == "8c0bf57ef9ccaa98ed9a9b5d4c054df7"


def test_pairs_that_are_drawn_or_added(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, more = tmp_path / "pairs.tsv", tmp_path / "more.tsv"
    path.write_text("".join(f"s{n}\tt{n}\n" for n in range(80)), encoding="utf-8")
    more.write_text("".join(f"m{n}\tn{n}\n" for n in range(40)), encoding="utf-8")
    corpus = open_pairs(path, pairs=9, also="more.tsv:0.25")
    assert (
        " ".join(corpus.splits["train"].sources)
        == "s7 s18 s19 s27 s37 s42 s57 s65 s72 m8 m9 m11 m12 m18 m21 m33 m35 m38"
    )
    assert corpus.origin[1:] == (
        "Drawn by hash: 4 pairs for valid and 4 pairs for test (5 % each, at most 2000); pairs that share a source or "
        "a target, ignoring case and punctuation, share a split.",
        "9 of the 72 training pairs are used, drawn by hash.",
        "40 more training pairs from more.tsv, 0.25 times per epoch.",
    )


def test_toy_tasks_as_pairs():
    for name, line, expected in (
        ("any-b", "A A B B", ("A A B", "B")),
        ("recall", "a 1 b 2 ? a 1", ("a 1 b 2 ? a", "1")),
        ("copy", "a b | a b", ("a b", "a b")),
    ):
        found = toy_pairs(name, [line])
        assert (found.sources[0], found.targets[0]) == expected


def test_vocabularies():
    assert "|".join(Tokenizer.train(LINES, "bpe", 300, normalise="none").tokens[257:]) == (
        "é|he|at|wat|watc| watc| watche|it| it|ar| ar| are|the|they|as|hi|ng|pas|rs| pas| watchi| watchers| watching|té"
        "| l|été|hed|watched| they| watched"
    )
    words = "<eos> <unk> it are they watched pas watchers watching l'été"
    assert " ".join(Tokenizer.train(LINES, "word").tokens) == words
    assert "|".join(Tokenizer.train(LINES, "char", 12).tokens) == "<eos>|<unk>| |t|a|e|h|c|w|i|r|s"
