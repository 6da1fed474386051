"""The laws of training: splitting a batch does not matter, and a system can memorise."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import exp, log

import torch
import torch.nn.functional as F

from regard.laws.closeness import Broken, RandomCase, close, hold, same_gradients
from regard.systems.classifier import Classifier
from regard.systems.model import Model
from regard.systems.translator import Translator
from regard.training.objective import Objective, TensorBatch, micro_batches

SENTENCES = (  # the notes' batch, and their translation example
    "students opened their books",
    "people walked their dog",
    "the classroom fell silent",
    "they are watching them",
)


def micro_batches_are_one_batch(model: Model, draw: RandomCase) -> None:
    """12: k micro-batches or ranks = one batch, in the loss and in every gradient."""
    parameters = dict(model.named_parameters())
    if not parameters:
        return
    sources = draw.sources(model) if isinstance(model, Translator) else ()
    batch = TensorBatch(draw.tokens(model), draw.tokens(model, "targets"), draw.lengths(), *sources)
    objective, found = Objective(model), []
    for parts in (1, draw.rows):
        pieces = [objective(piece, None)[:2] for _, piece in micro_batches(batch, parts)]
        loss = torch.stack([total for total, _ in pieces]).sum() / sum(int(count) for _, count in pieces)
        gradient = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
        found.append((loss, dict(zip(parameters, gradient, strict=True))))
    (whole, whole_gradient), (cut, cut_gradient) = found
    why = "a row's loss must not depend on the other rows of its batch"
    what = f"splitting a batch into {draw.rows} changes the"
    close(cut, whole, f"{what} loss", why)
    same_gradients(cut_gradient, whole_gradient, f"{what} gradient", why)


def it_memorises_four_sentences(model: Model, steps: int = 1000, learning_rate: float = 1e-2) -> None:
    """13a: each neural system memorises four sentences, and a translator which of them answers which, a
    classifier with one word."""
    words = ["<eos>", *sorted({word for sentence in SENTENCES for word in sentence.split()})]
    assert model.vocabulary >= len(words)
    text = torch.tensor([[words.index(word) for word in sentence.split()] for sentence in SENTENCES])
    source = None
    if isinstance(model, Translator):  # after <eos> only the source determines how the target begins
        source, text = F.pad(text, (0, 1)), F.pad(text.roll(1, dims=0), (1, 1))
    if isinstance(model, Classifier):  # it writes one word and reads no target
        text = text[:, :2]
    tokens, targets = text[:, :-1], text[:, 1:]
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    model.train()
    for _ in range(steps):
        surprise, _ = model.loss(tokens, targets, None if source is None else model.begin(source))
        if surprise.max() < 0.05:
            break
        optimizer.zero_grad()
        surprise.mean().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        state = None if source is None else model.begin(source)
        worst = float(model.loss(tokens, targets, state)[0].max())
        right = torch.equal(model(tokens, state)[0].argmax(dim=-1), targets)
    hold(
        worst < 0.1 and right,
        f"after {steps} steps on four sentences it still gives some next word a probability of only {exp(-worst):.2g}: "
        "it does not learn its training text (are gradients lost, or words before the last ignored?)",
    )


def it_can_memorise(build: Callable[[], Model], tries: int = 3) -> None:
    """13a with restarts: some initial weights do not train, so other seeds are tried before it fails."""
    for seed in range(1, tries):
        torch.manual_seed(seed)
        with suppress(Broken):
            return it_memorises_four_sentences(build())
    torch.manual_seed(tries)
    it_memorises_four_sentences(build())


def untrained_it_knows_nothing(model: Model, draw: RandomCase) -> None:
    """13b: its untrained loss ≈ log V."""
    tokens, targets = draw.tokens(model), draw.tokens(model, "targets")
    with torch.no_grad():
        surprise = float(model.loss(tokens, targets, draw.start(model))[0].mean())
    hold(
        abs(surprise - log(model.vocabulary)) < 0.05,
        f"untrained, its loss is {surprise:.3g}, not log {model.vocabulary} = {log(model.vocabulary):.3g}: "
        "its initial outputs are too large, so it prefers some words before training",
    )
