"""C19, embeddings: words that are used alike get similar vectors.

    AUC = P( cos(e_a − ē, e_b − ē) > cos(e_a − ē, e_c − ē) ),     a, b of one class, c of another and as frequent as b

The classes are the phrasebook's own: people, animals, food, cities, … Cosines of raw vectors say little, since training
pushes frequent words together whatever they mean: hence the mean ē of all of them is taken off, and c is as frequent
as b. One half is chance. The notes speak of meaning; what a text can teach is use, and their own figure puts HAPPY
beside SAD.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import permutations

import torch
from torch import Tensor

from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.language_models import reader, spoken
from regard.corpora.phrasebook import lexicon
from regard.report.figures import Heat
from regard.runs.language_run import LanguageRun

OFTEN = 8  # times a word must occur in the training text
SHOWN = 5  # words of a class in the figure


def experiment(trial: Trial) -> Evidence:
    counts = Counter(word for line in spoken()["train"] for word in line.split())
    words = known(reader(trial, "gpt", trial.seeds[0]), counts)
    compared = comparisons(words, counts)
    found, mixed, drawn = [], [], []
    for seed in trial.seeds:
        run = reader(trial, "gpt", seed)
        vectors = vectors_of(run, words)
        found.append(auc(vectors, compared))
        other = reader(trial, "gpt", seed, "shuffled")
        mixed.append(auc(vectors_of(other, words), compared))
        noise = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(seed))
        drawn.append(auc(noise, compared))
        trial.step(f"seed {seed}")
    one_hot = torch.eye(len(words), dtype=torch.float64)
    apart = torch.pdist(one_hot)
    measured = {
        ALIKE: found,
        MIXED: mixed,
        ONE_HOT: [float((apart - math.sqrt(2)).abs().max())],
        RANDOM: drawn,
    }
    sizes = Counter(words.values())
    table = tuple({"class": name, "words": sizes[name]} for name in sorted(sizes))
    return Evidence(measured, (figure(vectors, words, counts),), table=table)


def classes() -> dict[str, str]:
    """Each word of the lexicon that belongs to exactly one class, in small letters."""
    nouns = {
        "people": [*lexicon.PEOPLE, *lexicon.KIN],
        "animals": lexicon.ANIMALS,
        "food": [*lexicon.FOOD, *lexicon.DRINKS],
        "clothes": [noun for noun in lexicon.THINGS if noun.tags[0] == "c"],
        "texts": [noun for noun in lexicon.THINGS if noun.tags[0] == "x"],
        "places": lexicon.PLACES,
    }
    groups = {name: [noun.english[0] for noun in given] for name, given in nouns.items()}
    groups |= {"names": [*lexicon.MEN, *lexicon.WOMEN], "cities": [*lexicon.CITIES, *lexicon.COUNTRIES]}
    groups |= {"languages": [*lexicon.LANGUAGES], "numbers": [english for english, _ in lexicon.NUMBERS]}
    groups |= {"adjectives": [one.english for one in lexicon.ADJECTIVES]}
    groups |= {"adverbs": [english for english, _ in (*lexicon.OFTEN, *lexicon.MANNER)]}
    several = Counter(word.lower() for given in groups.values() for word in set(given))
    return {word.lower(): name for name, given in groups.items() for word in given if several[word.lower()] == 1}


def known(run: LanguageRun, counts: Mapping[str, int]) -> dict[str, str]:
    """The classified words that the text has often enough and the vocabulary knows."""
    vocabulary = set(run.tokenizer.tokens)
    often = {word: name for word, name in classes().items() if counts.get(word, 0) >= OFTEN and word in vocabulary}
    several = Counter(often.values())
    return {word: name for word, name in sorted(often.items()) if several[name] > 1}


def vectors_of(run: LanguageRun, words: Mapping[str, str]) -> Tensor:
    """[words, width] of the embedding's table."""
    table = run.model.get_parameter("embedding.table.weight").detach().cpu().float()
    return table[[run.tokenizer.encode(word)[0] for word in words]]


def auc(vectors: Tensor, compared: Tensor) -> float:
    """How often a word is nearer to its mate than to the rival; a tie is a half."""
    likeness = cosines(vectors)
    word, mate, rival = compared.unbind(1)
    nearer = likeness[word, mate] - likeness[word, rival]
    return float((0.5 + 0.5 * nearer.sign()).mean())


def comparisons(words: Mapping[str, str], counts: Mapping[str, int]) -> Tensor:
    """[comparisons, 3]: a word, a mate of its class, and a rival of another class that is as frequent as the mate."""
    names, kinds = list(words), list(words.values())
    rates = torch.tensor([math.log(counts[word]) for word in names])
    found = []
    for word, mate in permutations(range(len(names)), 2):
        if kinds[word] == kinds[mate]:
            apart = (rates - rates[mate]).abs()
            others = [n for n in range(len(names)) if kinds[n] != kinds[word]]
            nearest = min(float(apart[n]) for n in others)
            equal = [n for n in others if float(apart[n]) == nearest]
            found.append((word, mate, equal[(word + mate) % len(equal)]))
    return torch.tensor(found)


def cosines(vectors: Tensor) -> Tensor:
    centred = vectors - vectors.mean(0)
    unit = centred / centred.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return unit @ unit.T


def figure(vectors: Tensor, words: Mapping[str, str], counts: Mapping[str, int]) -> Heat:
    """The likeness of the most frequent words of four classes."""
    names = list(words)
    chosen = [
        word
        for kind in ("animals", "food", "names", "adjectives")
        for word in sorted((w for w in names if words[w] == kind), key=lambda w: -counts[w])[:SHOWN]
    ]
    likeness = cosines(vectors)
    places = [names.index(word) for word in chosen]
    values = [[float(likeness[row, column]) for column in places] for row in places]
    return Heat("Cosines of word vectors", chosen, chosen, values, x="word", y="word", z="cosine", diverging=True)


ALIKE = "AUC of same-class against other-class pairs, trained on sentences"
MIXED = "AUC of same-class against other-class pairs, trained on shuffled words"
ONE_HOT = "largest difference of a distance between one-hot vectors from √2"
RANDOM = "AUC of same-class against other-class pairs, random vectors"

CLAIM = Claim(
    name="embeddings",
    number="C19",
    kinds=("measured",),
    quote="WORDS THAT HAVE SIMILAR MEANING WILL HAVE SIMILAR EMBEDDINGS.",
    where="003:133",
    statement="Words that are used alike get similar vectors: two words of one class are nearer to each other than to "
    "an equally frequent word of another.",
    conditions="Embedding of a gpt of width 32 trained on 7200 sentences of the phrasebook; classes are the lexicon's; "
    f"words that occur at least {OFTEN} times; cosines after the mean was taken off; other-class words matched by "
    "frequency.",
    control_words="Trained on the same words shuffled, which words go together is gone, and so is the likeness; "
    "one-hot vectors are all √2 apart.",
    breaks="Use is not meaning: HAPPY and SAD are used alike and get similar vectors, as in the notes' own figure. A "
    "word that the text has a few times only stays where it was drawn.",
    expected=(Expect(ALIKE, "at least", 0.7),),
    control=(Expect(MIXED, "within", 0.5, tolerance=0.1), Expect(ONE_HOT, "at most", 1e-12, over="draws")),
    besides=(Expect(RANDOM, "within", 0.5, tolerance=0.1),),
    experiment=experiment,
    quick_words="3 seeds, 200 steps instead of 1200",
    cost=300.0,
)
