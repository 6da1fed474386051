"""What the base classes of systems do beside the call: costs, places, caches that are left out, and what is refused."""

import re

import numpy as np
import pytest
import torch
from torch import nn

from regard.base.errors import RegardError
from regard.layers.embedding import Embedding, Output
from regard.layers.recurrent import GRU
from regard.systems import (
    catalogue,
    classifier,
    gpt,
    linear_attention,
    llama,
    lstm,
    ngram,
    nnlm,
    self_attention,
    seq2seq,
    transformer,
)
from regard.systems.kneser_ney import count_grams
from regard.systems.model import Model, Stack
from regard.systems.sizes import Sizes
from regard.systems.translator import dropout_for, is_shared, rate

V = 17


def said(call, *given, kind=RegardError, **named):
    with pytest.raises(kind) as error:
        call(*given, **named)
    return str(error.value)


# -- models ----------------------------------------------------------------------------------------------------------


def small_gpt(**more):
    torch.manual_seed(0)
    chosen = {"layers": 2, "width": 8, "heads": 2, "context": 12, "dropout": 0.0} | more
    return gpt.GPT(V, gpt.Settings(**chosen)).double().eval()


def test_a_text_that_is_read_in_one_call_needs_no_cache():
    model, tokens = small_gpt(), torch.randint(V, (3, 7))
    logits, state = model(tokens, model.without_cache(3))
    torch.testing.assert_close(logits, model(tokens)[0])
    assert state["past"] == {"0": {}, "1": {}}
    assert state["seen"].tolist() == [7]
    recurrent = Stack(Embedding(V, 8), [GRU(8, 8)], Output(8, V, tied=True, bias=False)).double().eval()
    begun = recurrent.without_cache(3)
    assert begun["past"]["0"]["hidden"].shape == (3, 8)  # which is no cache
    torch.testing.assert_close(recurrent(tokens, begun)[0], recurrent(tokens)[0])


def test_a_model_reads_as_many_tokens_at_once_as_its_context_and_no_more():
    model = small_gpt(position="learned")
    assert model(torch.zeros(1, 12, dtype=torch.int64))[0].shape == (1, 12, V)
    assert said(model, torch.zeros(1, 13, dtype=torch.int64)) == (
        "This model reads at most 12 tokens at once but was given 13; give it less text, or train a model with a "
        "larger model.context."
    )


class Plain(Model):
    vocabulary = 5

    def __init__(self, *tensors):
        super().__init__()
        for number, tensor in enumerate(tensors):
            self.register_buffer(f"b{number}", tensor)

    def initial_past(self, rows, *, capacity, device, dtype):
        return {"given": torch.zeros(rows, dtype=dtype, device=device)}


def test_a_state_is_as_precise_as_the_first_weight_or_buffer_with_digits():
    assert Plain().begin()["past"]["given"].dtype == torch.get_default_dtype()
    whole = torch.zeros(2, dtype=torch.int64)
    assert Plain(whole, torch.zeros(2).half(), torch.zeros(2).double()).begin()["past"]["given"].dtype == torch.float16
    model = Plain(torch.zeros(2).double())
    model.weight = nn.Parameter(torch.zeros(3).bfloat16())
    assert model.begin(rows=2, width=3)["past"]["given"].shape == (6,)
    assert model.begin()["past"]["given"].dtype == torch.bfloat16
    assert (model.flops_per_token, model.loss_width) == (18.0, 5)
    assert model.begin(rows=2, capacity=7)["capacity"].tolist() == [7, 7]
    assert "capacity" not in model.begin()


def test_a_language_model_takes_no_source():
    for wrong in ({"source": torch.zeros(1, 1)}, {"lengths": torch.zeros(1)}):
        assert said(small_gpt().begin, kind=TypeError, **wrong) == (
            "GPT is a language model and does not take a source"
        )


def test_a_counted_model_costs_nothing_and_looks_up_one_number_per_order():
    model = ngram.NGram(V, ngram.Settings(order=3))
    assert (model.flops_per_token, model.loss_width) == (0.0, 3)


def test_a_text_that_is_too_large_to_count_is_refused():
    ids = np.array([1, 0])
    too_large = "The text and the vocabulary are too large to count; use a smaller data.vocabulary."
    assert said(count_grams, ids, 2**62, 1) == too_large
    assert said(count_grams, np.zeros(0, np.int64), 5, 1) == (
        "There is no text to count; give a training text of at least one line."
    )
    assert said(count_grams, ids, 1, 1) == (
        "The text contains token 1, but the vocabulary ends at 0: tokenize it again."
    )
    told = []
    assert len(count_grams(ids, 2, 4, lambda: told.append(1))) == len(told) == 4


# -- translators -----------------------------------------------------------------------------------------------------


def translator(**more):
    settings = seq2seq.Settings(layers=1, width=8, embedding=6, dropout=0.0)
    return seq2seq.Seq2Seq(V, settings, **more).double().eval()


def test_a_translator_is_given_as_many_sources_as_rows():
    model, source = translator(), torch.ones(2, 3, dtype=torch.int64)
    assert len(model.begin(source, rows=2)["seen"]) == 2
    assert said(model.begin, source, rows=3, kind=ValueError) == "2 sources were given for 3 rows"
    assert said(model.begin, kind=TypeError) == (
        "Seq2Seq is a translator and needs a source: model.begin(source, lengths)"
    )


def test_a_source_is_as_long_as_the_context_of_its_own_table():
    settings = transformer.Settings(layers=1, width=8, heads=2, context=6, position="learned")
    model = transformer.Transformer(V, settings, source_vocabulary=9).eval()
    assert (model.source_vocabulary, model.source_context, model.vocabulary) == (9, 6, V)
    model.begin(torch.ones(1, 6, dtype=torch.int64))
    assert said(model.begin, torch.ones(1, 7, dtype=torch.int64)) == (
        "This model reads sources of at most 6 tokens but was given 7; give it shorter sentences, or train a model "
        "with a larger model.context."
    )


def test_tables_that_are_only_looked_up_cost_nothing_on_either_side():
    one, two = translator(), translator(source_vocabulary=100)
    assert two.source_embedding.table.weight.shape == (100, 6)
    assert one.flops_per_token == two.flops_per_token
    labels = classifier.Classifier(3, classifier.Settings(width=8), source_vocabulary=50)
    more = classifier.Classifier(3, classifier.Settings(width=8), source_vocabulary=500)
    assert labels.flops_per_token == more.flops_per_token


def test_dropout_falls_with_the_number_of_pairs():
    known = {0: 0.3, 199_999: 0.3, 200_000: 0.2, 999_999: 0.2, 1_000_000: 0.1, 10**9: 0.1}
    assert {pairs: dropout_for(pairs) for pairs in known} == known
    assert (rate(-1.0), rate(0.25), rate(0.0)) == (0.3, 0.25, 0.0)
    assert [is_shared(*how) for how in ((True, None), (True, 9), (False, None), (False, 9))] == [True] + [False] * 3


def test_a_state_of_fixed_capacity_is_its_own(monkeypatch):
    model, source = translator(), torch.ones(2, 3, dtype=torch.int64)
    encoded = model.encode(source, None)
    shared, own = (model.begin_from(encoded, source, None, capacity=room) for room in (None, 4))
    monkeypatch.setattr(model, "_unread", None)
    assert own["past"]["0"]["hidden"].data_ptr() != encoded["last"]["0"]["hidden"].data_ptr()
    assert not own["past"]["0"]["hidden"].requires_grad
    assert shared["past"]["0"]["hidden"].requires_grad
    assert own["source"]["valid"].all()


# -- settings --------------------------------------------------------------------------------------------------------


def test_llama_says_what_fits_together():
    assert (llama.Settings(width=64, heads=4).width_step, llama.Settings(head_width=6).width_step) == (8, 1)
    assert said(llama.Settings, stretch="llama3", stretch_low=4.0, stretch_high=4.0) == (
        "model.stretch_low (4) must be below model.stretch_high (4)."
    )
    assert llama.Settings(stretch="llama3", stretch_low=3.9).rotations.low == 3.9
    assert llama.Settings(stretch="linear", stretch_low=9.0).rotations.kind == "linear"  # where it is not used
    assert "model.head_width must be even, since positions rotate pairs, not 5." in said(llama.Settings, head_width=5)
    assert said(llama.Settings, heads=4, key_value_heads=3) == (
        "model.key_value_heads (3) must divide model.heads (4)."
    )
    groups = {(4, 0): 2, (3, 0): 3, (4, 4): 4, (6, 2): 2}
    for (heads, given), wanted in groups.items():
        chosen = llama.Settings(width=12 * heads, heads=heads, key_value_heads=given)
        assert (chosen.groups, chosen.head) == (wanted, 12)
    assert [llama.Settings(width=width).inner for width in (16, 24, 32, 128)] == [48, 64, 88, 344]
    assert llama.Settings(width=16, feedforward=5).inner == 5


def test_sizes_of_training_hold_for_all_and_are_replaced_by_those_of_one():
    sizes = Sizes({"rate": 1, "steps": 2}, {"tiny": {"training": {"steps": 3}, "model": {"width": 4}}})
    assert sizes.of("tiny") == {"width": 4}
    assert sizes.of("tiny", "training") == {"rate": 1, "steps": 3}
    assert sizes.of("large", "training") == {"rate": 1, "steps": 2}
    assert sizes.of("large") == {}


# -- the catalogue ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", catalogue.SYSTEMS, ids=lambda system: system.name)
def test_the_year_of_a_system_is_that_of_the_paper_named_first(system):
    assert re.search(r"\d{4}", system.paper)[0] == str(system.year)


def test_a_system_is_newer_than_the_lectures_if_it_came_after_gpt(tmp_path, monkeypatch):
    assert [system.name for system in catalogue.SYSTEMS if system.after_gpt] == ["linear-attention", "llama", "mingru"]
    assert not catalogue.System("./a.py:Mine", None, "", "", "").after_gpt
    assert [catalogue.System(name, 1, "", "", "").label for name in ("gpt", "/a/b.py:Mine")] == ["gpt", "Mine"]
    assert "did you mean gpt?" in said(catalogue.find, "gtp")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").touch()
    assert said(catalogue.find, "text.txt") == (
        "'text.txt' is a file, not a system: `regard train lstm --data text.txt` trains an LSTM on it."
    )


GPT, BARE, TRANSFORMER, LINEAR = (
    gpt.Settings,
    self_attention.Settings,
    transformer.Settings,
    linear_attention.Settings,
)
CONCATENATED = {"combine": "concatenate", "tied": False, "width": 16, "heads": 2}
CONFLICTS = [  # settings that conflict, the sentence, and the nearest ones that do not
    (GPT, {"position": "one-hot", "width": 16, "context": 17},
     "model.position one-hot needs a component for each position: model.context (17) must not exceed model.width (16).",
     {"context": 16}),
    (GPT, {**CONCATENATED, "position": "rotary"},
     "model.combine concatenate has nothing to concatenate with model.position rotary; use add.",
     {"position": "index"}),
    (GPT, {**CONCATENATED, "position": "none"},
     "model.combine concatenate has nothing to concatenate with model.position none; use add.", {"combine": "add"}),
    (GPT, {**CONCATENATED, "tied": True},
     "model.combine concatenate makes word vectors narrower than model.width, so they cannot predict: set model.tied "
     "to false.", {"tied": False}),
    (GPT, {**CONCATENATED, "position": "one-hot", "context": 16},
     "model.position one-hot takes 16 components and leaves none of model.width (16) for the word: make model.width "
     "larger or model.context smaller.", {"context": 15}),
    (BARE, {"position": "index", "width": 1, "combine": "concatenate"},
     "model.position index takes 1 components and leaves none of model.width (1) for the word: make model.width larger "
     "or model.context smaller.", {"width": 2}),
    (GPT, {"width": 10, "heads": 4}, "model.heads (4) must divide model.width (10).", {"heads": 5}),
    (GPT, {"width": 6, "heads": 2, "position": "rotary"},
     "model.position rotary rotates pairs of components, so model.width / model.heads must be even, not 3.",
     {"position": "alibi"}),
    (TRANSFORMER, {"width": 6, "heads": 2, "position": "rotary"},
     "model.position rotary rotates pairs of components, so model.width / model.heads must be even, not 3.",
     {"heads": 3}),
    (LINEAR, {"width": 10, "heads": 4}, "model.heads (4) must divide model.width (10).", {"heads": 5}),
    (nnlm.Settings, {"tied": True, "width": 8, "embedding": 9},
     "model.tied predicts with the word vectors, so model.embedding (9) must equal model.width (8) or be 0.",
     {"embedding": 0}),
    (nnlm.Settings, {"tied": True, "width": 8, "embedding": 7},
     "model.tied predicts with the word vectors, so model.embedding (7) must equal model.width (8) or be 0.",
     {"embedding": 8}),
    (BARE, {"activation": "tanh", "projections": False},
     "model.activation tanh acts on projections: set model.projections to true.", {"activation": "identity"}),
    (lstm.Settings, {"penalty_change": 0.1},
     "model.penalty_change compares outputs with the same components dropped: set model.variational to true.",
     {"variational": True}),
    (classifier.Settings, {"encoder": "dan", "pool": "last"},
     "model.encoder dan averages the words, and the last one is always <eos>: set model.pool to mean.",
     {"encoder": "gru"}),
    (classifier.Settings, {"encoder": "transformer", "width": 8, "embedding": 6},
     "With model.encoder transformer, word vectors are as wide as the model: leave model.embedding at 0.",
     {"embedding": 8}),
    (classifier.Settings, {"encoder": "self-attention", "width": 10},
     "model.heads (4) must divide model.width (10).", {"heads": 5}),
    (classifier.Settings, {"encoder": "lstm", "layers": 0}, "model.layers must be at least 1, not 0.",
     {"encoder": "dan"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "wrong", "sentence", "right"), CONFLICTS)
def test_settings_that_conflict_say_so_and_their_neighbors_do_not(kind, wrong, sentence, right):
    assert said(kind, **wrong) == sentence
    chosen = kind(**{**wrong, **right})
    for name, value in right.items():
        assert getattr(chosen, name) == value


def test_a_concatenated_position_takes_a_quarter_unless_its_kind_says_otherwise():
    for position, components in {"sinusoid": 4, "sine": 4, "learned": 4, "index": 1, "one-hot": 5}.items():
        chosen = gpt.Settings(**CONCATENATED, position=position, context=5)
        assert chosen.position_width == components
        assert gpt.GPT(V, chosen).embedding.table.weight.shape == (V, 16 - components)
    added = gpt.Settings(width=16, heads=2, position="sinusoid")
    assert added.position_width == 16
    assert self_attention.Settings(combine="concatenate", position="sine", width=3).position_width == 1
    assert [gpt.Settings(position=name).encoding() is None for name in ("none", "rotary", "alibi", "learned")] == [
        True, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "pooled"),
    [
        ({"encoder": "lstm"}, 16), ({"encoder": "lstm", "bidirectional": False}, 8), ({"encoder": "transformer"}, 8),
        ({"encoder": "dan"}, 8), ({"encoder": "dan", "embedding": 6}, 8),
        ({"encoder": "dan", "embedding": 6, "layers": 0}, 6),
    ],
)  # fmt: skip
def test_the_vector_that_predicts_a_label_is_as_wide_as_its_encoder_makes_it(more, pooled):
    settings = classifier.Settings(width=8, heads=2, dropout=0.0, **more)
    model = classifier.Classifier(3, settings, source_vocabulary=V)
    assert settings.pooled == model.output.weight.size(1) == pooled
    memory = model.encode(torch.randint(V, (2, 4)), torch.tensor([4, 2]))
    assert memory["whole"].shape == (2, pooled)
