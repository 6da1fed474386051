"""phrasebook: an English-French grammar that makes any number of sentence pairs, with their gold word alignment.

    They are watching.  →  Ils regardent.        (they, Ils) (are, regardent) (watching, regardent)

The French follows from the English alone. Where English leaves something open, a convention decides:

- *you* is one person, said politely (vous); *I* and *you* are men, *we* and *they* masculine, and so are nouns of
  profession, unless the word says otherwise (nurse, actress);
- *it*, *they* and *them* have the gender of what the same sentence has named, and are not used where two genders could
  be meant; with nothing named they are masculine;
- questions take *est-ce que*; a command is said to *vous*;
- the simple past is the passé composé, but the imperfect for states (knew, wanted, was) and the past progressive; both
  English presents are the French present; a future after *when* and *as soon as*, an imperfect in *if she came*;
- *not* stands for *ne … pas*, *never* for *ne … jamais*, *no longer* for *ne … plus*; English says *do not* in full;
- a space, an ordinary one, stands before the French question mark.

An auxiliary is linked with the French auxiliary, or with the verb where French has none, or with *est-ce que*; *not*
with both *ne* and *pas*; an article that English leaves out with its noun. Every word has a link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from regard.base.errors import RegardError
from regard.base.numbers import group_digits
from regard.base.word_spans import find_words
from regard.corpora.phrasebook.pair import Pair
from regard.corpora.phrasebook.sentences import SentenceMaker
from regard.corpora.split import line_hash

__all__ = ["Pair", "make_pairs", "phrasebook"]

HELD_OUT = 500  # for validation and again for the test, or one pair in 20 where that is less
PATIENCE = 5_000  # consecutive duplicates before the grammar counts as exhausted
LECTURES = (
    Pair("They are watching.", "Ils regardent.", ((0, 0), (1, 1), (2, 1))),
    Pair(
        "Jack gave water to Jill.",
        "Jack a donné de l'eau à Jill.",
        ((0, 0), (1, 1), (1, 2), (2, 3), (2, 4), (2, 5), (3, 6), (4, 7)),
    ),
    Pair(
        "Jill gave water to Jack.",
        "Jill a donné de l'eau à Jack.",
        ((0, 0), (1, 1), (1, 2), (2, 3), (2, 4), (2, 5), (3, 6), (4, 7)),
    ),
)


def make_pairs(count: int, *, seed: int = 0, shortest: int = 1, longest: int = 15) -> Iterator[Pair]:
    """That many different pairs whose English sides have `shortest` to `longest` words, every length equally often."""
    if count < 0 or not 1 <= shortest <= longest:
        raise RegardError(
            f"The phrasebook cannot make {count} pairs of {shortest} to {longest} words; "
            "the number of pairs must be positive, and the shortest length between 1 and the longest."
        )
    random = Random(f"phrasebook {seed}")
    grammar, seen, in_vain = SentenceMaker(random), set[str](), 0
    while len(seen) < count:
        pair = grammar.sentence(shortest + int(random.random() * (longest - shortest + 1)))
        if pair.source in seen or not shortest <= len(find_words(pair.source)) <= longest:
            in_vain += 1
            if in_vain > PATIENCE:
                raise RegardError(
                    f"The phrasebook has only about {group_digits(len(seen))} sentences of {shortest} "
                    f"to {longest} words; ask for fewer pairs or allow longer sentences."
                )
            continue
        in_vain = 0
        seen.add(pair.source)
        yield pair


def phrasebook(count: int, *, seed: int = 0, longest: int = 15) -> dict[str, list[Pair]]:
    """Train, valid and test, which share no source and no target; the lectures' sentences are in train."""
    lectures = [pair for pair in LECTURES if len(find_words(pair.source)) <= longest][:count]
    known = {pair.source for pair in lectures}
    made = make_pairs(count, seed=seed, longest=longest)
    pairs = [*lectures, *(pair for pair in made if pair.source not in known)][:count]

    # Several sources can have one target (she sings, she is singing), never the reverse: targets decide the split.
    targets = [normalised(pair.target) for pair in pairs]
    groups = Counter(targets)
    share = min(HELD_OUT, count // 20)
    taught = {normalised(pair.target) for pair in lectures}
    drawn = iter(sorted(groups.keys() - taught, key=line_hash))
    split: dict[str, str] = {}
    for name in ("valid", "test"):
        size = 0
        while size < share:
            target = next(drawn)
            split[target] = name
            size += groups[target]
    splits: dict[str, list[Pair]] = {"train": [], "valid": [], "test": []}
    for pair, target in zip(pairs, targets):
        splits[split.get(target, "train")].append(pair)
    return splits


def normalised(sentence: str) -> str:
    """Without capitals and punctuation."""
    folded = sentence.casefold()
    return " ".join(folded[start:end] for start, end in find_words(folded))
