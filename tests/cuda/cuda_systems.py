"""Small models of every kind, for tests that need a GPU."""

import torch

from regard.systems import dan, gpt, gru, linear_attention, llama, lstm, mingru, nnlm, rnn, self_attention
from regard.systems.model import Model


def systems() -> list[Model]:
    torch.manual_seed(0)
    regular = {"dropout": 0.1, "dropout_recurrent": 0.2, "dropout_embedding": 0.1, "variational": True}
    return [
        lstm.LSTMModel(50, lstm.Settings(width=64, **regular)),
        lstm.LSTMModel(50, lstm.Settings(width=64, embedding=48, tied=False)),
        gpt.GPT(50, gpt.Settings(layers=2, width=64, heads=2, context=64)),
        gpt.GPT(50, gpt.Settings(layers=2, width=64, heads=2, context=64, position="rotary", norm="post")),
        rnn.RNN(50, rnn.Settings(width=64)),
        rnn.RNN(50, rnn.Settings(width=64, activation="sigmoid", initialisation="orthogonal")),
        gru.GRUModel(50, gru.Settings(width=64)),
        nnlm.NNLM(50, nnlm.Settings(order=4, width=64, embedding=32, direct=True)),
        dan.DAN(50, dan.Settings(width=64)),
        *(
            self_attention.SelfAttentionModel(50, self_attention.Settings(width=64, score=score, context=64))
            for score in ("scaled-dot", "additive", "gaussian", "epanechnikov")
        ),
        llama.Llama(50, llama.Settings(layers=2, width=64, heads=4, context=64)),
        *(
            linear_attention.LinearTransformer(
                50, linear_attention.Settings(layers=2, width=64, heads=2, context=64, **kind)
            )
            for kind in ({}, {"feature": "gaussian", "decay": "fixed"}, {"decay": "gated", "rule": "delta"})
        ),
        mingru.MinGRUModel(50, mingru.Settings(layers=2, width=64)),
    ]


NUMBERS = range(18)
