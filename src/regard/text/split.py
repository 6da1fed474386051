"""Splitting sentence pairs without leaks: no source or target of a held-out split occurs in training.

Two pairs are linked if their sources or their targets are the same up to case, punctuation and spaces. A connected
group of pairs is never divided:

    I'm cold.  J'ai froid.    ┐
    I am cold. J'ai froid.    ┘ one group, one split

A random split does divide them: in a file of short sentences with several translations each, half of the test sources
would then occur in the training text.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regard.base.numbers import group_digits, pluralize
from regard.corpora.split import PARTS, line_hash

MAX_HELD_OUT = 2000  # pairs of valid and of test: more would cost training data and time for little precision
LABELS = 5  # least pairs per distinct text for a side to count as labels, which all splits must share


def normalize_for_comparison(texts: Sequence[str]) -> list[str]:
    """Texts for comparing: composed (NFC), without case, punctuation and extra spaces; "?!" stays as it is.

    Works on one array of all characters: a regular expression over each text takes ten times as long.
    """
    joined = "\n".join(texts)
    folded = (joined if joined.isascii() else unicodedata.normalize("NFC", joined)).casefold()
    codes = np.frombuffer(folded.encode("utf-32-le", "surrogatepass"), np.uint32)
    marks = by_character(codes, lambda character: unicodedata.category(character)[0] in "PS")
    spaced = np.where(marks, np.uint32(ord(" ")), codes).tobytes().decode("utf-32-le", "surrogatepass")
    lines = zip(spaced.split("\n"), folded.split("\n"))
    return [" ".join(line.split()) or whole.strip() for line, whole in lines][: len(texts)]


def by_character(codes: np.ndarray, function: Callable[[str], int]) -> np.ndarray:
    """A number for each character of a text, computed once per distinct character."""
    table = np.bincount(codes)
    for code in np.flatnonzero(table).tolist():
        table[code] = function(chr(code))
    return table[codes]


@dataclass(frozen=True)
class PairOverlap:
    """The number of pairs of a held-out split whose source, target, or both, also occur in train."""

    split: str
    pairs: int
    sources: int
    targets: int
    both: int

    @property
    def sentence(self) -> str:
        if not self.sources and not self.targets:
            return f"No source or target of {self.split} also occurs in train."

        def share(count: int) -> str:
            return f"{group_digits(count)} ({100 * count / self.pairs:.1f} %)"

        return (
            f"Of the {group_digits(self.pairs)} pairs of {self.split}, {share(self.sources)} have a source "
            f"that also occurs in train, {share(self.targets)} have such a target, and {share(self.both)} "
            "occur there as a pair, ignoring case and punctuation."
        )


def count_pair_overlap(splits: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> list[PairOverlap]:
    """The overlap of each held-out split with train; a split is (sources, targets)."""
    normalized = {name: [normalize_for_comparison(side) for side in sides] for name, sides in splits.items()}
    sources, targets = normalized.pop("train")
    trained_sources, trained_targets = set(sources) - {""}, set(targets) - {""}
    both = set(zip(sources, targets)) - {("", "")}
    return [
        PairOverlap(
            name,
            len(one),
            sum(text in trained_sources for text in one),
            sum(text in trained_targets for text in other),
            sum(pair in both for pair in zip(one, other)),
        )
        for name, (one, other) in normalized.items()
    ]


@dataclass(frozen=True)
class Drawn:
    """Indices of the pairs by split, and a sentence on how they were drawn."""

    splits: Mapping[str, np.ndarray]
    origin: str

    def dump(self) -> bytes:
        return json.dumps([self.origin, {name: chosen.tolist() for name, chosen in self.splits.items()}]).encode()

    @classmethod
    def parse(cls, content: bytes) -> Drawn:
        origin, splits = json.loads(content)
        return cls({name: np.array(chosen, np.int64) for name, chosen in splits.items()}, origin)


def draw_pairs(sources: Sequence[str], targets: Sequence[str], held_out: Sequence[str] = ("valid", "test")) -> Drawn:
    """Draws whole groups by the hash of their smallest pair: 5 % of the pairs for each held-out split, at most 2,000.

    Large groups are trained on. Without two groups nothing can be held out: then everything is train.
    """
    one, other = normalize_for_comparison(sources), normalize_for_comparison(targets)
    labels = [are_labels(side) for side in (one, other)]
    if all(labels):  # only repetitions
        labels = [False, False]
    group = _groups(len(one), [side for side, label in zip((one, other), labels) if not label])
    count, sizes = int(group.max(initial=-1)) + 1, np.bincount(group)
    smallest: list[str] = [""] * count
    for number, pair in zip(group.tolist(), map("\n".join, zip(one, other))):
        smallest[number] = min(smallest[number] or pair, pair)
    hashes = list(map(line_hash, smallest))
    wanted = max(1, min(len(one) // PARTS, MAX_HELD_OUT))
    large = sizes > max(1, wanted // 10)
    candidates = sorted(range(count), key=lambda number: (sizes[number], hashes[number]))[:-1]  # train has the largest
    split = np.zeros(count, np.int64)
    for part, sign in zip(
        range(1, 1 + len(held_out)), (1, -1)
    ):  # from both ends, so that a growing text moves no pair between them
        room = wanted
        for number in sorted(candidates, key=lambda number: (large[number], sign * hashes[number])):
            if room > 0 and split[number] == 0:
                split[number] = part
                room -= sizes[number]
    names = ("train", *held_out)
    splits = {name: np.flatnonzero(split[group] == part) for part, name in enumerate(names)}
    for name in held_out:  # ordered by hash, so that the first ones are a sample even of a sorted file
        splits[name] = np.array(sorted(splits[name].tolist(), key=lambda pair: hashes[group[pair]]), np.int64)
    splits = {name: chosen for name, chosen in splits.items() if name == "train" or len(chosen)}
    return Drawn(splits, _origin(splits, sizes[large & (split == 0)], labels))


def _origin(splits: Mapping[str, np.ndarray], large: np.ndarray, labels: list[bool]) -> str:
    """A sentence on how the splits were drawn; `large`: the sizes of the large groups in train."""
    shares = " and ".join(
        f"{pluralize(len(chosen), 'pair')} for {name}" for name, chosen in splits.items() if name != "train"
    )
    what = {(False, False): "source or a target", (False, True): "source", (True, False): "target"}[
        labels[0], labels[1]
    ]
    sentence = (
        f"Drawn by hash: {shares} (5 % each, at most {group_digits(MAX_HELD_OUT)}); pairs that share a "
        f"{what}, ignoring case and punctuation, share a split"
    )
    if any(labels):
        sentence += f", and the {'targets' if labels[1] else 'sources'}, being labels, are in all of them"
    if len(large):
        groups, verb = pluralize(len(large), "large group"), "is" if len(large) == 1 else "are"
        sentence += f"; {groups} of such pairs (up to {group_digits(large.max())}) {verb} trained on"
    return sentence + "."


def are_labels(texts: Sequence[str]) -> bool:
    return len(texts) >= LABELS * len(set(texts))


def _groups(count: int, sides: Sequence[Sequence[str]]) -> np.ndarray:
    """The number of each pair's group: pairs are joined through equal texts of a side (union-find); "" joins none."""
    parent = list(range(count))

    def root(pair: int) -> int:
        while parent[pair] != pair:
            parent[pair] = pair = parent[parent[pair]]
        return pair

    for side in sides:
        first: dict[str, int] = {}
        for pair, text in enumerate(side):
            if text and (before := first.setdefault(text, pair)) != pair:
                one, other = root(before), root(pair)
                parent[max(one, other)] = min(one, other)
    roots = np.fromiter(map(root, range(count)), np.int64, count)
    return np.unique(roots, return_inverse=True)[1]
