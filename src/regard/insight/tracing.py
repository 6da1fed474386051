"""Makes traces: a model reads one text with the reference implementation, and everything it computes is recorded.

    trace_language(model, tokenizer, "the dog ran")
    trace_translation(model, source_tokenizer, tokenizer, "They are watching.", "Ils regardent.")
    trace_classification(model, source_tokenizer, labels, "I love it")

`explain` is called only here and for the attention of translations, so untraced models lose no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.decoding.beam import Beam, Hypothesis, largest
from regard.decoding.translate import longest_translation
from regard.evaluation.alignment_error import spans_in
from regard.insight.gradients import entering, predicting, state_gradients, tables_of, through_time, token_losses
from regard.insight.parts import array, look_inside, look_inside_encoder
from regard.insight.search import search_tree
from regard.insight.trace import Branch, Candidate, Trace
from regard.layers.attention import GroupedQueryAttention
from regard.layers.state import State
from regard.systems.classifier import Classifier
from regard.systems.model import Model
from regard.systems.translator import Translator
from regard.text.readers.labels import clean, label_numbers
from regard.text.tokenizers.tokenizer import Tokenizer

IN_CACHE = 1 << 15  # size of a block of predictions
NO_VECTORS = "{system} has no word vectors, so there are no gradients through time."
NO_EXPLAIN = "{system} has no `explain`, so only its predictions are shown."


# -- the three tasks -------------------------------------------------------------------------------------------------


def trace_language(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    *,
    beam: int = 0,
    max_tokens: int = 20,
    forbidden: Sequence[int] = (),
    top: int = 5,
    gradients: bool = False,
    system: str = "",
    run: str = "",
) -> Trace:
    """Trace a language model that reads `text` from the beginning of a line; "\\n" in it ends a line.

    Step t reads token t and predicts the next; the token after the last one is not known. With a `beam`, also the tree
    of the search for the most probable completions of the line within `max_tokens`.
    """
    _check(top=top, max_tokens=max_tokens, **({"beam": beam} if beam else {}))
    model.eval()
    system = system_name(model, system)
    ids = [tokenizer.begin, *tokenizer.encode(text)]
    targets: list[int | None] = [*ids[1:], None]
    tokens = torch.tensor([ids], device=model.device)
    with torch.no_grad():
        logits, parts, notes = _explain(model, tokens, None, system)
    inside = look_inside(parts).arrays()
    facts = _predictions(logits, targets, tokenizer, top)
    if "answered" in parts:
        facts |= _counted(parts, logits, targets)
    if gradients:
        facts |= _gradients(model, tokens, targets, None, system, notes)
    if beam:
        _, facts["beam"] = _search(model, tokens, None, tokenizer, Beam(beam, 0.0, beam), max_tokens, forbidden)
    return Trace(
        system=system,
        task="language model",
        spans=((0, 0), *spans_in(tokenizer, ids[1:], tokenizer.normalise(text))),
        tokens=_words(ids, tokenizer),
        targets=_words(targets, tokenizer),
        attention=inside.attention,
        hidden=inside.hidden,
        gates=inside.gates,
        matrices=inside.matrices,
        notes=(*notes, *_shared_heads(model)),
        text=text,
        run=run,
        **facts,
    )


def trace_translation(
    model: Translator,
    source_tokenizer: Tokenizer,
    tokenizer: Tokenizer,
    source: str,
    target: str | None = None,
    *,
    prefix: str = "",
    beam: int = 5,
    length_penalty: float = 1.0,
    forbidden: Sequence[int] = (),
    top: int = 5,
    gradients: bool = False,
    system: str = "",
    run: str = "",
) -> Trace:
    """Trace a translator that writes `target`, or the best result of beam search, with the tree of that search.

    `prefix`: the beginning of the translation; it is read, and the search continues it.
    """
    _check(top=top)
    model.eval()
    system = system_name(model, system)
    read, written, branches = target_of(
        model,
        source_tokenizer,
        tokenizer,
        source,
        target,
        prefix=prefix,
        beam=beam,
        length_penalty=length_penalty,
        forbidden=forbidden,
    )
    sources = torch.tensor([read], device=model.device)
    tokens = torch.tensor([[tokenizer.eos, *written[:-1]]], device=model.device)
    notes: list[str] = []
    with torch.no_grad():
        encoded, source_parts = model.explain_encode(sources, None)
        logits, _, parts = model.explain(tokens, model.begin_from(encoded, sources, None))
        looked, aligned = model.attention(parts), model.alignment(parts)
    inside, before = look_inside(parts).arrays(), look_inside_encoder(source_parts).arrays()
    facts = _predictions(logits[0], written, tokenizer, top)
    if gradients:
        facts |= _gradients(model, tokens, written, sources, system, notes)
    return Trace(
        system=system,
        task="translation",
        tokens=_words(tokens[0].tolist(), tokenizer),
        targets=_words(written, tokenizer),
        written=tuple(written),
        source=_words(read, source_tokenizer),
        attention={**before.attention, **{name: array(weights) for name, weights in looked.items()}},
        hidden={**before.hidden, **inside.hidden},
        gates={**before.gates, **inside.gates},
        alignment=None if aligned is None else array(aligned),
        beam=branches,
        notes=tuple(notes),
        text=source,
        translation=tokenizer.decode([token for token in written if token != tokenizer.eos]).strip(),
        run=run,
        **facts,
    )


def trace_classification(
    model: Classifier,
    source_tokenizer: Tokenizer,
    labels: Tokenizer,
    text: str,
    label: str | None = None,
    *,
    top: int = 5,
    gradients: bool = False,
    system: str = "",
    run: str = "",
) -> Trace:
    """Trace a classifier that reads `text`: one step, which predicts the label.

    Gradients are those of the loss of `label`; without it, of the predicted label.
    """
    _check(top=top)
    model.eval()
    system = system_name(model, system)
    read = [*source_tokenizer.encode(text), source_tokenizer.eos]
    if len(read) == 1:
        raise RegardError("There is nothing to label: give some text.")
    truth = None if label is None else label_number(label, labels)
    sources = torch.tensor([read], device=model.device)
    tokens = torch.tensor([[labels.eos]], device=model.device)
    with torch.no_grad():
        encoded, parts = model.explain_encode(sources, None)
        logits, _, _ = model.explain(tokens, model.begin_from(encoded, sources, None))
        among = logits[0].index_fill(-1, torch.tensor(labels.specials, device=logits.device), -torch.inf)
    best = int(among[0].argmax())
    inside = look_inside_encoder(parts).arrays()
    notes: list[str] = []
    facts = _predictions(among, [truth], labels, min(top, len(labels.tokens) - len(labels.specials)))
    if gradients:
        asked = best if truth is None else truth
        facts |= _gradients(model, tokens, [asked], sources, system, notes, forbidden=labels.specials)
    return Trace(
        system=system,
        task="classification",
        tokens=_words([labels.eos], labels),
        targets=_words([truth], labels),
        source=_words(read, source_tokenizer),
        attention=inside.attention,
        hidden={**inside.hidden, "hidden": array(encoded["whole"][:, None])},
        gates=inside.gates,
        label=labels.token(best),
        notes=tuple(notes),
        text=text,
        run=run,
        **facts,
    )


# -- what they share -------------------------------------------------------------------------------------------------


def target_of(
    model: Translator,
    source_tokenizer: Tokenizer,
    tokenizer: Tokenizer,
    source: str,
    target: str | None,
    *,
    prefix: str,
    beam: int,
    length_penalty: float,
    forbidden: Sequence[int],
) -> tuple[list[int], list[int], tuple[Branch, ...]]:
    """The tokens of a source and of its target, or of the best result of beam search, with the tree of that search."""
    read = [*source_tokenizer.encode(source), source_tokenizer.eos]
    if len(read) == 1:
        raise RegardError("There is nothing to translate: give a sentence.")
    branches: tuple[Branch, ...] = ()
    if target is None:
        sources = torch.tensor([read], device=model.device)
        _check(beam=beam)
        longest, how = longest_translation(len(read) - 1), Beam(beam, length_penalty, beam)
        begun = tokenizer.encode(prefix)
        if len(begun) >= longest:
            raise RegardError(f"A translation of this source has at most {longest} tokens: give a shorter prefix.")
        first = torch.tensor([[tokenizer.eos, *begun]], device=model.device)
        (best, *_), branches = _search(model, first, sources, tokenizer, how, longest - len(begun), forbidden)
        written = [*begun, *best.tokens]
    else:
        written = [*tokenizer.encode(target), tokenizer.eos]
    return read, written, branches


def _shared_heads(model: Model) -> list[str]:
    """A sentence if groups of heads share keys and values."""
    shared = {(part.heads, part.groups) for part in model.modules() if isinstance(part, GroupedQueryAttention)}
    return [
        f"Each of its {groups} key-value heads serves {heads // groups} neighboring query heads."
        for heads, groups in shared
        if groups < heads
    ]


def _explain(model: Model, tokens: Tensor, state: State | None, system: str) -> tuple[Tensor, State, list[str]]:
    """Logits [T, V], parts, and a sentence if a user's own system has none."""
    try:
        logits, _, parts = model.explain(tokens, state)
        return logits[0], parts, []
    except NotImplementedError:
        logits, _ = model(tokens, state)
        return logits[0], {}, [NO_EXPLAIN.format(system=system)]


def _predictions(logits: Tensor, targets: Sequence[int | None], tokenizer: Tokenizer, top: int) -> dict[str, Any]:
    """From logits [T, V], for each step: the true token's probability and rank, the entropy, and the best tokens.

    Steps are processed in blocks that fit into the CPU's cache: with large vocabularies this is three times as fast.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    true = torch.tensor([-1 if target is None else target for target in targets], device=logits.device)
    found: dict[str, list[Any]] = {"probability": [], "rank": [], "entropy": [], "top": []}
    places = torch.arange(logits.size(-1), device=logits.device)
    for rows, target in zip(*(part.split(max(1, IN_CACHE // logits.size(-1))) for part in (logits, true))):
        logs = rows.double().log_softmax(-1)
        chances = logs.exp()
        found["entropy"] += (-torch.where(chances > 0, chances * logs, 0.0).sum(-1)).tolist()
        best = largest(rows, min(top, rows.size(-1)))
        for tokens, shares in zip(best.tolist(), chances.gather(-1, best).tolist()):
            found["top"].append(tuple(Candidate(tokenizer.token(token), share) for token, share in zip(tokens, shares)))
        asked = target.clamp(min=0)[:, None]
        score, known = rows.gather(-1, asked), target >= 0
        ahead = (rows > score) | ((rows == score) & (places < asked))  # ties by index
        found["probability"] += chances.gather(-1, asked)[:, 0].where(known, torch.nan).tolist()
        found["rank"] += (1 + ahead.sum(-1)).where(known, 0).tolist()
    arrays = {"probability": np.float64, "rank": np.int64, "entropy": np.float64}
    return {"top": tuple(found["top"])} | {name: np.array(found[name], kind) for name, kind in arrays.items()}


def _counted(parts: State, logits: Tensor, targets: Sequence[int | None]) -> dict[str, Any]:
    """For an n-gram: the order that gave the probability of the next word (or, if unknown, of the best word), and β.

    P(w | h) = P(w | the last k − 1 words) · Π β(h) over the contexts h of k … n − 1 words, in none of which w was seen.
    """
    asked = torch.tensor([int(row.argmax()) if w is None else w for row, w in zip(logits, targets)])
    order = parts["answered"][0].cpu().gather(-1, asked[:, None])[:, 0]  # [T]
    weights = parts["weights"][0].cpu()  # [T, n − 1], of contexts of 1, 2, … words
    backed_off = torch.arange(1, weights.size(-1) + 1) >= order[:, None]
    return {"order": order.numpy(), "backoff": weights.where(backed_off, 1.0).prod(-1).numpy()}


def _gradients(
    model: Model,
    tokens: Tensor,
    targets: Sequence[int | None],
    source: Tensor | None,
    system: str,
    notes: list[str],
    forbidden: Sequence[int] = (),
) -> dict[str, Any]:
    if not tables_of(model):
        notes.append(NO_VECTORS.format(system=system))
        return {}
    with torch.enable_grad(), entering(model) as vectors:
        logits, parts, _ = _explain(model, tokens, _begin(model, source), system)
        hidden, logits = predicting(model, logits[None], parts)
        banned = torch.tensor(forbidden, dtype=torch.int64, device=logits.device)
        losses = token_losses(logits[0].index_fill(-1, banned, -torch.inf), targets)
        entered = {"target": vectors[-1]} if source is None else dict(zip(("source", "target"), vectors))
        matrices = through_time(losses, [hidden], list(entered.values()), len(targets))
    found = dict(zip(entered, matrices))
    with torch.enable_grad():
        states = state_gradients(model, tokens, targets, _begin(model, source))
    return {
        "gradients": found.get("target"),  # a classifier does not read its target
        "source_gradients": found.get("source"),
        "state_gradients": states,
    }


def _begin(model: Model, source: Tensor | None) -> State | None:
    """The state after a source, by the reference implementation, since cuDNN has no recurrent backward in eval()."""
    if source is None:
        return None
    assert isinstance(model, Translator)
    return model.begin_from(model.explain_encode(source, None)[0], source, None)


@torch.no_grad()
def _search(
    model: Model,
    tokens: Tensor,
    source: Tensor | None,
    tokenizer: Tokenizer,
    how: Beam,
    max_tokens: int,
    forbidden: Sequence[int],
) -> tuple[list[Hypothesis], tuple[Branch, ...]]:
    """The best continuations of tokens [1, T], and the tree they were found in."""
    room = max_tokens if model.context is None else min(max_tokens, model.context + 1 - tokens.size(1))
    hidden, state = model.read(tokens, None if source is None else model.begin(source))
    logits = model.predict(hidden[:, -1])
    return search_tree(model, logits, state, tokenizer, how=how, max_tokens=room, forbidden=forbidden)


def system_name(model: Model, system: str) -> str:
    """The system's name; for a user's own, ./mine.py:MyCell, only the class."""
    return (system or type(model).__name__).rpartition(":")[2]


def _words(ids: Sequence[int | None], tokenizer: Tokenizer) -> tuple[str, ...]:
    return tuple("" if symbol is None else tokenizer.token(symbol) for symbol in ids)


def label_number(label: str, labels: Tokenizer) -> int:
    numbers = label_numbers(labels)
    if clean(label) not in numbers:
        few = ", ".join([*numbers][:10]) + (", …" if len(numbers) > 10 else "")
        raise RegardError(f"{label!r} is not a label of this classifier; its labels are {few}.")
    return numbers[clean(label)]


def _check(**counts: int) -> None:
    for name, count in counts.items():
        check_range(f"--{name.replace('_', '-')}", count, 1)
