"""C18, alignment: a translator that attends learns which word comes from which, also where the order differs.

    link of y_t = argmax_s α(s_{t-1}, h_s)        read at the step that predicts y_t, not at the one that reads it

Against it stand the diagonal (each word comes from the one at its place), which needs no learning, and IBM model 1
(Brown et al. 1993), which learns from the same pairs which words go together and knows nothing of order. Sentences are
the phrasebook's, with their gold alignment; error rates are Och & Ney's, over all links of a set of sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from random import Random
from statistics import mean

import torch

from regard.base.word_spans import find_words
from regard.claims import corpora
from regard.claims.claim import Claim, Evidence, Expect, Trial, Worked
from regard.claims.models import trained
from regard.corpora.phrasebook import Pair, make_pairs
from regard.decoding.translate import explain_hypotheses
from regard.evaluation.alignment_error import Link, alignment_error_rate, diagonal_links, ibm1
from regard.report.figures import Heat, Intervals, Mark
from regard.runs.folder import Tokenizers, build_model
from regard.runs.translation_run import TranslationRun
from regard.systems.translator import Translator

MADE, LONGEST, HELD_OUT = 30_000, 8, 400
COMMON, STEPS = 400, 2000  # words the sentences are made of, and steps of training
QUICK_COMMON, QUICK_STEPS = 250, 1000
EXAMPLE = "do not give it to his sister", "ne le donnez pas à sa sœur"
Links = list[set[Link]]


def experiment(trial: Trial) -> Evidence:
    pairs = sentences(QUICK_COMMON if trial.quick else COMMON)
    held = pairs[:HELD_OUT]
    sides = [(cut(pair.source), cut(pair.target)) for pair in held]
    gold = [set(pair.alignment) for pair in held]
    moved = [n for n, pair in enumerate(held) if crosses(pair)]
    same = [n for n, pair in enumerate(held) if gold[n] == {(w, w) for w in range(len(sides[n][0]))}]
    diagonal = [diagonal_links(len(source), len(target)) for source, target in sides]
    counted = ibm1([cut(pair.source) for pair in pairs], [cut(pair.target) for pair in pairs])[:HELD_OUT]

    def error(found: Links, which: Sequence[int]) -> float:
        return alignment_error_rate([gold[n] for n in which], [found[n] for n in which])

    learned, kept_order, at_first = [], [], []
    for seed in trial.seeds:
        run = learn(trial, pairs, seed)
        looked = links(run, sides)
        learned.append(error(looked, moved))
        kept_order.append(error(looked, same))
        at_first.append(error(links(untrained(run, seed), sides), moved))
        trial.step(f"seed {seed}")
    plain, model1 = error(diagonal, moved), error(counted, moved)
    measured = {
        OVER_DIAGONAL: [plain - one for one in learned],
        OVER_IBM: [model1 - one for one in learned],
        SAME: kept_order,
        UNTRAINED: [plain - one for one in at_first],
    }
    rows = {"attention": (mean(learned), mean(kept_order)), "diagonal": (plain, error(diagonal, same))}
    rows |= {"IBM model 1": (model1, error(counted, same))}
    table = tuple({"links": name, "reordered pairs": one, "same order": two} for name, (one, two) in rows.items())
    remark = f"Of {len(held)} held-out pairs {len(moved)} have crossing links and {len(same)} are word by word."
    return Evidence(measured, (figure(learned, plain, model1), heat(run)), (remark,), table)


@cache
def sentences(common: int) -> list[Pair]:
    """Pairs made of the phrasebook's commonest English words, in a random order."""
    made = list(make_pairs(MADE, seed=0, longest=LONGEST))
    counts = Counter(word for pair in made for word in cut(pair.source))
    known = {word for word, _ in counts.most_common(common)}
    chosen = [pair for pair in made if known.issuperset(cut(pair.source))]
    random = Random("alignment")
    return [chosen[n] for n in sorted(range(len(chosen)), key=lambda _: random.random())]


def cut(sentence: str) -> list[str]:
    """The words that gold links count, in small letters and without apostrophes: a token for each."""
    return [sentence[start:end].lower().strip("'’") for start, end in find_words(sentence)]


def crosses(pair: Pair) -> bool:
    return any((s - other_s) * (t - other_t) < 0 for s, t in pair.alignment for other_s, other_t in pair.alignment)


def learn(trial: Trial, pairs: Sequence[Pair], seed: int, system: str = "bahdanau") -> TranslationRun:
    rows = [f"{' '.join(cut(pair.source))}\t{' '.join(cut(pair.target))}" for pair in pairs]
    splits = {"train": rows[HELD_OUT:], "valid": rows[: HELD_OUT // 2], "test": rows[:HELD_OUT]}
    steps = QUICK_STEPS if trial.quick else STEPS
    run = trained(
        system,
        corpora.keep("reordered", splits, "tsv", trial.store),
        seed=seed,
        size="tiny",
        store=trial.store,
        settings={
            "data": {"tokenizer": "word", "joint": False},
            "model": {"cell": "gru", "layers": 1, "width": 48, "embedding": 32, "dropout": 0.0},
            "training": {
                "steps": steps, "learning_rate": 8e-3, "schedule": "cosine", "warmup": 100, "batch_tokens": 768,
                "label_smoothing": 0.0, "evaluate_every": steps, "checkpoint_every": steps, "patience": 0, "keep": 0,
                "threads": 1, "device": trial.device,
            },
        },
    )  # fmt: skip
    assert isinstance(run, TranslationRun)
    return run


def untrained(run: TranslationRun, seed: int) -> TranslationRun:
    """The same before its first step."""
    torch.manual_seed(seed)
    model = build_model(run.recipe, Tokenizers(run.tokenizer, run.source_tokenizer))
    assert isinstance(model, Translator)
    return TranslationRun(run.folder, run.recipe, run.source_tokenizer, run.tokenizer, model.eval())


def links(run: TranslationRun, sides: Sequence[tuple[list[str], list[str]]]) -> Links:
    """For each target word the source word that the step predicting it looks at most, while it reads the reference."""
    sources = [run.source_tokenizer.encode(" ".join(source)) for source, _ in sides]
    targets = [[*run.tokenizer.encode(" ".join(target)), run.tokenizer.eos] for _, target in sides]
    found = []
    for (source, target), seen in zip(sides, explain_hypotheses(run.model, sources, targets, eos=run.tokenizer.eos)):
        assert seen.alignment is not None
        assert seen.alignment.shape == (len(target) + 1, len(source) + 1)
        found.append({(int(row[:-1].argmax()), place) for place, row in enumerate(seen.alignment[:-1])})
    return found


def figure(learned: Sequence[float], diagonal: float, model1: float) -> Intervals:
    seen = Mark("attention, from the best seed to the worst", mean(learned), min(learned), max(learned))
    others = [Mark("diagonal", diagonal, diagonal, diagonal), Mark("IBM model 1", model1, model1, model1)]
    return Intervals("Alignment error on reordered pairs", "alignment error rate", [seen, *others])


def heat(run: TranslationRun) -> Heat:
    """Where each word of an example looks."""
    source, target = (side.split() for side in EXAMPLE)
    ids = run.source_tokenizer.encode(EXAMPLE[0]), [*run.tokenizer.encode(EXAMPLE[1]), run.tokenizer.eos]
    (seen,) = explain_hypotheses(run.model, [ids[0]], [ids[1]], eos=run.tokenizer.eos)
    assert seen.alignment is not None
    columns, rows = [*source, "<eos>"], [*target, "<eos>"]
    return Heat(
        "Where each word looks",
        rows,
        columns,
        seen.alignment.tolist(),
        x="source",
        y="target",
        z="weight",
        low=0,
        high=1,
    )


def worked() -> list[Worked]:
    """The notes' two pairs: word by word, and five words to three."""
    dog = (cut("The dog ran really fast"), cut("El perro corrió muy rápido"))
    love = (cut("I love you a lot"), cut("Te amo mucho"))
    straight = {(n, n) for n in range(len(dog[0]))}
    meant = {(2, 0), (0, 1), (1, 1), (3, 2), (4, 2)}  # you → Te, I love → amo, a lot → mucho
    right = alignment_error_rate([straight], [diagonal_links(len(dog[0]), len(dog[1]))])
    wrong = alignment_error_rate([meant], [diagonal_links(len(love[0]), len(love[1]))])
    return [
        Worked("The dog ran really fast → El perro corrió muy rápido: error of the diagonal", "☺", f"{right:.2f}",
               right == 0, "001:78–82"),
        Worked("I love you a lot → Te amo mucho: error of the diagonal", "☹", f"{wrong:.2f}", wrong > 0.5, "001:84–88"),
        Worked("words of I love you a lot and of Te amo mucho", "5 vs 3", f"{len(love[0])} vs {len(love[1])}",
               (len(love[0]), len(love[1])) == (5, 3), "001:90"),
    ]  # fmt: skip


OVER_DIAGONAL = "diagonal's alignment error minus attention's, reordered pairs"
OVER_IBM = "IBM model 1's alignment error minus attention's, reordered pairs"
SAME = "attention's alignment error, pairs that are word by word"
UNTRAINED = "diagonal's alignment error minus that of attention before it is trained, reordered pairs"

CLAIM = Claim(
    name="alignment",
    number="C18",
    kinds=("measured",),
    quote="Neural Machine Translation by Jointly Learning to Align and Translate",
    where="004:75",
    statement="On pairs whose words stand in another order, the links that attention learns have a lower error rate "
    "than the diagonal's and than IBM model 1's.",
    conditions=f"bahdanau of width 48, {STEPS} steps on the phrasebook's sentences of at most {LONGEST} words made of "
    f"its {COMMON} commonest words; held-out pairs with crossing links, against the grammar's gold alignment; one link "
    "for each target word, read at the step that predicts it. IBM model 1 is fitted to the same pairs and the held-out "
    "ones.",
    control_words="On pairs that are word by word, attention gives the diagonal; and before it is trained, its links "
    "are worse than the diagonal.",
    breaks="Attention is taught to predict, not to align: it may look beside the word it translates, whose neighbours' "
    "vectors know of it, too, and a query that has not read the last word cannot know what comes next. Model 1 is "
    "taught nothing but which words go together, which is nearly all there is to know where each occurs once.",
    expected=(Expect(OVER_DIAGONAL, "at least", 0.0), Expect(OVER_IBM, "at least", 0.0)),
    control=(Expect(SAME, "at most", 0.2), Expect(UNTRAINED, "at most", 0.0)),
    experiment=experiment,
    seeds=10,
    worked=worked,
    quick_seeds=4,
    quick_words=f"4 seeds, sentences of the {QUICK_COMMON} commonest words, {QUICK_STEPS} steps",
    cost=170.0,
)
