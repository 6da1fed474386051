"""All laws by number, in the contract's words, and `run_laws`, which checks a system.

for result in run_laws(builder("lstm")):
    print(result.number, result.holds, result.sentence)
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from regard.base.errors import RegardError
from regard.laws import contract
from regard.laws.closeness import Broken, RandomCase, leaves
from regard.laws.learning import it_can_memorise, micro_batches_are_one_batch, untrained_it_knows_nothing
from regard.laws.searching import beam_one_is_greedy
from regard.report.progress import say
from regard.systems.catalogue import load_class, load_module
from regard.systems.model import Model
from regard.systems.own.code import crash, is_own, trust_code
from regard.systems.own.stack import BY_SIZE, OwnLayer
from regard.systems.sizes import sizes_of

VOCABULARY = 17
COLUMNS = 6  # of the largest draws; no law reads more than three times as many tokens, so a context of 18 is enough
SMALL: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "context": 24, "embedding": 0, "dropout": 0.3}
WIDE: dict[str, Any] = {"layers": 1, "width": 32, "heads": 2, "context": 24, "embedding": 0}  # enough to memorise


class Build(Protocol):
    """Builds a new, untrained model. `learner`: wide enough to memorise a little, and without dropout."""

    def __call__(self, vocabulary: int = VOCABULARY, *, learner: bool = False) -> Model: ...


@dataclass(frozen=True)
class Law:
    number: int
    wording: str
    check: Callable[[Build], None]  # raises Broken
    advice: str  # a hint, if a crash is not in the author's own lines


@dataclass(frozen=True)
class LawResult:
    number: int
    wording: str
    holds: bool
    sentence: str = ""  # what broke


def run_laws(
    build: Build, each: Callable[[LawResult], object] | None = None, only: Collection[int] | None = None
) -> list[LawResult]:
    """Checks every law, or those of these numbers, on a fresh copy of the system. A crash is a broken law, also
    reported in a sentence."""
    results: list[LawResult] = []
    for law in LAWS:
        if only is not None and law.number not in only:
            continue
        results.append(_try(law, build))
        if each:
            each(results[-1])
    return results


def _try(law: Law, build: Build) -> LawResult:
    try:
        torch.manual_seed(0)
        law.check(build)
    except Broken as broken:
        return LawResult(law.number, law.wording, False, f"{broken}.")
    except RegardError as error:
        return LawResult(law.number, law.wording, False, str(error))
    except Exception as error:  # a user's code can raise anything
        return LawResult(law.number, law.wording, False, crash(error) or _outside(error, law.advice))
    return LawResult(law.number, law.wording, True)


def _outside(error: Exception, advice: str) -> str:
    """A crash outside the author's lines: what is missing, or a hint."""
    if isinstance(error, NotImplementedError):
        return f"its `{traceback.extract_tb(error.__traceback__)[-1].name}` is not implemented."
    first = next(iter(str(error).splitlines()), "").rstrip(".")
    return f"it crashed with {type(error).__name__}" + (f" ({first})" if first else "") + f"; {advice}."


# -- models for the laws ---------------------------------------------------------------------------------------------


def builder(system: str) -> Build:
    """A function that builds a small model of a system, registered or the user's own."""
    name = trust_code(system).name if is_own(system) else system
    parts, kind = load_module(name), load_class(name)
    if isinstance(parts, OwnLayer):
        with suppress_but(RegardError):  # a crash is reported with its law
            parts.examine()
    names = {field.name for field in dataclasses.fields(parts.Settings)}
    tiny = (BY_SIZE["tiny"] if isinstance(parts, OwnLayer) else sizes_of(name).by_size["tiny"])["model"]

    def build(vocabulary: int = VOCABULARY, *, learner: bool = False) -> Model:
        quiet = {name: 0.0 for name in names if name.startswith("dropout")}
        wanted = {**WIDE, **quiet} if learner else SMALL
        try:
            settings = parts.Settings(**{**tiny, **{key: value for key, value in wanted.items() if key in names}})
        except RegardError:  # these settings conflict in this system
            settings = parts.Settings(**{**tiny, **(quiet if learner else {})})
        return kind(vocabulary, settings)

    if isinstance(parts, OwnLayer):
        with suppress_but(RegardError):
            if idle := never_changed(build):
                say(
                    f"note: the state's {', '.join(idle)} never changes, whatever the model reads: "
                    "return its new value, or leave it out."
                )
    return build


def never_changed(build: Build) -> list[str]:
    """State entries that no token changes: no law forbids them, but they are probably a mistake."""
    torch.manual_seed(0)
    model = stirred(build)
    draw = draws(model)[-1]
    with torch.no_grad():
        before = draw.begin(model)
        _, after = model(draw.tokens(model), before)
    now = dict(leaves(after["past"]))
    same = (name for name, leaf in leaves(before["past"]) if name in now and torch.equal(now[name], leaf))
    return list(dict.fromkeys(name.rpartition(".")[2] for name in same))  # each name once


@contextmanager
def suppress_but(kept: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kept:
        raise
    except Exception:
        pass


def stirred(build: Build) -> Model:
    """A model in fp64 and eval(), with weights large enough for every part to matter; n-grams count a random text."""
    model = build().double().eval()
    count = getattr(model, "count", None)
    if count is not None:
        count(np.random.default_rng(0).integers(0, VOCABULARY, 400))
        return model.double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model


def draws(model: Model) -> list[RandomCase]:
    """Small cases first, because they are the easiest to debug."""
    most = COLUMNS if model.context is None else max(2, min(COLUMNS, model.context // 3))
    sizes = ((2, 2), (2, 3), (3, 4), (3, 5), (4, COLUMNS), (4, COLUMNS))
    return [RandomCase(seed, rows, min(columns, most)) for seed, (rows, columns) in enumerate(sizes)]


def over_draws(law: Callable[[Model, RandomCase], None]) -> Callable[[Build], None]:
    def check(build: Build) -> None:
        model = stirred(build)
        contract.asking_twice_changes_nothing(model, draws(model)[0])
        for draw in draws(model):
            law(model, draw)

    return check


def saving(build: Build) -> None:
    model = stirred(build)

    def again() -> Model:
        return build().double().eval()  # with other initial weights: the random numbers have gone on

    contract.saving_keeps_every_bit(model, draws(model)[-1], again)


def learning(build: Build) -> None:
    if not any(True for _ in build().parameters()):
        return  # counted systems are not trained
    untrained_it_knows_nothing(build(1000).double().eval(), RandomCase(seed=1, rows=40, columns=20))
    it_can_memorise(lambda: build(learner=True).float())


# -- all of them -----------------------------------------------------------------------------------------------------

STATE = "check the state that it returns: nested dicts of tensors, rows first"
LAWS: tuple[Law, ...] = (
    Law(
        1,
        "splitting a sequence into several calls changes neither logits nor gradients",
        over_draws(contract.cutting_changes_nothing),
        "check how a second call continues from the state of the first",
    ),
    Law(
        2,
        "token t changes nothing before t, exactly",
        over_draws(contract.the_future_changes_nothing),
        "check the shapes of its outputs",
    ),
    Law(
        3,
        "padding, its content and the other rows of a batch change nothing, in this call or later ones",
        over_draws(contract.padding_changes_nothing),
        "check how it handles rows of different lengths, and a state with a capacity",
    ),
    Law(
        4,
        "probabilities sum to 1",
        over_draws(contract.probabilities_sum_to_one),
        "check the shapes of its logits and its loss",
    ),
    Law(
        5,
        "the fast path equals the written equation, values and gradients",
        over_draws(contract.the_fast_path_is_the_equation),
        "check what `explain` returns: y, the state, and a dict of parts",
    ),
    Law(
        6,
        "save → load is bit-equal",
        saving,
        "check its parameters and buffers: each must be a separate tensor",
    ),
    Law(7, "beam 1 = greedy", over_draws(beam_one_is_greedy), STATE),
    Law(
        8,
        "a functional call leaves its input state unchanged",
        over_draws(contract.a_call_leaves_its_state_unchanged),
        STATE,
    ),
    Law(
        9,
        "fixed capacity = growing, leaf shapes and dtypes stable",
        over_draws(contract.fixed_capacity_is_growing),
        "with a capacity, every tensor of the state must keep its shape and dtype from the beginning",
    ),
    Law(10, "reorder then continue = continue then reorder", over_draws(contract.reordering_commutes), STATE),
    Law(
        11,
        "length 0 freezes a row",
        over_draws(contract.length_zero_freezes),
        "check what it does where span.lengths is 0, and with a state with a capacity",
    ),
    Law(
        12,
        "k micro-batches or ranks = one batch",
        over_draws(micro_batches_are_one_batch),
        "check how its loss depends on the number of rows",
    ),
    Law(
        13,
        "it memorizes four sentences, and its untrained loss ≈ log V",
        learning,
        "check how gradients flow through it",
    ),
    Law(14, "no gradient flows across a detach", over_draws(contract.nothing_flows_across_a_detach), STATE),
)
