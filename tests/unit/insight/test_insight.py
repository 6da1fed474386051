"""A trace says what the model does: its numbers are those of the fast path, and obey the equations they come from."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from regard.base.errors import RegardError
from regard.evaluation.accuracy import label_log_probabilities
from regard.exchange.arpa import read_arpa
from regard.insight.tracing import trace_classification, trace_language, trace_translation
from regard.insight.views.as_json import facts
from regard.insight.views.terminal import show
from regard.laws.registry import VOCABULARY, builder, stirred
from regard.layers.cell import Cell
from regard.layers.context import Average
from regard.systems.catalogue import SYSTEMS
from regard.systems.classifier import ENCODERS, Classifier, Settings
from regard.systems.own.stack import LayerStack
from regard.systems.recurrent_stack import RecurrentSettings
from regard.text.tokenizers.tokenizer import Tokenizer

WORDS = Tokenizer.of_tokens(["<eos>", "<unk>", *"abcdefghijklmno"], "word")
LABELS = Tokenizer.of_tokens(["<eos>", "<unk>", "good", "bad", "very bad"], "word")
TEXT = "c a f e b a d"
SOURCE = "d e a f b"
HARBOUR = Path(__file__).parents[2] / "golden" / "harbour.3.arpa"
LANGUAGE = [system.name for system in SYSTEMS if system.task == "language model"]
TRANSLATION = [system.name for system in SYSTEMS if system.task == "translation"]


@pytest.fixture(scope="module", params=LANGUAGE)
def language(request):
    torch.manual_seed(0)
    return stirred(builder(request.param))


@pytest.fixture(scope="module", params=TRANSLATION)
def translator(request):
    torch.manual_seed(0)
    return stirred(builder(request.param))


def model_of(system):
    torch.manual_seed(0)
    return stirred(builder(system))


def classifier(encoder, **settings):
    torch.manual_seed(0)
    chosen = Settings(**{"encoder": encoder, "width": 8, "heads": 2, "layers": 2, "dropout": 0.0, **settings})
    model = Classifier(len(LABELS.tokens), chosen, source_vocabulary=VOCABULARY).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model


def read(text):
    return torch.tensor([[WORDS.eos, *WORDS.encode(text)]])


def same_distribution(trace, logits, targets):
    """The trace's numbers of each step against the plain ones, sorted by hand."""
    logs = logits.log_softmax(-1)
    for t, (row, target) in enumerate(zip(logs, targets, strict=True)):
        order = sorted(range(len(row)), key=lambda n: (-float(row[n]), n))
        chosen = [(choice.token, pytest.approx(choice.probability, rel=1e-9)) for choice in trace.top[t]]
        assert chosen == [(WORDS.token(n), float(row[n].exp())) for n in order[: len(chosen)]]
        assert trace.entropy[t] == pytest.approx(-float(torch.special.xlogy(row.exp(), row.exp()).sum()))
        if target is None:
            assert np.isnan(trace.probability[t])
            assert (trace.rank[t], trace.targets[t]) == (0, "")
        else:
            assert trace.probability[t] == pytest.approx(float(row[target].exp()), rel=1e-9)
            assert order[trace.rank[t] - 1] == target
            assert trace.targets[t] == WORDS.token(target)


# -- every system ----------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_trace_predicts_what_the_fast_path_predicts(language):
    tokens = read(TEXT)
    trace = trace_language(language, WORDS, TEXT)
    assert trace.tokens == ("<eos>", *TEXT.split())
    same_distribution(trace, language(tokens)[0][0], [*tokens[0, 1:].tolist(), None])


@torch.no_grad()
def test_a_traced_translation_predicts_what_the_fast_path_predicts(translator):
    source, target = torch.tensor([[*WORDS.encode(SOURCE), WORDS.eos]]), read(TEXT)
    trace = trace_translation(translator, WORDS, WORDS, SOURCE, TEXT)
    assert trace.tokens == ("<eos>", *TEXT.split())
    assert trace.source == (*SOURCE.split(), "<eos>")
    same_distribution(trace, translator(target, translator.begin(source))[0][0], [*target[0, 1:].tolist(), WORDS.eos])


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_traced_label_is_the_label_of_the_fast_path(encoder):
    model = classifier(encoder)
    (logs,) = label_log_probabilities(model, [WORDS.encode(SOURCE)], eos=WORDS.eos, forbidden=LABELS.specials)
    trace = trace_classification(model, WORDS, LABELS, SOURCE, "bad", top=9)
    assert trace.label == LABELS.token(int(logs.argmax()))
    found = {choice.token: choice.probability for choice in trace.top[0]}
    assert found == pytest.approx({LABELS.token(n): np.exp(logs[n]) for n in (2, 3, 4)}, rel=1e-9)
    assert trace.probability[0] == pytest.approx(found["bad"])
    assert len(trace.hidden["encoder/embedding"]) == len(trace.source) == len(SOURCE.split()) + 1


@torch.no_grad()
def test_batch_mates_change_nothing_in_what_is_traced(language):
    rows = [read(text)[0] for text in (TEXT, "b", "n o m a a f e b a d c")]
    lengths = torch.tensor([len(row) for row in rows])
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=3)
    logits, _, parts = language.explain(tokens, None, lengths)
    trace = trace_language(language, WORDS, TEXT)
    targets = torch.tensor(WORDS.encode(TEXT))
    alone = logits[0, : len(targets)].softmax(-1).gather(-1, targets[:, None])[:, 0]
    np.testing.assert_allclose(trace.probability[:-1], alone.numpy(), rtol=1e-9)
    for name, layer in parts.get("layers", {}).items():
        hidden = layer["hidden"][0, : lengths[0]]
        np.testing.assert_allclose(trace.hidden[f"layer/{name}"], hidden.numpy(), atol=1e-10)


def test_the_trace_of_a_prefix_is_the_prefix_of_the_trace(language):
    whole = trace_language(language, WORDS, TEXT, gradients=True)
    part = trace_language(language, WORDS, " ".join(TEXT.split()[:4]), gradients=True)
    steps = part.steps
    assert whole.tokens[:steps] == part.tokens
    np.testing.assert_allclose(whole.entropy[:steps], part.entropy, rtol=1e-9)
    np.testing.assert_allclose(whole.probability[: steps - 1], part.probability[:-1], rtol=1e-9)
    for kind in ("hidden", "gates"):
        assert getattr(whole, kind).keys() == getattr(part, kind).keys()
        for name, values in getattr(part, kind).items():
            np.testing.assert_allclose(getattr(whole, kind)[name][:steps], values, atol=1e-10)
    for name, weights in part.attention.items():
        np.testing.assert_allclose(whole.attention[name][:, :steps, :steps], weights, atol=1e-10)
    if part.gradients is not None:
        np.testing.assert_allclose(whole.gradients[: steps - 1, :steps], part.gradients[:-1], atol=1e-10)


def test_attention_is_a_distribution_and_sees_no_future(language):
    trace = trace_language(language, WORDS, TEXT)
    for weights in trace.attention.values():
        assert weights.shape[1:] == (trace.steps, trace.steps)
        np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-9)
        assert not np.triu(weights, 1).any()
        assert weights.min() >= 0.0


@pytest.mark.parametrize(
    "system, names",
    [
        ("gpt", {"self/0", "self/1"}),
        ("llama", {"self/0", "self/1"}),
        ("linear-attention", {"self/0", "self/1"}),
        ("mingru", set()),
        ("self-attention", {"self/0"}),
        ("dan", {"average/0"}),
        ("lstm", set()),
        ("nnlm", set()),
        ("ngram", set()),
    ],
)
def test_every_look_back_has_its_matrix(system, names):
    assert trace_language(model_of(system), WORDS, TEXT).attention.keys() == names


def test_a_dan_weighs_all_words_so_far_alike():
    weights = trace_language(model_of("dan"), WORDS, "a b").attention["average/0"]
    np.testing.assert_allclose(weights[0], [[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]])


def test_a_translator_shows_where_encoder_and_decoder_look(translator):
    trace = trace_translation(translator, WORDS, WORDS, SOURCE, TEXT)
    for name, weights in trace.attention.items():
        assert weights.shape[1:] == (len(trace.attention_matrix(name).rows), len(trace.attention_matrix(name).columns))
        np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-9)
        if name.startswith("self"):
            assert not np.triu(weights, 1).any()
    for kind in (trace.hidden, trace.gates):
        assert all(len(values) == len(trace.row_tokens(name)) for name, values in kind.items())
    if trace.system == "Seq2Seq":
        assert (trace.alignment, dict(trace.attention)) == (None, {})
    else:
        np.testing.assert_allclose(trace.alignment.sum(-1), 1.0, rtol=1e-9)
        assert trace.alignment.shape == (trace.steps, len(trace.source))


def test_the_transformer_shows_every_layer_and_head_of_its_three_attentions():
    trace = trace_translation(model_of("transformer"), WORDS, WORDS, SOURCE, TEXT)
    assert trace.attention.keys() == {f"{kind}/{layer}" for kind in ("encoder", "self", "cross") for layer in (0, 1)}
    assert all(len(weights) == 2 for weights in trace.attention.values())  # heads


def test_what_a_reversed_encoder_did_stands_beside_the_word_it_did_it_with():
    model = model_of("seq2seq")
    assert model.settings.reverse
    trace = trace_translation(model, WORDS, WORDS, SOURCE, TEXT)
    ids = [*WORDS.encode(SOURCE), WORDS.eos]
    vectors = model.embedding.scale * model.embedding.table.weight[ids]
    np.testing.assert_allclose(trace.hidden["encoder/embedding"], vectors.detach().numpy())
    encoded = model.encode(torch.tensor([ids]), None)["memory"][0]
    np.testing.assert_allclose(trace.hidden[f"encoder/{model.settings.layers - 1}/forward"], encoded.detach().numpy())


# -- the equations hold in the trace alone ---------------------------------------------------------------------------


def before(values):
    return np.vstack([np.zeros_like(values[:1]), values[:-1]])


def test_an_lstms_gates_lie_between_0_and_1_and_make_its_cell():
    trace = trace_language(model_of("lstm"), WORDS, TEXT)
    for layer in ("layer/0", "layer/1"):
        gate = {name.removeprefix(f"{layer}/"): values for name, values in trace.gates.items()}
        for name in ("forget", "store", "output"):
            assert ((gate[name] >= 0) & (gate[name] <= 1)).all()
        np.testing.assert_allclose(gate["cell"], gate["forget"] * before(gate["cell"]) + gate["store"] * gate["update"])
        np.testing.assert_allclose(trace.hidden[layer], gate["output"] * np.tanh(gate["cell"]))


def test_a_grus_gates_lie_between_0_and_1_and_make_its_state():
    trace = trace_language(model_of("gru"), WORDS, TEXT)
    reset, update = trace.gates["layer/0/reset"], trace.gates["layer/0/update"]
    assert all(((gate >= 0) & (gate <= 1)).all() for gate in (reset, update))
    hidden = trace.hidden["layer/0"]
    np.testing.assert_allclose(hidden, update * before(hidden) + (1 - update) * trace.gates["layer/0/candidate"])


def test_a_minimal_grus_update_gate_mixes_its_memory_with_the_candidate():
    gates = trace_language(model_of("mingru"), WORDS, TEXT).gates
    update, memory = gates["layer/0/update"], gates["layer/0/memory"]
    assert ((update >= 0) & (update <= 1)).all()
    np.testing.assert_allclose(memory, (1 - update) * before(memory) + update * gates["layer/0/candidate"])


def test_linear_attention_shows_its_state_as_a_matrix_for_each_head():
    model = model_of("linear-attention")
    trace = trace_language(model, WORDS, TEXT)
    _, state = model(read(TEXT))
    for layer in ("0", "1"):
        np.testing.assert_allclose(trace.matrices[f"layer/{layer}"], state["past"][layer]["matrix"][0].detach())
        assert trace.gates[f"layer/{layer}/decay"].min() == 1.0  # none
    assert "Layer 2, head 2: its state after the last word" in show(trace, width=100)
    assert [one["name"] for one in facts(trace)["matrices"]] == ["layer/0", "layer/1"]


def test_grouped_heads_are_told():
    assert "serves 2 neighboring query heads" in trace_language(model_of("llama"), WORDS, TEXT).notes[0]


def test_a_blocks_parts_add_up_to_what_it_hands_on():
    trace = trace_language(model_of("gpt"), WORDS, TEXT)
    x = trace.hidden["embedding"]
    for layer in ("layer/0", "layer/1"):
        x = x + trace.hidden[f"{layer}/attention"] + trace.hidden[f"{layer}/feedforward"]
        np.testing.assert_allclose(trace.hidden[layer], x)


def test_bahdanaus_context_is_what_the_weights_make_of_the_encoders_states():
    trace = trace_translation(model_of("bahdanau"), WORDS, WORDS, SOURCE, TEXT)
    last = max(name for name in trace.hidden if name.startswith("encoder") and name.endswith("/forward"))
    memory = np.hstack([trace.hidden[last], trace.hidden[last.replace("forward", "backward")]])
    np.testing.assert_allclose(trace.hidden["layer/0/context"], trace.alignment @ memory)


# -- the n-gram ------------------------------------------------------------------------------------------------------


def arpa(path):
    """{words: (log10 probability, log10 back-off)} as any reader of the format would have it."""
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if "\t" in line)
    return {tuple(row[1].split()): (float(row[0]), float(row[2]) if len(row) > 2 else 0.0) for row in rows}


@pytest.fixture(scope="module")
def harbour():
    model, tokens = read_arpa(HARBOUR)
    return model.double(), Tokenizer.of_tokens(tokens, "word")


def test_the_order_that_answered_and_its_back_off_are_those_of_kenlms_file(harbour):
    model, tokenizer = harbour
    grams, text = arpa(HARBOUR), "the sailor painted my letter , said the baker"
    trace = trace_language(model, tokenizer, text)
    history = ["<s>"]
    for t, word in enumerate(text.split()):
        order = next(
            k for k in (3, 2, 1) if len(history) >= k - 1 and (*history[len(history) - k + 1 :], word) in grams
        )
        longer = [tuple(history[-k:]) for k in range(order, 3) if k <= len(history)]
        backoff = 10 ** sum(grams[context][1] for context in longer if context in grams)
        assert trace.order[t] == order
        assert trace.backoff[t] == pytest.approx(backoff, rel=1e-5)
        known = 10 ** grams[(*history[len(history) - order + 1 :], word)][0]
        assert trace.probability[t] == pytest.approx(known * backoff, rel=1e-5)
        history.append(word)
    assert len(set(trace.order.tolist())) > 1


def test_kenlm_matches_as_many_words(harbour):
    kenlm = pytest.importorskip("kenlm")
    model, tokenizer = harbour
    text = "the tired teacher sold no letter without the harbour"
    theirs = list(kenlm.Model(str(HARBOUR)).full_scores(text, eos=False))
    trace = trace_language(model, tokenizer, text)
    assert trace.order[:-1].tolist() == [length for _, length, _ in theirs]
    np.testing.assert_allclose(np.log10(trace.probability[:-1]), [score for score, _, _ in theirs], atol=1e-5)


# -- one's own -------------------------------------------------------------------------------------------------------


class Fading(Cell):
    memory = ("hidden", "trace")

    def __init__(self, inputs, width):
        super().__init__(inputs, width)
        self.input = nn.Linear(inputs, width)

    def step(self, x, state):
        drive = self.input(x).tanh()
        trace = 0.9 * state["trace"] + drive
        return {"hidden": drive + trace, "trace": trace, "drive": drive, "size": trace.norm(dim=-1)}


class Silent(Average):
    """A layer that does not say what it goes through."""

    def __init__(self, inputs, width):
        super().__init__(width)

    def explain(self, x, state, span):
        raise NotImplementedError


def own(layer, **settings):
    torch.manual_seed(0)
    kind = type("Own", (LayerStack,), {"layer": layer})
    return kind(VOCABULARY, RecurrentSettings(**{"layers": 2, "width": 8, "dropout": 0.0, **settings})).double().eval()


def test_a_strangers_cell_shows_whatever_it_names():
    trace = trace_language(own(Fading), WORDS, TEXT, gradients=True)
    assert {name for name in trace.gates if name.startswith("layer/1")} == {
        "layer/1/trace", "layer/1/drive", "layer/1/size"
    }  # fmt: skip
    size = np.linalg.norm(trace.gates["layer/0/trace"], axis=-1)
    np.testing.assert_allclose(trace.gates["layer/0/size"][:, 0], size)
    assert {name for name in trace.state_gradients if name.startswith("layer/0")} == {
        "layer/0/hidden", "layer/0/trace"
    }  # fmt: skip


def test_a_layer_that_explains_nothing_is_traced_by_its_predictions_and_says_so():
    model = own(Silent)
    trace = trace_language(model, WORDS, TEXT, gradients=True, system="./mine.py:Silent")
    with torch.no_grad():
        same_distribution(trace, model(read(TEXT))[0][0], [*WORDS.encode(TEXT), None])
    assert trace.system == "Silent"
    assert trace.gradients.shape == (trace.steps, trace.steps)
    assert "explain" in trace.notes[0]


# -- as data, and what is refused ------------------------------------------------------------------------------------


def test_a_trace_is_json_with_no_number_that_is_not_one(language):
    trace = trace_language(language, WORDS, TEXT, gradients=True)
    facts = json.loads(json.dumps(trace.as_json(), allow_nan=False))
    assert facts["tokens"] == list(trace.tokens)
    assert facts["probability"][-1] is None
    for name, weights in trace.attention.items():
        assert np.shape(facts["attention"][name]["values"]) == weights.shape
    assert facts["hidden"].keys() == trace.hidden.keys()
    assert "hidden" not in trace.as_json(arrays=False)


def test_nothing_of_a_text_is_still_a_step():
    trace = trace_language(model_of("lstm"), WORDS, "", gradients=True)
    assert (trace.tokens, trace.targets) == (("<eos>",), ("",))
    assert np.isnan(trace.probability).all()


def test_a_line_end_in_the_text_is_a_step_like_any_other():
    assert trace_language(model_of("lstm"), WORDS, "a\nb").tokens == ("<eos>", "a", "<eos>", "b")


def test_what_cannot_be_traced_is_refused_in_a_sentence():
    with pytest.raises(RegardError, match="at most 24 tokens"):
        trace_language(model_of("gpt"), WORDS, " ".join("a" * 24))
    with pytest.raises(RegardError, match="--top must be at least 1"):
        trace_language(model_of("gpt"), WORDS, TEXT, top=0)
    with pytest.raises(RegardError, match="nothing to translate"):
        trace_translation(model_of("seq2seq"), WORDS, WORDS, " ")
    with pytest.raises(RegardError, match="nothing to label"):
        trace_classification(classifier("dan"), WORDS, LABELS, "")
    with pytest.raises(RegardError, match="its labels are good, bad, very bad"):
        trace_classification(classifier("dan"), WORDS, LABELS, "a", "splendid")


def test_tracing_leaves_the_model_as_it_was(language):
    state = {name: value.clone() for name, value in language.state_dict().items()}
    trace_language(language, WORDS, TEXT, gradients=True)
    assert all(torch.equal(value, state[name]) for name, value in language.state_dict().items())
    assert all(weight.grad is None for weight in language.parameters())
    assert not any(module._forward_hooks for module in language.modules())
