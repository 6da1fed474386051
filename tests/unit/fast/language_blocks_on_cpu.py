"""Blocks in few passes on a CPU, by Triton's interpreter, against the blocks one after the other: values and gradients.
test_language_blocks.py runs this."""

import torch
from triton.runtime import interpreter

from regard.fast.attention.language_blocks import hidden_states
from regard.layers.state import span_of
from regard.systems import gpt, linear_attention, llama, mingru

patch = interpreter._patch_lang_tensor


def patch_for_numpy_2_4(tensor, scope):  # which makes no number of an array of one
    patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = patch_for_numpy_2_4
SHAPE = {"layers": 2, "width": 48, "heads": 3, "context": 32, "dropout": 0.0}
GROUPED = SHAPE | {"heads": 6, "key_value_heads": 2}
MODELS = [
    gpt.GPT(50, gpt.Settings(**SHAPE)),
    gpt.GPT(50, gpt.Settings(**SHAPE, norm="post", activation="relu")),
    gpt.GPT(50, gpt.Settings(**SHAPE, position="rotary")),
    llama.Llama(50, llama.Settings(**GROUPED)),
    llama.Llama(50, llama.Settings(**GROUPED, bias="qkv")),
    linear_attention.LinearTransformer(50, linear_attention.Settings(**SHAPE)),
    linear_attention.LinearTransformer(50, linear_attention.Settings(**SHAPE, decay="gated")),
    mingru.MinGRUModel(50, mingru.Settings(layers=2, width=48, dropout=0.0)),
]

torch.manual_seed(0)
for model in MODELS:
    for weight in model.train().parameters():
        weight.data += 0.05 * torch.randn_like(weight)
    tokens, wanted = torch.randint(50, (3, 70)) if model is MODELS[5] else torch.randint(50, (3, 13)), None
    answers = []
    for reads in (type(model).hidden_states, hidden_states):
        state = model.without_cache(len(tokens))
        hidden, _ = reads(model, tokens, state, span_of(state["seen"], None))
        wanted = torch.randn_like(hidden) if wanted is None else wanted
        answers.append([hidden, *torch.autograd.grad((hidden * wanted).sum(), model.parameters(), allow_unused=True)])
    for name, written, found in zip(["hidden", *dict(model.named_parameters())], *answers, strict=True):
        if written is not None:
            assert (written - found).norm() <= 1e-5 * written.norm() + 1e-7, (type(model).__name__, name)
