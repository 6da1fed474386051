"""A text with the size and the vocabulary of the Penn Treebank, made from WikiText-2, which is free.

    python studies/ptb_sized.py WIKITEXT-2 FOLDER
    regard train ptb-rnn.toml --data FOLDER --run runs/ptb-sized

Lower case, a sentence a line, N for words with a digit, and `<unk>` for all but the 9,998 most frequent words; about
930,000, 74,000 and 83,000 tokens. Perplexities on it are not those of the Penn Treebank; recipes can be compared.
"""

from __future__ import annotations

import argparse
import gzip
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

SIZES = {"train": 930_000, "valid": 74_000, "test": 83_000}  # tokens, with a line's end
WORDS = 9998


def lines_of(folder: Path, split: str) -> Iterator[str]:
    plain = folder / f"wiki.{split}.tokens"
    packed = plain.with_name(f"{plain.name}.gz")
    with gzip.open(packed, "rt", encoding="utf-8") if packed.exists() else plain.open(encoding="utf-8") as file:
        yield from file


def sentences(lines: Iterable[str], tokens: int) -> list[list[str]]:
    """Whole paragraphs, without headings, until there are so many tokens."""
    found: list[list[str]] = []
    count = 0
    for line in lines:
        words = ["N" if any(map(str.isdigit, word)) else word for word in line.lower().split()]
        if not words or words[0] == "=":
            continue
        ends = [place + 1 for place, word in enumerate(words) if word == "."]
        starts = [0, *ends]
        found += [part for start, end in zip(starts, [*ends, len(words)], strict=True) if (part := words[start:end])]
        count += len(words) + len([start for start in starts if start < len(words)])
        if count > tokens:
            break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wikitext", type=Path, help="folder with wiki.train.tokens (or .gz) and so on")
    parser.add_argument("folder", type=Path, help="a new folder for ptb.train.txt, ptb.valid.txt and ptb.test.txt")
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    splits = {split: sentences(lines_of(options.wikitext, split), size) for split, size in SIZES.items()}
    counts = Counter(word for sentence in splits["train"] for word in sentence)
    known = {word for word, _ in counts.most_common(WORDS)}
    for split, found in splits.items():
        text = "".join(f" {' '.join(word if word in known else '<unk>' for word in line)} \n" for line in found)
        (options.folder / f"ptb.{split}.txt").write_text(text, encoding="utf-8")
        print(f"{split}: {sum(len(line) + 1 for line in found)} tokens")


if __name__ == "__main__":
    main()
