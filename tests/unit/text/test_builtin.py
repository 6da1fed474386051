"""The built-in texts: the same every time, disjoint, and what their descriptions say."""

import subprocess
import sys

import pytest

from regard.corpora.builtin import BUILTIN, TOYS, built_in, toy_task
from regard.text.corpus import open_corpus

KNOWN = {  # checksum and lines of each split: the same in every version, for runs and pages name a text by its name
    "phrasebook": ("b50cafa9657d4ecf01372ee782529035", [19_000, 500, 500]),
    "any-b": ("b4b31eca43cb9787f7680057f767a54e", [8871, 545, 584]),
    "copy": ("94007cf3c9608e8a5ed45f5320156b17", [9044, 506, 450]),
    "reverse": ("af351b05455244a978247c8a5db7645f", [9007, 508, 485]),
    "recall": ("bf3c7f029df152cf8e09cddf2c40a101", [8972, 519, 509]),
}
GENERATED = "10,000 lines generated with seed 0, split by hash: identical lines share a split."
PHRASES = "The English side of 20,000 pairs of the built-in phrasebook, generated with seed 0."


@pytest.mark.parametrize("name", BUILTIN)
def test_every_built_in_text_opens_the_same_every_time(name):
    corpus = open_corpus(name)
    assert list(corpus.splits) == ["train", "valid", "test"]
    assert all(line.strip() for lines in corpus.splits.values() for line in lines)
    assert min(sum(1 for _ in lines) for lines in corpus.splits.values()) > 100
    assert corpus.checksum() == open_corpus(name).checksum()
    assert all(note.endswith(".") for note in corpus.notes)
    if name in KNOWN:  # the reference is that of the Python that runs
        assert (corpus.checksum(), [sum(1 for _ in lines) for lines in corpus.splits.values()]) == KNOWN[name]
        assert corpus.notes[0] == (GENERATED if name in TOYS else PHRASES)
    made = built_in(name)
    assert (made.pretokenised, made.disjoint) == ((name in TOYS,) * 2)


def test_another_process_makes_the_same_text():
    program = "from regard.text.corpus import open_corpus as o; print(o('pyref').checksum(), o('recall').checksum())"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == [open_corpus("pyref").checksum(), open_corpus("recall").checksum()]


@pytest.mark.parametrize("name", TOYS)
def test_toy_splits_share_no_line_and_other_seeds_give_other_lines(name):
    splits = {split: set(lines) for split, lines in toy_task(name).items()}
    assert not splits["train"] & splits["valid"]
    assert not splits["train"] & splits["test"]
    assert not splits["valid"] & splits["test"]
    assert toy_task(name, seed=1) != toy_task(name, seed=0) == toy_task(name)
    assert sum(map(len, toy_task(name, lines=50).values())) == 50


def all_lines(name: str) -> list[list[str]]:
    return [line.split() for lines in toy_task(name).values() for line in lines]


def test_any_b_ends_in_b_exactly_if_there_was_one():
    for line in all_lines("any-b"):
        assert line[-1] == ("B" if "B" in line[:-1] else "A")
    for lines in toy_task("any-b").values():
        assert {line.split()[-1] for line in lines} == {"A", "B"}


def test_copy_and_reverse_repeat_what_stood_before_the_bar():
    for line in all_lines("copy"):
        bar = line.index("|")
        assert line[bar + 1 :] == line[:bar]
    for line in all_lines("reverse"):
        bar = line.index("|")
        assert line[bar + 1 :] == line[:bar][::-1]


def test_recall_gives_the_value_of_the_key():
    for line in all_lines("recall"):
        pairs = dict(zip(line[:-3:2], line[1:-3:2]))
        assert len(pairs) == (len(line) - 3) // 2
        assert line[-3] == "?"
        assert pairs[line[-2]] == line[-1]


def test_the_reference_is_running_english_and_its_splits_share_no_long_line():
    splits = {split: list(lines) for split, lines in open_corpus("pyref").splits.items()}
    words = sum(len(line.split()) for lines in splits.values() for line in lines)
    assert 40_000 < words < 80_000
    assert len(" ".join(splits["train"]).split()) > 0.85 * words
    long = {split: {line for line in lines if len(line) >= 40} for split, lines in splits.items()}
    assert not long["train"] & (long["valid"] | long["test"])
    assert not long["valid"] & long["test"]
    assert not any(line.startswith("***") for lines in splits.values() for line in lines)


def test_the_text_package_is_light():
    program = """
import pkgutil, sys, importlib, regard.text
for module in pkgutil.walk_packages(regard.text.__path__, "regard.text."):
    importlib.import_module(module.name)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
