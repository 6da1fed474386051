"""Examples of the rows that make training steps, losses and decoding fast."""

import random
from pathlib import Path

import numpy as np
import torch
from examples import DEVICE, Example

from regard.decoding.beam_engine import BeamBatch, BeamEngine, StateReader
from regard.decoding.beam_slots import BeamConfig, Slots
from regard.decoding.sampling import GREEDY, Sampling
from regard.decoding.writer import DecodingStep, Writer
from regard.fast import Use
from regard.fast.training import compiled as blocks
from regard.runs.recipe import compose
from regard.systems import bahdanau, gpt, lstm, transformer
from regard.text.batches.text_batches import Windows
from regard.training.loop import Trainer
from regard.training.objective import Objective, TensorBatch


def a_gpt(dtype=torch.float64, device="cpu", **settings):
    sizes = {"layers": 2, "width": 16, "heads": 2, "context": 24, "dropout": 0.0}
    return gpt.GPT(31, gpt.Settings(**sizes | settings)).to(device, dtype).eval()


def a_lstm(**settings):
    return lstm.LSTMModel(31, lstm.Settings(width=8, dropout=0.0, penalty_size=2.0, variational=True, **settings))


# -- the next token --------------------------------------------------------------------------------------------------


def step_of(model):
    """A step after prompts of different lengths, in a state of fixed capacity that it advances."""
    rows = random.randint(1, 4)
    state = model.begin(rows=rows, capacity=12)
    lengths = torch.randint(1, 9, (rows,), device=model.device)
    with torch.no_grad():
        _, state = model(torch.randint(31, (rows, 8), device=model.device), state, lengths)
    return torch.randint(31, (rows,), device=model.device), state


def gpt_step(dtype, device):
    model = a_gpt(dtype, device, bias=random.random() < 0.5, tied=random.random() < 0.5)
    tokens, state = step_of(model)
    return Example(DecodingStep(model, GREEDY, []), (tokens, state), left=lambda step, arguments: arguments[1]["seen"])


def choice():
    sampling = random.choice([GREEDY, Sampling(0.7), Sampling(1.3, top_k=9), Sampling(top_p=0.8)])
    step = DecodingStep(a_gpt(torch.float32, DEVICE), sampling, [3, 5])
    logits, uniform = 3 * torch.randn(6, 31, device=DEVICE), torch.rand(6, dtype=torch.float64, device=DEVICE)
    out = torch.zeros(6, dtype=torch.int64, device=DEVICE), torch.zeros(6, dtype=torch.float64, device=DEVICE)
    return Example(step, (logits, uniform, *out), left=lambda step, arguments: arguments[2:])


def writer():
    rows = random.randint(1, 4)
    made = Writer(DecodingStep(a_gpt(device=DEVICE), Sampling(1.3), []), 3, rows, 20)
    made.admit(range(rows), [[0, 4, 5]] * rows, [0.5] * rows, [()] * rows)
    made.draw(np.random.default_rng(0).random((3, rows)))
    return made


def steps():
    return Example(writer(), (3,), left=lambda writer, arguments: (writer.written, writer.highest, writer.state))


# -- beam search -----------------------------------------------------------------------------------------------------


def beam_batch(model):
    engine = BeamEngine(model.to(DEVICE).eval())
    terms = BeamConfig(2, 0, 1)
    reader = engine.reader(terms, 3, 4, 8)
    slots = Slots(3, 8, 31, terms, engine.device)
    places = torch.arange(3, device=DEVICE)
    with torch.no_grad():
        reader.fill(places, torch.randint(1, 31, (3, 4), device=DEVICE), torch.tensor([4, 2, 3]))
    slots.fill(places, torch.tensor([8, 5, 3], device=DEVICE))
    return engine, reader, BeamBatch(slots, reader)


def beam_steps():
    _, _, batch = beam_batch(bahdanau.Bahdanau(31, bahdanau.Settings(width=8, embedding=8, dropout=0.0)))
    return Example(batch, (3,), left=lambda batch, arguments: (batch.slots.total, batch.slots.token))


def beam_choice():
    _, reader, batch = beam_batch(bahdanau.Bahdanau(31, bahdanau.Settings(width=8, embedding=8, dropout=0.0)))
    assert type(reader) is StateReader
    logits = torch.randn(6, 31, device=DEVICE)
    exact = (batch.slots, logits.double())
    return Example(
        reader, (batch.slots, logits), refused=(exact,), left=lambda reader, arguments: arguments[0].total, exact=1e-5
    )


def beam_reader():
    """What it makes is another reader: that both find the same is tests/cuda/test_beam_on_a_gpu.py's affair."""
    settings = transformer.Settings(layers=1, width=16, heads=2, dropout=0.0)
    engine, _, _ = beam_batch(transformer.Transformer(31, settings))
    wide = BeamConfig(40, 0, 1)
    return Example(engine, (BeamConfig(2, 0, 1), 3, 4, 8), refused=((wide, 3, 4, 8),), promised=lambda reader: ())


# -- training --------------------------------------------------------------------------------------------------------


def text_batch(rows, columns, ragged):
    tokens = torch.randint(31, (rows, columns + 1))
    lengths = torch.randint(columns + 1, (rows,)) if ragged else None
    return TensorBatch(tokens[:, :-1], tokens[:, 1:], lengths)


def text_loss():
    model = random.choice([a_gpt, a_lstm])().double().train()
    batch = text_batch(random.randint(1, 4), random.randint(1, 8), random.random() < 0.5)
    return Example(Objective(model), (batch, None), promised=lambda returned: returned[:1])


def pair_loss():
    settings = {"layers": 1, "width": 8, "heads": 2, "dropout": 0.0}
    model = transformer.Transformer(31, transformer.Settings(**settings)).double().train()
    rows, columns, words = random.randint(1, 4), random.randint(1, 6), random.randint(1, 5)
    batch = text_batch(rows, columns, True)
    batch = batch._replace(source=torch.randint(31, (rows, words)), source_lengths=torch.randint(1, words + 1, (rows,)))
    return Example(Objective(model, smoothing=0.1), (batch,), promised=lambda returned: returned[:1])


def training(system, model, **settings):
    settings = {"batch_tokens": 64, "window": 16, "device": DEVICE.type, **settings}
    recipe = compose(system, "tiny", {"training": settings}).training
    text = np.random.default_rng(0).integers(1, 31, 16 * 9)
    return Trainer(model.train(), Windows(text, 4, 16, 0, seed=1), lambda model: None, recipe, Path("never-written"))


def update():
    trainer = training("lstm", a_lstm().to(DEVICE), batches="windows")
    batch = trainer.batches.batch(0)
    return Example(trainer, (), promised=lambda runner: runner(batch)[0])


def compiled():
    if DEVICE.type == "cpu":  # the tracing is what is ours; kernels are the compiler's, which need not be here
        blocks.BACKEND = "aot_eager"
    trainer = training("gpt", a_gpt(torch.float32, DEVICE), compile="on")
    batch = text_batch(4, 16, False)
    return Example(trainer, (batch.each(lambda part: part.to(DEVICE)), None), promised=lambda returned: returned[0])


EXAMPLES = {
    "GPT step on a CPU": lambda: gpt_step(torch.float64, "cpu"),
    "GPT step in few kernels": lambda: gpt_step(torch.float32, DEVICE),
    "next token by one kernel": choice,
    "steps in a CUDA graph": steps,
    "beam step in a CUDA graph": beam_steps,
    "beam's choice by kernels": beam_choice,
    "beam step of the Transformer": beam_reader,
    "loss of text without its logits": text_loss,
    "loss of pairs without their logits": pair_loss,
    "training step in CUDA graphs": update,
    "compiled blocks": compiled,
}
TRAINING = Use(training=True)
