"""What no quick run shows: what the full form of an experiment trains and times, and what it makes of the seconds."""

import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import regard.claims
from regard.claims import (
    alignment,
    any_b,
    bottleneck,
    classification,
    corpora,
    embeddings,
    forget_gate,
    forgetting,
    importance,
    induction,
    language_models,
    long_sentences,
    models,
    no_waiting,
    parameters,
    recall,
    remedies,
    runner,
    scaling,
    source_digest,
    teacher_forcing,
    waiting,
)
from regard.claims.claim import Trial
from regard.layers.attention import FullSelfAttention
from regard.report.figures import Lines
from regard.systems.catalogue import load_class, load_module

BOTH_FORMS = pytest.mark.parametrize("quick", [True, False])


class Asked(Exception):
    """Ends an experiment where it would begin to train; holds what was asked for."""


def asked(monkeypatch, module, name, call):
    def noting(*given, **named):
        raise Asked(given, named)

    monkeypatch.setattr(module, name, noting)
    with pytest.raises(Asked) as stopped:
        call()
    return stopped.value.args


# -- what is trained -------------------------------------------------------------------------------------------------


@BOTH_FORMS
@pytest.mark.parametrize(
    ("module", "learner", "begin"),
    [
        (forget_gate, "learn", lambda trial: forget_gate.experiment(trial)),
        (induction, "learn", lambda trial: induction.experiment(trial)),
        (importance, "learned", lambda trial: importance.experiment(trial)),
        (teacher_forcing, "learn", lambda trial: teacher_forcing.one_seed(trial, 7)),
    ],
    ids=lambda one: getattr(one, "__name__", "").rpartition(".")[2],
)
def test_a_form_trains_for_its_own_number_of_steps(module, learner, begin, quick, monkeypatch):
    monkeypatch.setattr(importance, "encoded", lambda: (None, []))
    given, _ = asked(monkeypatch, module, learner, lambda: begin(Trial((7,), quick, knobs={"q": 0.0})))
    assert 7 in given
    assert (module.STEPS if not quick else module.QUICK_STEPS) in given


@BOTH_FORMS
def test_words_copied_and_letters_held_are_as_many_as_the_form_says(quick, monkeypatch):
    trial, lengths = Trial((7,), quick, knobs={"width": 8.0}), {}
    for task in ("strings", "sentences"):
        ((lengths[task],), _) = asked(monkeypatch, bottleneck, task, partial(bottleneck.one_seed, trial, 7, task))
    longest = (bottleneck.MAX_LETTERS, bottleneck.MAX_WORDS)
    assert tuple(lengths.values()) == ((bottleneck.QUICK_LENGTH,) * 2 if quick else longest)
    (kind, seed, steps), _ = asked(monkeypatch, forgetting, "learn", lambda: forgetting.one_training(trial, 7))
    whole = forgetting.TRAINED["tanh network"]
    assert (kind, seed, steps) == (whole[0], 7, whole[1] // 10 if quick else whole[1])
    seeds = tuple(range(501, 520))
    (given, _), _ = asked(monkeypatch, forgetting, "each_seed", lambda: forgetting.remembered(Trial(seeds, quick), {}))
    assert given.seeds == seeds[: forgetting.QUICK_TRAININGS if quick else forgetting.TRAININGS]


@BOTH_FORMS
@pytest.mark.parametrize(
    ("module", "begin", "steps"),
    [
        (language_models, lambda trial: language_models.reader(trial, "gpt", 7), "STEPS"),
        (alignment, lambda trial: alignment.learn(trial, [], 7), "STEPS"),
        (classification, lambda trial: classification.classifier(trial, "lstm", 7), "STEPS"),
        (embeddings, lambda trial: embeddings.real_reader(trial, "kept", 7), "REAL_STEPS"),
        (long_sentences, lambda trial: long_sentences.learn(trial, 7, "seq2seq"), "STEPS"),
    ],
    ids=lambda one: getattr(one, "__name__", "").rpartition(".")[2],
)
def test_a_trained_run_is_of_its_form_seed_device_and_store_and_is_validated_at_its_end(
    module, begin, steps, quick, monkeypatch, tmp_path
):
    monkeypatch.setattr(corpora, "keep", lambda name, splits, ending, store: "kept" * (store == tmp_path))
    monkeypatch.setitem(language_models.TEXTS, "sentences", dict)
    monkeypatch.setattr(classification.known_grammar, "agreement", dict)
    monkeypatch.setattr(long_sentences, "sentences", dict)
    trial = Trial((7,), quick, device="cuda", store=tmp_path)
    (_, _, data), given = asked(monkeypatch, module, "trained", lambda: begin(trial))
    assert (data, given["seed"], given["store"], given["size"]) == ("kept", 7, tmp_path, "tiny")
    training = given["settings"]["training"]
    wanted = getattr(module, "QUICK_STEPS" if quick else steps)
    assert [training[name] for name in ("steps", "evaluate_every", "checkpoint_every")] == [wanted] * 3
    assert (training["threads"], training["device"]) == (1, "cuda")


@BOTH_FORMS
def test_any_b_is_learned_from_the_distances_of_its_form_and_never_where_the_b_is_hidden(quick, monkeypatch):
    trained, capable, gradients = [], [], []

    def learns(system, distance, seed, steps, *, hidden=False):
        trained.append((system, distance, seed, steps, hidden))
        return distance < 50

    monkeypatch.setattr(any_b, "learns", learns)
    monkeypatch.setattr(any_b, "right_at_length_1000", lambda *given: capable.append(given) or True)
    monkeypatch.setattr(any_b, "first_gradient", lambda *given: gradients.append(given) or len(gradients))
    monkeypatch.setattr(any_b, "identities", lambda trial: {})
    measured = any_b.experiment(Trial((7,), quick, knobs={"q": 1.0, "base": 3.0})).measured
    far, steps = (100, 200) if quick else (1000, 400)
    distances = dict.fromkeys(("rnn", "dan", "self-attention"), (5, far) if quick else (5, 10, 20, 40, 100, 1000))
    distances |= {} if quick else {"lstm": (5, 10, 20, 40, 100)}
    wanted = [(name, distance, 7, steps, False) for name, each in distances.items() for distance in each]
    assert sorted(trained) == sorted([*wanted, ("self-attention", far, 7, steps, True)])
    assert capable == [("rnn", 7, 400)]
    assert gradients == [("rnn", 1000, 7), ("self-attention", 1000, 7)]
    assert (measured[any_b.RNN_GRADIENT], measured[any_b.ATTENTION_GRADIENT]) == ([1], [2])
    assert (measured[any_b.RNN_NEAR], measured[any_b.RNN_FAR], measured[any_b.CAPABLE]) == ([1.0], [0.0], [1.0])


@BOTH_FORMS
def test_lengths_of_the_exact_claims_are_those_of_the_form(quick, monkeypatch):
    at = []
    monkeypatch.setattr(recall, "difference", lambda layer, length, forgets=False: at.append((length, forgets)) or 0.0)
    monkeypatch.setattr(recall, "recalled", lambda kind, pairs, seed: 0.5)
    monkeypatch.setattr(recall, "growth", lambda layer, length: 0.0)
    recall.experiment(Trial((7,), quick))
    lengths = recall.QUICK_LENGTHS if quick else recall.LENGTHS
    assert at == [(length, False) for _ in range(3) for length in lengths] + [(lengths[0], True)]
    monkeypatch.setattr(parameters, "reader", lambda name, length: (name, length))
    monkeypatch.setattr(parameters, "at_work", lambda model, length: 3 * length if "nnlm" in model else 7)
    monkeypatch.setattr(parameters, "first_word", lambda model, length: float(model[1] >= length))
    monkeypatch.setattr(parameters, "reversal", lambda model, length: 1.0)
    found = parameters.experiment(Trial((7,), quick))
    longest = 64 if quick else 256
    assert [name for name in found.table[0] if name != "model"][-1] == str(longest)
    assert found.measured[parameters.WINDOW] == [3.0]
    assert set(found.measured[parameters.SEEN]) == {1.0}
    assert found.measured[parameters.UNSEEN] == [0.0]  # a window that is one word too short


def test_the_gpt_of_scaling_is_compared_with_itself_at_its_initialization(monkeypatch):
    tokenizer = SimpleNamespace(encode=lambda text: [n % 11 for n in range(len(text.split()))])
    settings = load_module("gpt").Settings(layers=1, width=8, heads=2, context=32, dropout=0.0)
    torch.manual_seed(5)
    trained = load_class("gpt")(11, settings).eval()
    given = {}
    monkeypatch.setattr(
        scaling, "trained",
        lambda *what, **how: given.update(how) or SimpleNamespace(tokenizer=tokenizer, model=trained),
    )  # fmt: skip
    torch.manual_seed(9)
    rows = scaling.in_a_model(Trial((7,)))
    torch.manual_seed(1)
    fresh, tokens = load_class("gpt")(11, settings).eval(), torch.tensor([tokenizer.encode(scaling.LINES)])
    wanted = [
        {"gpt": name, **row}
        for name, model in (("at initialization", fresh), ("after 300 steps", trained))
        for row in scaling.heads(model, tokens)
    ]
    assert list(rows) == wanted
    assert f"after {given['settings']['training']['steps']} steps" == rows[-1]["gpt"]


# -- clocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(4), ids=["quick", "quick on a GPU", "full", "full on a GPU"])
@pytest.mark.parametrize("module", [waiting, no_waiting])
def test_the_longest_text_that_is_timed_is_that_of_the_claims_words_and_long_ones_are_timed_less_often(
    module, place, monkeypatch
):
    device, quick = ("cpu", "cuda")[place % 2], place < 2
    longest = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\d", module.CLAIM.quick_words)][place]
    calls, notes = [], []

    def measure(task, model, length):
        calls.append((task.__name__, *model, length))
        return length / 1024

    monkeypatch.setattr(module, "pick_device", torch.device)
    monkeypatch.setattr(module, "make", lambda system, where: (system, where.type))
    monkeypatch.setattr(module, "measure", measure)
    found = module.timing(Trial((1,), quick, device, step=notes.append))

    def lengths(most):
        return [2**power for power in range(5, 17) if 2**power <= most]

    wanted, said = [], []
    tasks = {"train": ("training", longest)}
    if module is waiting:
        tasks["write"] = "generating", waiting.MAX_WORDS[device, quick][1]
    for task, (words, most) in tasks.items():
        for system in module.TIMED:
            wanted.append((task, system, device, 32))  # a first time, which is not counted
            for repetition in range(5):
                often = [length for length in lengths(most) if repetition * length / 1024 < 6]  # seconds until then
                wanted += [(task, system, device, length) for length in often]
                said.append(f"{system}, {words}, repetition {repetition + 1}" if module is waiting
                            else f"{system}, repetition {repetition + 1}")  # fmt: skip
    assert calls == wanted
    assert notes == said
    if module is waiting:
        timed, figure = found
        assert [line.name for line in figure.lines] == ["lstm, training", "gpt, training", "lstm, generating",
                                                        "gpt, generating"]  # fmt: skip
        assert figure.lines[0].points[-1] == (longest, longest / 1024)
        found = {system: timed[system, "train"] for system in module.TIMED}
    for by_length in found.values():
        assert {length: len(seconds) for length, seconds in by_length.items()} == {
            length: sum(repetition * length / 1024 < 6 for repetition in range(5)) for length in lengths(longest)
        }


@pytest.mark.parametrize(
    ("durations", "taken"),
    [
        ([0.06, 0.01], 1),
        ([0.05, 0.01], 1),
        ([0.03, 0.01, 0.02, 0.001], 3),
        ([0.004, 0.002, 0.003, 0.005, 0.004, 0.001], 5),
    ],
)
def test_short_work_is_timed_a_few_times_and_the_shortest_time_counts(durations, taken, monkeypatch):
    clock, done = [10.0], []

    def task(model, length):
        clock[0] += durations[len(done)]
        done.append(length)

    monkeypatch.setattr(waiting, "now", lambda device: clock[0])
    assert waiting.measure(task, SimpleNamespace(device="cpu"), 64) == pytest.approx(min(durations[:taken]))
    assert done == [64] * taken


def test_what_is_timed_is_one_text_forward_and_backward_or_written_word_by_word(monkeypatch):
    done = []

    class Model:
        device = torch.device("cpu")
        weight = torch.ones(3, requires_grad=True)

        def train(self):
            done.append("train")

        def loss(self, tokens, targets):
            done.append((tuple(tokens.shape), tuple(targets.shape), torch.equal(tokens[:, 1:], targets[:, :-1])))
            return self.weight, None

        def zero_grad(self):
            done.append(self.weight.grad.tolist())

    waiting.train(Model(), 9)
    assert done == ["train", ((1, 9), (1, 9), True), pytest.approx([1 / 3] * 3)]
    asked = {}
    monkeypatch.setattr(waiting, "generate", lambda *given, **named: asked.update(named, given=given) or iter([1]))
    waiting.write("model", 9)
    assert (asked["given"], asked["max_tokens"], asked["eos"]) == (("model", [[0]]), 9, 0)


WILD = [5.0, 0.1]  # seconds of lengths that must not count


def test_exponents_are_fitted_to_the_four_longest_texts_by_repetitions_that_timed_them_all():
    times = {32: WILD, 64: WILD, 128: [1.0, 2.0, 9.0], 256: [2.0, 8.0, 9.0], 512: [4.0, 32.0, 9.0], 1024: [8.0, 128.0]}
    assert no_waiting.exponents(times) == pytest.approx([1.0, 2.0])
    assert no_waiting.exponents({**times, 2048: [16.0]}) == pytest.approx([1.0])


def test_the_gain_of_a_minimal_gru_is_that_of_medians_at_the_longest_text(monkeypatch):
    timed = {
        "gru": {32: [1.0, 1.0], 64: [20.0, 4.0, 6.0]},
        "gpt": {32: [1.0, 1.0], 64: [1.0, 4.0, 1.5]},
        "mingru": {32: [1.0, 1.0], 64: [2.0, 4.0, 3.0]},
    }
    monkeypatch.setattr(no_waiting, "COUNTED", (2, 4, 8))
    monkeypatch.setattr(no_waiting, "timing", lambda trial: timed)
    evidence = no_waiting.experiment(Trial((1,)))
    measured = evidence.measured
    assert measured[no_waiting.RATIO] == [2.0]
    assert [measured[no_waiting.EXPONENTS[system]][0] for system in timed] == pytest.approx(
        [np.log2(20), 0.0, 1.0], abs=1e-9
    )
    assert measured[no_waiting.LEVELS] == [0.0, 0.0]
    assert len(measured[no_waiting.FLAT]) == 1
    assert len(measured[no_waiting.WAITS]) == len(measured[no_waiting.WRITING]) == 2
    assert evidence.remarks == ("One text of 64 words, forward and backward: gru 6 s, gpt 1.5 s, mingru 3 s.",)
    rows = {row["longest chain, or seconds"]: row for row in evidence.table}
    assert list(rows) == ["gru, operations", "mingru, operations", "mingru, word by word, operations",
                          "gru, seconds", "gpt, seconds", "mingru, seconds"]  # fmt: skip
    assert {key: rows["gru, seconds"][key] for key in ("32", "64")} == {"32": 1.0, "64": 6.0}
    assert rows["gru, operations"]["4"] > rows["gru, operations"]["2"] > 0
    for figure, names in zip(evidence.figures, (["gru", "mingru", "mingru, word by word"], list(timed)), strict=True):
        assert [line.name for line in figure.lines] == names
        assert (figure.log_x, figure.log_y) == (True, True)
    assert evidence.figures[1].lines[0].points == ((32, 1.0), (64, 6.0))


def test_who_was_slower_and_by_how_much_is_told_from_medians(monkeypatch):
    timed = {
        ("lstm", "train"): {32: [1.0, 3.0, 2.0], 64: [4.0]}, ("gpt", "train"): {32: [4.0], 64: [2.0]},
        ("lstm", "write"): {32: [1.0], 64: [9.0]}, ("gpt", "write"): {32: [1.0], 64: [2.0]},
    }  # fmt: skip
    assert waiting.remarks(timed) == (
        "Training, the lstm took 2 times as long as the gpt for 64 words; the gpt was slower at 32.",
        "Generating, the lstm took 4.5 times as long as the gpt for 64 words; the gpt was slower at no length.",
    )
    monkeypatch.setattr(waiting, "COUNTED", (2, 4, 8))
    monkeypatch.setattr(waiting, "timing", lambda trial: (timed, Lines("seconds", "x", "y", ())))
    evidence = waiting.experiment(Trial((1,)))
    measured, rows = evidence.measured, {row["longest chain, or seconds"]: row for row in evidence.table}
    assert set(measured[waiting.AT_ONCE]) == set(measured[waiting.TREE]) == set(measured[waiting.PER_LAYER]) == {0.0}
    assert [len(measured[name]) for name in (waiting.WAITS, waiting.AT_ONCE, waiting.TREE, waiting.WRITING)] == [
        6, 10, 2, 2,
    ]  # fmt: skip
    assert len(measured[waiting.PER_LAYER]) == 3
    assert min(*measured[waiting.WAITS], *measured[waiting.WRITING]) >= 1
    assert len(rows) == 10 + 4
    assert rows["lstm, training, seconds"]["32"] == 2.0
    assert evidence.figures[0].log_x
    assert evidence.figures[0].log_y
    assert {line.points[-1][0] for line in evidence.figures[0].lines} == {8}


# -- other parts that only a long run reaches ------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "gain", "steps"), [
    ("clipped", 2**0.5, 4), ("not clipped", 0.5, 3), ("a smaller rate", 2**0.5, 3), ("clipped", 0.5, 23),
])  # fmt: skip
def test_networks_of_two_seeds_are_trained_each_as_by_sgd_alone(how, gain, steps, monkeypatch):
    """The loss is the mean of the last twenty steps'."""
    monkeypatch.setattr(remedies, "TEXTS", 4)
    monkeypatch.setattr(remedies, "WORDS", 6)
    found, n = remedies.train((3, 4), gain, how, steps=steps), remedies.LINEAR
    for seed, ending in zip((3, 4), found, strict=True):
        made, losses, rate = torch.Generator().manual_seed(seed), [], remedies.RATE

        def draw(*shape, made=made):
            return torch.randn(shape, generator=made, dtype=torch.float64)

        weights = [torch.nn.Parameter(one) for one in (draw(n, n) * gain * n**-0.5, draw(n, 1), draw(1, n) / 4)]
        for step in range(steps):
            loss = remedies.linear_loss([one[None] for one in weights], draw(remedies.TEXTS, remedies.WORDS)[None])[0]
            losses.append(float(loss.detach()))
            for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight.grad = gradient
            length = float(torch.nn.utils.get_total_norm([one.grad for one in weights]))
            if how == "clipped" or (how == "a smaller rate" and not step):
                rate = remedies.RATE * min(1.0, remedies.BOUND / length)
            with torch.no_grad():
                for weight in weights:
                    weight -= rate * weight.grad
        assert ending == pytest.approx(np.mean(losses[-20:]), rel=1e-6)


def test_attention_lets_a_words_vector_depend_on_all_words_alike_far_and_near():
    encoder = classification.PROBES["self-attention"]()
    assert type(encoder) is FullSelfAttention
    before, after = classification.reach("self-attention", 1)
    assert len(before) + len(after) == classification.WORDS + 1
    assert float(torch.cat([before, after]).min()) > 0


def test_the_loss_on_held_out_texts_is_their_mean_and_nothing_is_dropped(monkeypatch):
    model = SimpleNamespace(modes=[], eval=lambda: model.modes.append("eval"))
    monkeypatch.setattr(bottleneck, "copying_loss", lambda given, texts: torch.tensor(float(texts)) * (given is model))
    assert bottleneck.held_out_loss(model, SimpleNamespace(valid=[1.0, 2.0, 6.0])) == 3.0
    assert model.modes == ["eval"]


def test_judgements_are_compared_with_vectors_of_the_text_of_its_shuffled_words_and_with_frequencies(monkeypatch):
    """Words of like frequency are said to be alike here, so frequencies agree with the judgments in full."""
    pairs = dict(zip([("book", "paper"), ("bank", "money"), ("wood", "forest")], (9.0, 5.0, 1.0), strict=True))
    apart = dict(zip(pairs, (1, 2, 30), strict=True))  # the less alike, the rarer is one of the two
    counts = {word: 60 // (apart[pair] if place else 1) for pair in pairs for place, word in enumerate(pair)}
    monkeypatch.setattr(embeddings, "text_of", lambda data: {"train": [f"text of {data}"]})
    monkeypatch.setattr(embeddings, "judged_pairs", lambda data, text: (counts, pairs))
    monkeypatch.setattr(corpora, "shuffled", lambda text: "shuffled")
    monkeypatch.setattr(corpora, "keep", lambda name, splits, ending, store: (name, str(splits), ending, store))
    given = []

    def each_seed(trial, measure, folders):
        given.extend([measure, *folders])
        return [(folder, seed) for folder in folders for seed in trial.seeds]

    monkeypatch.setattr(embeddings, "each_seed", each_seed)
    said = {"text": [3.0, 2.0, 1.0], "shuffled": [1.0, 2.0, 3.0]}
    monkeypatch.setattr(
        embeddings, "likenesses",
        lambda vectors, of: said["shuffled" if vectors[0][1] == "shuffled" else "text"] if of == list(pairs) else 0,
    )  # fmt: skip
    monkeypatch.setattr(embeddings, "over_pairs", lambda trainings, judged: [embeddings.spearman(trainings[0], judged),
                                                                              len(trainings)])  # fmt: skip
    found, remark = embeddings.judgements(Trial((1, 2, 5), data="mine", store="store"))
    assert found == {embeddings.AGREES: pytest.approx([1.0, 3]), embeddings.UNORDERED: pytest.approx([-1.0, 3]),
                     embeddings.BY_FREQUENCY: pytest.approx([1.0])}  # fmt: skip
    assert given[0] is embeddings.judged_vectors
    assert [one[0] for one in given[1:]] == ["real"] * 2
    assert {one[2:] for one in given[1:]} == {("txt", "store")}
    assert remark == "Judgments of 3 word pairs, on mine."


def test_the_vectors_of_a_seed_are_those_of_its_training(monkeypatch):
    notes = []
    monkeypatch.setattr(embeddings, "real_reader", lambda trial, folder, seed: (trial.data, folder, seed))
    monkeypatch.setattr(embeddings, "vectors_of", lambda run, words: (run, len(words)))
    found = embeddings.judged_vectors(Trial((1,), data="mine", step=notes.append), 4, "folder")
    assert found == (("mine", "folder", 4), len({word for pair in embeddings.JUDGED for word in pair}))
    assert notes == ["mine, seed 4"]


# -- processes and digests -------------------------------------------------------------------------------------------


class Inline:
    """A pool that works in this process, at once."""

    def __init__(self, jobs, context, initializer, *, max_tasks_per_child):
        self.made = jobs, context.get_start_method(), initializer, max_tasks_per_child
        Inline.last = self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False

    def submit(self, work, *given):
        future = runner.Future()
        try:
            future.set_result(work(*given))
        except Exception as error:
            future.set_exception(error)
        return future


def test_claims_side_by_side_have_a_process_and_a_thread_each_and_one_that_fails_is_named(monkeypatch, tmp_path):
    threads, measured = [], []
    monkeypatch.setattr(runner, "ProcessPoolExecutor", Inline)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(runner, "get_claim", lambda name: SimpleNamespace(name=name))
    monkeypatch.setattr(runner, "record_of", lambda claim, quick, device, knobs: (claim.name, quick, device, knobs))

    def measure(claim, path, quick, device, knobs):
        measured.append((claim.name, path, quick, device, knobs, runner.os.environ["OMP_NUM_THREADS"]))
        if claim.name == "two":
            raise ValueError("no such thing")
        return claim.name

    monkeypatch.setattr(runner, "_measure", measure)
    claims = [SimpleNamespace(name=name) for name in ("one", "two", "three")]
    found = list(runner._side_by_side(claims, True, "cuda", 8))
    assert sorted(found) == ["one", "three", "two: ValueError: no such thing."]
    assert Inline.last.made == (3, "spawn", runner._end_with_parent, 1)
    assert measured == [(one.name, (one.name, True, "cuda", {}), True, "cuda", {}, "1") for one in claims]
    assert threads == [1] * 3


def test_a_process_ends_when_its_parent_does(monkeypatch):
    done = []

    class Now:
        def __init__(self, target, daemon):
            done.append(daemon)
            self.start = target

    monkeypatch.setattr(runner, "parent_process", lambda: SimpleNamespace(join=lambda: done.append("joined")))
    monkeypatch.setattr(runner, "Thread", Now)
    monkeypatch.setattr(runner.os, "_exit", done.append)
    runner._end_with_parent()
    assert done == [True, "joined", 1]


def test_the_digest_is_of_all_names_and_contents_that_are_imported(monkeypatch, tmp_path):
    monkeypatch.setattr(source_digest, "HOME", tmp_path)
    sources = {
        "one.py": "from regard import two\nfrom regard.pack import part\nNAME = 'regard.by_name:Thing'\n",
        "two.py": "'''regard.never is only\nmentioned'''\nimport regard.three\nimport regard.report.page\n",
        "three.py": "import json\n", "by_name.py": "", "never.py": "", "unused.py": "",
        "pack/__init__.py": "", "pack/other.py": "",
        "pack/part.py": "MODULES = [f'regard.all.{name}' for name in ()]\n",
        "all/__init__.py": "", "all/a.py": "", "all/b.py": "", "all/kernel.cu": "", "report/page.py": "",
    }  # fmt: skip
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {path.relative_to(tmp_path).as_posix() for path in source_digest.files_of(("regard.one",))}
    assert found == {*sources} - {"never.py", "unused.py", "pack/other.py", "report/page.py"}

    def digest():
        source_digest.imported.cache_clear()
        return source_digest.digest.__wrapped__("regard.one")

    before = digest()
    assert re.fullmatch("[0-9a-f]{16}", before)
    (tmp_path / "unused.py").write_text("x = 1")
    assert digest() == before
    seen = {before}
    for name in ("three.py", "all/kernel.cu", "pack/part.py"):
        (tmp_path / name).write_text(sources[name] + "\n# changed")
        seen.add(digest())
    (tmp_path / "all" / "b.py").rename(tmp_path / "all" / "c.py")
    seen.add(digest())
    assert len(seen) == 5
    source_digest.imported.cache_clear()


def test_a_result_is_kept_by_the_code_that_measures_and_judges_and_a_model_by_that_which_trains(monkeypatch, tmp_path):
    """Also by the text of pyref, which differs between versions of Python."""
    asked_for = []
    for module in (runner, models):
        monkeypatch.setattr(module, "digest", lambda *modules: asked_for.append(modules) or "the same")
    claim = regard.claims.get_claim("any-b")
    assert runner.record_of(claim, True, "cpu", {}).name.startswith("any-b-")
    folders = []
    for checksum, system in (("one", "ngram"), ("two", "ngram"), ("one", "lstm"), ("one", "ngram")):
        monkeypatch.setattr(models, "open_corpus", lambda data, is_=checksum: SimpleNamespace(checksum=lambda: is_))
        (_, folder), _ = asked(
            monkeypatch, models, "train_recipe", partial(models.trained, None, system, "pyref", store=tmp_path)
        )
        folders.append(folder)
        assert not (folder / "done.json").exists()  # it was not trained to its end
    assert len(set(folders)) == 3
    assert folders[0] == folders[3]
    assert {folder.parent for folder in folders} == {tmp_path / "models"}
    assert set(asked_for) == {("regard.claims.any_b", "regard.claims.verdict"), ("regard.runs.resume",)}


def test_claims_are_run_from_the_package_itself():
    assert regard.claims.run_claim is runner.run_claim
    assert "any-b" in regard.claims.NAMES
    with pytest.raises(AttributeError, match="has no attribute 'run_clam'"):
        _ = regard.claims.run_clam
