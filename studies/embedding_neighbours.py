"""Nearest neighbors among the phrasebook's English sentences: a run's embeddings beside tf-idf.

    python studies/embedding_neighbours.py RUN… [--others 2000]

Two English sentences with one French translation are paraphrases ("They are watching.", "They watch."). Counted is how
often a sentence's nearest neighbor among all its paraphrases and `others` further sentences is its paraphrase. The test
was fixed before any run was embedded.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict

import numpy as np

import regard
from regard.base.word_spans import find_words
from regard.text.pairs import open_pairs


def tf_idf(texts: list[str]) -> np.ndarray:
    """Term frequency times inverse document frequency of words (Spärck Jones 1972), each row of length 1."""
    words = [Counter(text[start:end].lower() for start, end in find_words(text)) for text in texts]
    seen = Counter(word for row in words for word in row)
    column = {word: place for place, word in enumerate(seen)}
    table = np.zeros((len(texts), len(seen)))
    for number, row in enumerate(words):
        for word, count in row.items():
            table[number, column[word]] = count * np.log(len(texts) / seen[word])
    return table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)


def found(vectors: np.ndarray, partners: list[set[int]]) -> int:
    """The number of sentences whose nearest neighbor is a paraphrase."""
    likeness = vectors @ vectors.T
    np.fill_diagonal(likeness, -np.inf)
    return sum(int(likeness[number].argmax()) in those for number, those in enumerate(partners))


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("runs", nargs="+")
    options.add_argument("--others", type=int, default=2000)
    given = options.parse_args()
    by_target: dict[str, set[str]] = defaultdict(set)
    for split in open_pairs("phrasebook").splits.values():
        for source, target in zip(split.sources, split.targets):
            by_target[target].add(source)
    groups = [sorted(group) for group in by_target.values() if len(group) > 1]
    same = [sentence for group in groups for sentence in group]
    others = [min(group) for group in by_target.values() if len(group) == 1]
    texts = same + others[:: max(1, len(others) // given.others)][: given.others]
    places = {text: place for place, text in enumerate(same)}
    partners = [{places[other] for other in group if other != text} for group in groups for text in group]
    print("| vectors | nearest neighbor is the paraphrase |\n|---|---|")
    print(f"| tf-idf of words | {found(tf_idf(texts), partners)} of {len(same)} |")
    for name in given.runs:
        run = regard.load(name)
        for pool in ("mean", "last"):
            vectors = np.asarray(run.embed(texts, pool=pool))
            print(f"| {name} ({run.recipe.system}), {pool} | {found(vectors, partners)} of {len(same)} |", flush=True)


if __name__ == "__main__":
    main()
