"""C19, embeddings: words that are used alike get similar vectors.

    AUC = P( cos(e_a − ē, e_b − ē) > cos(e_a − ē, e_c − ē) ),     a, b of one class, c of another and as frequent as b

The classes are the phrasebook's own: people, animals, food, cities, … Cosines of raw vectors say little, since training
pushes frequent words together whatever they mean: hence the mean ē of all of them is taken off, and c is as frequent
as b. One half is chance. The notes speak of meaning; what a text can teach is use, and their own figure puts HAPPY
beside SAD.

A grammar's own classes are not judgments of meaning. That part needs real text, which Regard does not contain:

    regard data fetch wikitext-2
    regard claims embeddings --data wikitext-2

    ρ = Spearman's rank correlation of cos(e_a − ē, e_b − ē) with what people say of a and b (word_judgements.py)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations

import numpy as np
import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.claims import corpora
from regard.claims.claim import SECOND_LOOK, Claim, Evidence, Expect, Trial
from regard.claims.each_seed import each_seed
from regard.claims.language_models import QUICK_STEPS, reader, spoken
from regard.claims.models import trained
from regard.claims.word_judgements import JUDGED
from regard.corpora.phrasebook import lexicon
from regard.report.figures import Heat
from regard.runs.tasks.language.run import LanguageRun
from regard.text.corpus import open_corpus

OFTEN = 8  # times a word must occur in the training text
MIN_PAIRS, REAL_STEPS, VOCABULARY = 30, 3000, 10_000  # judged pairs that a real text must have; steps and words of it
SHOWN = 5  # words of a class in the figure


def experiment(trial: Trial) -> Evidence:
    counts = Counter(word for line in spoken()["train"] for word in line.split())
    aucs: list[float] = []
    mixed: list[float] = []
    drawn: list[float] = []
    for seed, (words, vectors, shuffled) in zip(trial.seeds, each_seed(trial, both_readers)):
        compared = comparisons(words, counts)
        noise = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(seed))
        for found, given in ((aucs, vectors), (mixed, shuffled), (drawn, noise)):
            found.append(auc(given, compared))
    one_hot = torch.eye(len(words), dtype=torch.float64)
    apart = torch.pdist(one_hot)
    judged, remark = judgements(trial) if trial.data else ({}, f"No real text was given, so {ASK}")
    measured = {
        ALIKE: aucs,
        MIXED: mixed,
        ONE_HOT: [float((apart - math.sqrt(2)).abs().max())],
        RANDOM: drawn,
        **{quantity: judged.get(quantity, [math.nan]) for quantity in (AGREES, UNORDERED, BY_FREQUENCY)},
    }
    sizes = Counter(words.values())
    table = tuple({"class": name, "words": sizes[name]} for name in sorted(sizes))
    return Evidence(measured, (figure(vectors, words, counts),), (remark,), table)


def both_readers(trial: Trial, seed: int) -> tuple[dict[str, str], Tensor, Tensor]:
    """The words with their classes, and their vectors trained on sentences and on shuffled words."""
    counts = Counter(word for line in spoken()["train"] for word in line.split())
    run, other = reader(trial, "gpt", seed), reader(trial, "gpt", seed, "shuffled")
    words = known(run, counts)
    trial.step(f"seed {seed}")
    return words, vectors_of(run, words), vectors_of(other, words)


# -- what people say -------------------------------------------------------------------------------------------------


def judgements(trial: Trial) -> tuple[dict[str, list[float]], str]:
    """The rank correlations on the given text, and a sentence that describes them."""
    text = text_of(trial.data)
    counts, pairs = judged_pairs(trial.data, text)
    said = list(pairs.values())
    folders = [corpora.keep("real", each, "txt", trial.store) for each in (text, corpora.shuffled(text))]
    trained = [likenesses(vectors, list(pairs)) for vectors in each_seed(trial, judged_vectors, folders)]
    first, second = trained[: len(trial.seeds)], trained[len(trial.seeds) :]
    found = {AGREES: over_pairs(first, said), UNORDERED: over_pairs(second, said)}
    frequent = [-abs(math.log(counts[one] / counts[other])) for one, other in pairs]
    found[BY_FREQUENCY] = [spearman(frequent, said)]
    return found, f"Judgments of {len(pairs)} word pairs, on {trial.data}."


def text_of(data: str) -> corpora.Splits:
    """The lines that are not blank, in small letters."""
    return {
        split: [line.lower() for line in lines if line.strip()] for split, lines in open_corpus(data).splits.items()
    }


def judged_pairs(data: str, text: corpora.Splits) -> tuple[Counter[str], dict[tuple[str, str], float]]:
    """How often the text has each word, and the judged pairs whose words it has often enough."""
    counts = Counter(word for line in text["train"] for word in line.split())
    often = {word for word, count in counts.most_common(VOCABULARY * 9 // 10) if count >= OFTEN}
    pairs = {pair: said for pair, said in JUDGED.items() if often.issuperset(pair)}
    if len(pairs) < MIN_PAIRS:
        raise RegardError(
            f"{data} contains only {len(pairs)} of the {len(JUDGED)} judged word pairs often enough; "
            f"at least {MIN_PAIRS} are needed: give a longer English text, such as --data wikitext-2."
        )
    return counts, pairs


JUDGED_WORDS = {word: place for place, word in enumerate(dict.fromkeys(word for pair in JUDGED for word in pair))}


def judged_vectors(trial: Trial, seed: int, folder: str) -> Tensor:
    """[judged words, width]: their vectors after one training on the text of a folder."""
    run = real_reader(trial, folder, seed)
    trial.step(f"{trial.data}, seed {seed}")
    return vectors_of(run, JUDGED_WORDS)


def real_reader(trial: Trial, folder: str, seed: int) -> LanguageRun:
    steps = QUICK_STEPS if trial.quick else REAL_STEPS
    return trained(
        LanguageRun,
        "gpt",
        folder,
        seed=seed,
        size="tiny",
        store=trial.store,
        settings={
            "data": {"tokenizer": "word", "vocabulary": VOCABULARY},
            "model": {"layers": 2, "width": 64, "heads": 4, "context": 64, "dropout": 0.1},
            "training": {
                "steps": steps, "learning_rate": 3e-3, "warmup": 100, "batch_tokens": 4096, "window": 64,
                "evaluate_every": steps, "checkpoint_every": steps, "threads": 1, "device": trial.device,
            },
        },
    )  # fmt: skip


def likenesses(vectors: Tensor, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """The cosine of every pair, whose words' mean is taken off first."""
    place = {word: n for n, word in enumerate(dict.fromkeys(word for pair in pairs for word in pair))}
    likeness = cosines(vectors[[JUDGED_WORDS[word] for word in place]])
    return [float(likeness[place[one], place[other]]) for one, other in pairs]


def over_pairs(trainings: Sequence[Sequence[float]], said: Sequence[float]) -> list[float]:
    """Numbers whose mean is the mean correlation of the trainings, and whose Student interval is over pairs and
    trainings: the jackknife's n ρ − (n − 1) ρ_(−i) for each pair i (Tukey 1958), drawn apart so that

        V = V_pairs + V_trainings / trainings
    """
    given, count = np.asarray(trainings), len(said)

    def correlations(pairs: np.ndarray) -> list[float]:
        return [spearman(each[pairs], np.asarray(said)[pairs]) for each in given]

    every = np.arange(count)
    whole = correlations(every)
    without = [np.mean(correlations(every[every != pair])) for pair in every]
    pseudo = count * np.mean(whole) - (count - 1) * np.array(without)
    of_pairs, of_trainings = pseudo.var(ddof=1) / count, np.var(whole, ddof=1) / len(whole)
    return list(np.mean(whole) + (pseudo - pseudo.mean()) * math.sqrt(1 + of_trainings / of_pairs))


def spearman(ones: Sequence[float], others: Sequence[float]) -> float:
    """The correlation of the ranks; equal values share their mean rank."""
    return float(np.corrcoef(ranks(ones), ranks(others))[0, 1])


def ranks(values: Sequence[float]) -> np.ndarray:
    given = np.asarray(values)
    below, upto = (given[:, None] > given).sum(1), (given[:, None] >= given).sum(1)
    return (below + upto + 1) / 2


# -- the grammar's classes -------------------------------------------------------------------------------------------


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


def vectors_of(run: LanguageRun, words: Iterable[str]) -> Tensor:
    """[words, width] of the embedding's table."""
    table = run.model.get_parameter("embedding.table.weight").detach().cpu().float()
    return table[[run.tokenizer.encode(word)[0] for word in words]]


def auc(vectors: Tensor, compared: Tensor) -> float:
    """The share of words that are nearer to their mate than to the rival; a tie counts as a half."""
    likeness = cosines(vectors)
    word, mate, rival = compared.unbind(1)
    nearer = likeness[word, mate] - likeness[word, rival]
    return float((0.5 + 0.5 * nearer.sign()).mean())


def comparisons(words: Mapping[str, str], counts: Mapping[str, int]) -> Tensor:
    """[comparisons, 3]: a word, a mate of its class, and a rival of another class that is as frequent as the mate."""
    names, kinds = list(words), list(words.values())
    rates = torch.tensor([math.log(counts[word]) for word in names])
    rivals = []
    for mate, kind in enumerate(kinds):
        apart = (rates - rates[mate]).abs().tolist()
        nearest = min(far for far, other in zip(apart, kinds) if other != kind)
        rivals.append([n for n, other in enumerate(kinds) if other != kind and apart[n] == nearest])
    triples = [
        (word, mate, rivals[mate][(word + mate) % len(rivals[mate])])
        for word, mate in permutations(range(len(names)), 2)
        if kinds[word] == kinds[mate]
    ]
    return torch.tensor(triples)


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


AGREES = "rank correlation of cosines with people's judgments, trained on real text"
UNORDERED = "rank correlation of cosines with people's judgments, trained on its shuffled words"
BY_FREQUENCY = "rank correlation of similarity in frequency with people's judgments"
ASK = (
    "the agreement with people's judgments was not measured: run `regard data fetch wikitext-2`, then add `--data "
    "wikitext-2`."
)
USE, MEANING = "use", "judgements"
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
    statement=(
        "Words that are used in the same way get similar vectors: two words of one class are nearer to each other "
        "than to an equally frequent word of another class, and on real text, the more similar people judge two words "
        "to be, the more similar their vectors are."
    ),
    conditions=(
        "Classes: the embedding of a gpt of width 32, trained on 7200 sentences of the phrasebook. The classes are "
        f"the lexicon's, each word occurs at least {OFTEN} times, cosines are taken after subtracting the mean, and "
        "words of other classes are matched by frequency. Judgments: the embedding of a gpt of width 64, trained on "
        "the text given by --data. The pairs are those of WordSim-353 whose words both occur at least 100 times in "
        "WikiText-2 (which four more do); the intervals are over pairs and trainings together. Without --data, that "
        "part is not measured, and the claim is inconclusive."
    ),
    control_words=(
        "Training on the same words in shuffled order removes the information about which words go together, and "
        "with it the similarity. One-hot vectors are all √2 apart. Similarity in frequency alone does not agree "
        "with people's judgments."
    ),
    breaks=(
        "Use is not meaning: HAPPY and SAD are used alike and get similar vectors, as in the notes' own figure. A "
        "word that occurs only a few times stays near its random initial vector. There are few judged pairs: over "
        "pairs and trainings together, the interval of the judgments is about ±0.25 wide."
    ),
    expected=(Expect(ALIKE, "at least", 0.7, part=USE), Expect(AGREES, "at least", 0.2, over="pairs", part=MEANING)),
    control=(
        Expect(MIXED, "within", 0.5, tolerance=0.1, part=USE),
        Expect(ONE_HOT, "at most", 1e-12, over="draws", part=USE),
        Expect(UNORDERED, "within", 0.0, tolerance=0.2, over="pairs", part=MEANING),
        Expect(BY_FREQUENCY, "at most", 0.2, over="draws", part=MEANING),
    ),
    besides=(Expect(RANDOM, "within", 0.5, tolerance=0.1),),
    experiment=experiment,
    first_seed=SECOND_LOOK,
    reads_data=True,
    on_device=True,
    quick_words="3 seeds, 200 steps instead of 1200 (of real text 3000)",
    cost=300.0,
)
