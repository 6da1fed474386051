"""Corpora generated for claims from a seed, cached by content.

strings   c a d b  →  what a rule makes of it        symbols are independent, so a string of n symbols has n
                                                      times the information of one
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random

from regard.base.word_spans import find_words
from regard.base.writing import write_text
from regard.claims.models import claims_cache
from regard.corpora.phrasebook import make_pairs

Symbols = Sequence[str]
Rule = Callable[[Symbols], Symbols]
Splits = Mapping[str, Sequence[str]]
HELD_OUT = 200  # strings to validate on
EACH = 20  # test strings of each length


def keep(name: str, splits: Splits, ending: str, store: Path | None = None) -> str:
    """The folder with these lines, one file per split; its name is a hash of the content."""
    texts = {split: "".join(f"{line}\n" for line in lines) for split, lines in splits.items()}
    content = hashlib.sha256("\0".join(f"{split}\0{texts[split]}" for split in sorted(texts)).encode()).hexdigest()
    folder = (store or claims_cache()) / "data" / f"{name}-{content[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    for split, text in texts.items():
        if not (folder / f"{split}.{ending}").exists():
            write_text(folder / f"{split}.{ending}", text)
    return str(folder)


def strings(
    rule: Rule, *, longest: int, count: int, shortest: int = 3, alphabet: str = "abcdefghijklmnop", each: int = EACH
) -> dict[str, list[tuple[str, str]]]:
    """Pairs of a string and the rule's result, with equally many of each length; no source is in two splits."""
    random = Random(f"strings {longest} {count} {shortest} {alphabet}")
    seen: set[str] = set()

    def draw(length: int) -> tuple[str, str]:
        while True:
            symbols = [alphabet[int(random.random() * len(alphabet))] for _ in range(length)]
            source = " ".join(symbols)
            if source not in seen:
                seen.add(source)
                return source, " ".join(rule(symbols))

    lengths = range(shortest, longest + 1)
    if len(alphabet) ** shortest < 2 * (each + (count + HELD_OUT) / len(lengths)):
        raise ValueError(f"there are too few strings of {shortest} symbols to draw so many different ones")
    test = [draw(length) for length in lengths for _ in range(each)]
    drawn = [draw(lengths[int(random.random() * len(lengths))]) for _ in range(count + HELD_OUT)]
    return {"train": drawn[HELD_OUT:], "valid": drawn[:HELD_OUT], "test": test}


def lines(pairs: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, list[str]]:
    """Pairs as the lines of .tsv files."""
    return {split: [f"{source}\t{target}" for source, target in given] for split, given in pairs.items()}


def shuffled(splits: Splits, seed: int = 0) -> dict[str, list[str]]:
    """The words of each split shuffled, and after each the line ends with the same probability: the length of a line is
    random, and no word predicts another. (If lines kept their lengths, their ends would be predictable.)"""
    mixed = {}
    for split, given in splits.items():
        random, spoken = Random(f"shuffled {split} {seed}"), [word for line in given for word in line.split()]
        order = sorted(range(len(spoken)), key=lambda _: random.random())
        lines: list[list[str]] = [[]]
        for place in order:
            if lines[-1] and random.random() < len(given) / len(spoken):
                lines.append([])
            lines[-1].append(spoken[place])
        mixed[split] = [" ".join(line) for line in lines]
    return mixed


@cache
def sentences(count: int = 8000, longest: int = 12) -> dict[str, list[str]]:
    """The phrasebook's English in lower case, without punctuation."""
    spoken = [
        " ".join(pair.source[start:end] for start, end in find_words(pair.source)).lower()
        for pair in make_pairs(count, seed=0, longest=longest)
    ]
    held = count // 20
    return {"train": spoken[2 * held :], "valid": spoken[:held], "test": spoken[held : 2 * held]}
