"""C18, alignment: a translator that attends learns which word comes from which, also where the order differs.

    link of y_t = argmax_s α(s_{t-1}, h_s)        read at the step that predicts y_t, not at the one that reads it
    relevant      log P(y_t | x) − log P(y_t | x without the word that y_t is linked with), less that of the other words

It is compared with the diagonal (each word comes from the one at the same position), which needs no learning, and with
IBM model 1 (Brown et al. 1993), which learns word pairs from the same training data and ignores order and context: it
cannot tell two occurrences of a word apart, and so takes the one that is nearer to the diagonal. A third translator,
word by word, is the notes' RNN that smiles and frowns: it writes y_t when it has read x_t. Sentences are the
phrasebook's, with their gold alignment; error rates are Och & Ney's, over all links of a set of sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from random import Random
from statistics import mean

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.base.word_spans import find_words
from regard.claims import corpora
from regard.claims.claim import SECOND_LOOK, Claim, Evidence, Expect, Trial, Worked
from regard.claims.models import trained
from regard.corpora.phrasebook import Pair, make_pairs
from regard.decoding.beam import GREEDY_BEAM
from regard.decoding.translate import explain_hypotheses
from regard.evaluation.alignment_error import (
    Link,
    Table,
    alignment_error_rate,
    diagonal_links,
    translation_table,
)
from regard.report.figures import Heat, Intervals, Mark
from regard.runs.store.folder import Tokenizers, build_model
from regard.runs.tasks.translation.run import TranslationRun
from regard.systems.translator import Translator

MADE, MAX_WORDS, HELD_OUT, PROBED = 30_000, 8, 400, 60
DOUBLED = 60  # further held-out pairs with a repeated word, which is rare in the others
WIDTH, RATE = 48, 8e-3
COMMON, STEPS = 400, 2000  # words the sentences are made of, and steps of training
QUICK_COMMON, QUICK_STEPS = 250, 1000
EXAMPLE = "do not give it to his sister", "ne le donnez pas à sa sœur"
Links = list[set[Link]]


def experiment(trial: Trial) -> Evidence:
    pairs = sentences(QUICK_COMMON if trial.quick else COMMON)
    held, rest = pairs[: HELD_OUT + DOUBLED], pairs[HELD_OUT + DOUBLED :]
    sides = [(cut(pair.source), cut(pair.target)) for pair in held]
    gold = [set(pair.alignment) for pair in held]
    moved = [n for n, pair in enumerate(held[:HELD_OUT]) if crosses(pair)]
    same = [n for n in range(HELD_OUT) if gold[n] == {(w, w) for w in range(len(sides[n][0]))}]
    twice = [(n, place) for n in range(len(held)) for place in repeated(sides[n][0], gold[n])]
    diagonal = [diagonal_links(len(source), len(target)) for source, target in sides]
    table = translation_table([cut(pair.source) for pair in rest], [cut(pair.target) for pair in rest])
    counted = [near_diagonal(table, source, target) for source, target in sides]

    def error(links: Links, which: Sequence[int]) -> float:
        return alignment_error_rate([gold[n] for n in which], [links[n] for n in which])

    def told_apart(links: Links) -> float:
        return mean((link in gold[n]) for n, place in twice for link in links[n] if link[1] == place)

    plain, model1 = error(diagonal, moved), error(counted, moved)
    measured: dict[str, list[float]] = {quantity: [] for quantity in QUANTITIES}
    learned: list[float] = []
    for seed in trial.seeds:
        run = learn(trial, pairs, seed)
        fresh = untrained(run, seed)
        looked, first = looks(run, sides), looks(fresh, sides)
        aligned, at_first = links(looked), links(first)
        learned.append(error(aligned, moved))
        some = moved[:PROBED]
        mapper = word_by_word(pairs, seed, QUICK_STEPS if trial.quick else STEPS)
        stepwise = {name: mean(mapper(*sides[n]) for n in which) for name, which in (("same", same), ("moved", moved))}
        whole = {name: translated(run, [sides[n] for n in which]) for name, which in (("same", same), ("moved", moved))}
        needed = relevance(run, sides, aligned, some)
        for quantity, value in {
            OVER_DIAGONAL: plain - learned[-1],
            FOCUS: focus(looked, gold, moved),
            RELEVANT: needed,
            OVER_PLACE: needed - relevance(run, sides, diagonal, some),
            CONTEXT: told_apart(aligned) - told_apart(counted),
            CONTEXT_OVER_DIAGONAL: told_apart(aligned) - told_apart(diagonal),
            SMILES: stepwise["same"],
            FROWNS: stepwise["same"] - stepwise["moved"],
            SAME: error(aligned, same),
            UNTRAINED: plain - error(at_first, moved),
            UNFOCUSED: focus(first, gold, moved),
            NOT_NEEDED: relevance(run, sides, at_first, some),
            CONTEXT_AT_FIRST: told_apart(at_first) - told_apart(counted),
            WHOLE: whole["same"] - whole["moved"],
            OVER_IBM: model1 - learned[-1],
        }.items():
            measured[quantity].append(value)
        trial.step(f"seed {seed}")
    rows = {"attention": (mean(learned), mean(measured[SAME])), "diagonal": (plain, error(diagonal, same))}
    rows |= {"IBM model 1": (model1, error(counted, same))}
    errors = tuple({"links": name, "reordered pairs": one, "same order": two} for name, (one, two) in rows.items())
    remark = (
        f"Of {len(held)} held-out pairs, {len(moved)} have crossing links and {len(same)} are word by word. "
        f"{len(twice)} words come from a source word that occurs twice; the share that IBM model 1 links correctly is "
        f"{told_apart(counted):.2f}, and the diagonal's is {told_apart(diagonal):.2f}."
    )
    return Evidence(measured, (figure(learned, plain, model1), heat(run)), (remark,), errors)


def near_diagonal(table: Table, source: Sequence[str], target: Sequence[str]) -> set[Link]:
    """IBM model 1's links; of equally probable source words, as two occurrences of one are, the one nearest to the
    diagonal."""
    links = set()
    for place, word in enumerate(target):
        chances = [table.get((other, word), 0.0) for other in source]
        middle = (place + 0.5) * len(source) / len(target) - 0.5
        best = (n for n, chance in enumerate(chances) if chance == max(chances))
        links.add((min(best, key=lambda n: abs(n - middle)), place))
    return links


def repeated(source: Sequence[str], gold: Iterable[Link]) -> list[int]:
    """The target words that come from a source word that occurs twice in the sentence."""
    of: dict[int, list[int]] = {}
    for word, place in gold:
        of.setdefault(place, []).append(word)
    return [place for place, words in sorted(of.items()) if len(words) == 1 and source.count(source[words[0]]) > 1]


@cache
def sentences(common: int) -> list[Pair]:
    """Pairs of the phrasebook's most common English words in random order: first the held-out ones, the last of which
    repeat a word, then those to train on."""
    made = list(make_pairs(MADE, seed=0, longest=MAX_WORDS))
    counts = Counter(word for pair in made for word in cut(pair.source))
    known = {word for word, _ in counts.most_common(common)}
    chosen = [pair for pair in made if known.issuperset(cut(pair.source))]
    random = Random("alignment")
    mixed = [chosen[n] for n in sorted(range(len(chosen)), key=lambda _: random.random())]
    rest = mixed[HELD_OUT:]
    doubled = [pair for pair in rest if repeated(cut(pair.source), pair.alignment)][:DOUBLED]
    return [*mixed[:HELD_OUT], *doubled, *(pair for pair in rest if pair not in doubled)]


def cut(sentence: str) -> list[str]:
    """The words that gold links count, in small letters and without apostrophes: a token for each."""
    return [sentence[start:end].lower().strip("'’") for start, end in find_words(sentence)]


def crosses(pair: Pair) -> bool:
    return any((s - other_s) * (t - other_t) < 0 for s, t in pair.alignment for other_s, other_t in pair.alignment)


def learn(trial: Trial, pairs: Sequence[Pair], seed: int, system: str = "bahdanau") -> TranslationRun:
    rows = [f"{' '.join(cut(pair.source))}\t{' '.join(cut(pair.target))}" for pair in pairs]
    splits = {"train": rows[HELD_OUT + DOUBLED :], "valid": rows[: HELD_OUT // 2], "test": rows[:HELD_OUT]}
    steps = QUICK_STEPS if trial.quick else STEPS
    return trained(
        TranslationRun,
        system,
        corpora.keep("reordered", splits, "tsv", trial.store),
        seed=seed,
        size="tiny",
        store=trial.store,
        settings={
            "data": {"tokenizer": "word", "joint": False},
            "model": {"cell": "gru", "layers": 1, "width": WIDTH, "embedding": 32, "dropout": 0.0},
            "training": {
                "steps": steps, "learning_rate": RATE, "schedule": "cosine", "warmup": 100, "batch_tokens": 768,
                "label_smoothing": 0.0, "evaluate_every": steps, "checkpoint_every": steps, "patience": 0, "keep": 0,
                "threads": 1, "device": trial.device,
            },
        },
    )  # fmt: skip


def untrained(run: TranslationRun, seed: int) -> TranslationRun:
    """The same before its first step."""
    torch.manual_seed(seed)
    model = build_model(run.recipe, Tokenizers(run.tokenizer, run.source_tokenizer))
    assert isinstance(model, Translator)
    return TranslationRun(run.folder, run.recipe, run.source_tokenizer, run.tokenizer, model.eval())


def looks(run: TranslationRun, sides: Sequence[tuple[list[str], list[str]]]) -> list[np.ndarray]:
    """For each pair the weights [target, source + end] of the steps that predict the target, under teacher forcing."""
    sources = [run.source_tokenizer.encode(" ".join(source)) for source, _ in sides]
    targets = [[*run.tokenizer.encode(" ".join(target)), run.tokenizer.eos] for _, target in sides]
    matrices = []
    for (source, target), seen in zip(sides, explain_hypotheses(run.model, sources, targets, eos=run.tokenizer.eos)):
        assert seen.alignment is not None
        assert seen.alignment.shape == (len(target) + 1, len(source) + 1)
        matrices.append(np.asarray(seen.alignment[:-1]))
    return matrices


def links(looked: Sequence[np.ndarray]) -> Links:
    """For each target word the source word that the step predicting it looks at most."""
    return [{(int(row[:-1].argmax()), place) for place, row in enumerate(weights)} for weights in looked]


def focus(looked: Sequence[np.ndarray], gold: Links, which: Sequence[int]) -> float:
    """The mean share of weight that a step gives to the source words of its prediction."""
    shares = []
    for n in which:
        linked = np.zeros_like(looked[n])
        for source, target in gold[n]:
            linked[target, source] = 1
        shares += (looked[n] * linked).sum(1).tolist()
    return mean(shares)


@torch.no_grad()
def relevance(
    run: TranslationRun, sides: Sequence[tuple[list[str], list[str]]], links: Links, which: Sequence[int]
) -> float:
    """Nats that a target word loses when the source word it is linked with becomes unknown, minus the loss when
    another one does; the mean over target words."""
    gains, unknown = [], run.source_tokenizer.unk
    assert unknown is not None
    for n in which:
        source, target = sides[n]
        ids = [*run.source_tokenizer.encode(" ".join(source)), run.source_tokenizer.eos]
        hidden = torch.tensor([ids] * (len(source) + 1))
        hidden[:-1].fill_diagonal_(unknown)
        written = [run.tokenizer.eos, *run.tokenizer.encode(" ".join(target))]
        tokens = torch.tensor([written] * len(hidden), device=run.model.device)
        logits, _ = run.model(tokens[:, :-1], run.model.begin(hidden.to(run.model.device)))
        chances = logits.log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]  # [source + 1, target]
        lost = (chances[-1] - chances[:-1]).cpu()  # the loss without each source word
        for word, place in links[n] if len(source) > 1 else ():
            others = [other for other in range(len(source)) if other != word]
            gains.append(float(lost[word, place] - lost[others, place].mean()))
    return mean(gains)


# -- word by word ----------------------------------------------------------------------------------------------------


def word_by_word(pairs: Sequence[Pair], seed: int, steps: int) -> Callable[[list[str], list[str]], float]:
    """A GRU that writes the word at a place when it has read the one at that place, trained on all but the held-out
    pairs: what share of the places it gets right. After the source's end it reads <eos>."""
    torch.manual_seed(seed)
    taught = [(cut(pair.source), cut(pair.target)) for pair in pairs[HELD_OUT + DOUBLED :]]
    known, written = (
        {word: n for n, word in enumerate(dict.fromkeys(w for side in taught for w in side[which]), start=1)}
        for which in (0, 1)
    )

    def numbered(source: list[str], target: list[str]) -> tuple[Tensor, Tensor]:
        """0 is <eos>, and a word that the training pairs do not have."""
        room = max(len(source), len(target)) + 1
        rows = ([table.get(word, 0) for word in side] for table, side in ((known, source), (written, target)))
        given, wanted = (torch.tensor([*row, *[0] * (room - len(row))]) for row in rows)
        return given, wanted

    read = nn.Embedding(len(known) + 1, WIDTH)
    step, show = nn.GRU(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, len(written) + 1)
    weights = [*read.parameters(), *step.parameters(), *show.parameters()]
    optimiser = torch.optim.Adam(weights, lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
    given, wanted = (nn.utils.rnn.pad_sequence(list(side), batch_first=True)
                     for side in zip(*(numbered(*pair) for pair in taught)))  # fmt: skip
    for _ in range(steps):
        chosen = torch.randint(len(given), (64,))
        logits = show(step(read(given[chosen]))[0])
        loss = F.cross_entropy(logits.flatten(0, 1), wanted[chosen].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    names = ["", *written]

    @torch.no_grad()
    def right(source: list[str], target: list[str]) -> float:
        given, _ = numbered(source, target)
        best = show(step(read(given[None]))[0])[0].argmax(-1).tolist()
        return in_place([names[n] for n in best if n], target)

    return right


def translated(run: TranslationRun, sides: Sequence[tuple[list[str], list[str]]]) -> float:
    """The share of places that a greedy translation gets right."""
    written = run.translations([" ".join(source) for source, _ in sides], beam=GREEDY_BEAM)
    return mean(in_place(best.text.split(), target) for (best, *_), (_, target) in zip(written, sides, strict=True))


def in_place(written: Sequence[str], target: Sequence[str]) -> float:
    return sum(one == other for one, other in zip(written, target)) / max(len(written), len(target))


def figure(learned: Sequence[float], diagonal: float, model1: float) -> Intervals:
    seen = Mark("attention, from the best seed to the worst", mean(learned), min(learned), max(learned))
    others = [Mark("diagonal", diagonal, diagonal, diagonal), Mark("IBM model 1", model1, model1, model1)]
    return Intervals("Alignment error on reordered pairs", "alignment error rate", [seen, *others])


def heat(run: TranslationRun) -> Heat:
    """The attention of each word of an example."""
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
FOCUS = "share of attention's weight on the source of the predicted word, reordered pairs"
RELEVANT = "loss without the most attended word minus loss without another, nats per word, reordered pairs"
OVER_PLACE = "loss without the most attended word minus loss without the word at the same place, nats per word"
CONTEXT = "share of correct links for words whose source word occurs twice, attention minus IBM model 1"
CONTEXT_OVER_DIAGONAL = "share of correct links for words whose source word occurs twice, attention minus diagonal"
SMILES = "share of correct words, word-by-word RNN, pairs that are word by word"
FROWNS = "share of correct words, word-by-word RNN, pairs in the same order minus reordered pairs"
SAME = "attention's alignment error, pairs that are word by word"
UNTRAINED = "diagonal's alignment error minus that of attention before training, reordered pairs"
UNFOCUSED = "share of attention's weight on the source of the predicted word, before training"
NOT_NEEDED = "loss without the word most attended before training minus loss without another, nats per word"
CONTEXT_AT_FIRST = "share of correct links for words that occur twice, attention before training minus IBM model 1"
WHOLE = "share of correct words, attention, pairs in the same order minus reordered pairs"
OVER_IBM = "IBM model 1's alignment error minus attention's, reordered pairs"
QUANTITIES = (
    OVER_DIAGONAL, FOCUS, RELEVANT, OVER_PLACE, CONTEXT, CONTEXT_OVER_DIAGONAL, SMILES, FROWNS, SAME, UNTRAINED,
    UNFOCUSED, NOT_NEEDED, CONTEXT_AT_FIRST, WHOLE, OVER_IBM,
)  # fmt: skip
ORDER, ONLY, TWICE, FACES = "alignment", "only what matters", "context", "RNN ☺ / ☹"

CLAIM = Claim(
    name="alignment",
    number="C18",
    kinds=("measured",),
    quote="Learning to Align … The model aligns (attends) only to parts of the input sequence that are considered "
    "relevant to the current prediction. … The dog ran really fast RNN: ☺ … I love you a lot RNN: ☹ … mixed order … "
    "need whole context",
    where="004:204; 001:78–95",
    statement="On pairs whose words are in a different order, attention's links have a lower error rate than the "
    "diagonal's. Most of its weight is on the words that the predicted one comes from, and the prediction needs "
    "these words. If a word occurs twice, it identifies the right occurrence from context, better than word pairs "
    "and positions do. An RNN that translates word by word does well where the order is the same and worse where "
    "it is "
    "not.",
    conditions=(
        f"bahdanau of width {WIDTH}, trained for {STEPS} steps on the phrasebook's sentences of at most {MAX_WORDS} "
        f"words, made of its {COMMON} most common words. On held-out pairs with crossing links, its links are "
        "compared with the grammar's gold alignment; each target word has one link, read at the step that predicts "
        f"it. To test which words the prediction needs, a source word is replaced by <unk> ({PROBED} pairs). IBM "
        "model 1 is fitted to the training pairs alone and always gives a link; of two occurrences of a word, it "
        "links the one nearer to the diagonal. The word-by-word translator is a GRU of the same width, trained for "
        "as many steps."
    ),
    control_words=(
        "On pairs that are word by word, attention gives the diagonal. Before training, its links are worse than "
        "the diagonal, its weight is spread, the word with the largest weight is not needed, and for words that "
        "occur twice it knows no more than IBM model 1. Attention translates reordered pairs nearly as well as the "
        "others, so these are not simply the harder ones."
    ),
    breaks=(
        "Attention is trained to predict, not to align. It may look next to the word that it translates, because "
        "the neighbors' vectors also contain information about that word, and a query that has not read the last "
        "word cannot know what comes next. IBM model 1 learns only which words go together, which is nearly all "
        "there is to know if each word occurs once; of two occurrences, the one nearer to the diagonal is usually "
        "right."
    ),
    expected=(
        Expect(OVER_DIAGONAL, "at least", 0.0, part=ORDER),
        Expect(FOCUS, "at least", 0.5, part=ONLY),
        Expect(RELEVANT, "at least", 0.5, part=ONLY),
        Expect(OVER_PLACE, "at least", 0.5, part=ONLY),
        Expect(CONTEXT, "at least", 0.1, part=TWICE),
        Expect(CONTEXT_OVER_DIAGONAL, "at least", 0.1, part=TWICE),
        Expect(SMILES, "at least", 0.6, part=FACES),
        Expect(FROWNS, "at least", 0.2, part=FACES),
    ),
    control=(
        Expect(SAME, "at most", 0.2, part=ORDER),
        Expect(UNTRAINED, "at most", 0.0, part=ORDER),
        Expect(UNFOCUSED, "at most", 0.3, part=ONLY),
        Expect(NOT_NEEDED, "at most", 0.5, part=ONLY),
        Expect(CONTEXT_AT_FIRST, "at most", 0.0, part=TWICE),
        Expect(WHOLE, "at most", 0.2, part=FACES),
    ),
    besides=(Expect(OVER_IBM, "at least", 0.0),),
    experiment=experiment,
    seeds=10,
    first_seed=SECOND_LOOK,
    worked=worked,
    quick_seeds=3,
    quick_words=f"3 seeds, sentences of the {QUICK_COMMON} commonest words, {QUICK_STEPS} steps",
    cost=350.0,
)
