"""What a model computes on one text, ready to be shown with its numbers at any step, layer and head.

    calculation = calculate_language(model, tokenizer, "the dog ran")
    calculation.at(step=2, layer="self/0", head=1)            a WorkedExample
    calculation.layers                                        the layers with their numbers of heads: {"self/0": 4, …}

The model reads the text once, with `explain`; `at` only uses the recorded values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.base.numbers import pluralize
from regard.insight.arithmetic import attention, linear_attention, recurrent  # noqa: F401  # they register their layers
from regard.insight.arithmetic.averaging import pooled_mean
from regard.insight.arithmetic.beam import search_sections
from regard.insight.arithmetic.equation import WorkedExample, numbers
from regard.insight.arithmetic.ngram import Counted, ngram_sections
from regard.insight.arithmetic.prediction import predictions, stack_predictions
from regard.insight.arithmetic.translators import decoder_places, encoder_places, readout_layer
from regard.insight.arithmetic.view import LayerView, Sections, view
from regard.insight.trace import Trace
from regard.insight.tracing import label_number, system_name, target_of
from regard.insight.words import labels
from regard.systems.classifier import Classifier
from regard.systems.model import Model, Stack
from regard.systems.ngram import NGram
from regard.systems.translator import Translator
from regard.text.tokenizers.tokenizer import Tokenizer

ORDER = ("cross", "self", "average", "layer", "pool", "encoder")  # prefixes of the layers that a number can mean
MAX_STEPS = 100  # of a page


@dataclass(frozen=True)
class Calculation:
    system: str
    text: str
    read: tuple[str, ...]  # the token of each step
    then: tuple[str, ...]  # the token whose probability it shows
    places: dict[str, LayerView]
    after: Callable[[int], Sections]  # what follows the layers at a step: prediction and search
    run: str = ""

    @property
    def layers(self) -> dict[str, int]:
        """The layers that can be chosen, and how many heads each has."""
        return {name: place.heads for name, place in self.places.items()}

    @checked
    def at(self, step: int | None = None, layer: str | int | None = None, head: int | None = None) -> WorkedExample:
        """The arithmetic of one step.

        Args:
            step: The number of the step. Default: the last step.
            layer: A number or a name of `layers`. Default: the last layer with attention.
            head: The number of an attention head. Default: 0.

        Returns:
            The equations of the step with their numbers.

        Raises:
            RegardError: If there is no such step, layer or head.
        """
        name = self.layer_of(layer)
        place = self.places.get(name, LayerView(lambda step, head: [], words=self.read))
        steps = len(place.words)
        step = steps - 1 if step is None else step
        if not 0 <= step < steps:
            written = not place.before and any(other.before for other in self.places.values())
            raise RegardError(
                f"There is no step {step}: the steps of this {'translation' if written else 'text'} are 0 to "
                f"{steps - 1}, and step 0 reads {place.words[0]!r}."
            )
        if head is not None and not place.heads:
            raise RegardError(f"{name or self.system} has no heads: leave --head out.")
        if head is not None and not 0 <= head < place.heads:
            raise RegardError(f"There is no head {head}: {name} has {pluralize(place.heads, 'head')}, counted from 0.")
        chosen = (0 if head is None else head) if place.heads else None
        found = place.sections(step, chosen or 0)
        found += [] if place.before else self.after(step)
        return WorkedExample(
            system=self.system,
            text=self.text,
            step=step,
            layer=name,
            head=chosen,
            read=labels(place.words)[step],
            then="" if place.before else labels(self.then)[step],
            sections=tuple(found),
            layers=self.layers,
            run=self.run,
        )

    def at_all_steps(self, chosen: WorkedExample) -> list[WorkedExample]:
        """The same layer and head at every step of the text, for a page; for a long text only the chosen step."""
        steps = len(self.places[chosen.layer].words if chosen.layer else self.read)
        if steps > MAX_STEPS:
            return [chosen]
        return [self.at(step, chosen.layer or None, chosen.head) for step in range(steps)]

    def layer_of(self, layer: str | int | None) -> str:
        """The full name of a layer; None: the last one with attention."""
        kinds = [name.split("/")[0] for name in self.places]
        if layer is None:
            first = next((kind for kind in ORDER if kind in kinds), "")
            return next((name for name in reversed(self.places) if name.split("/")[0] == first), "")
        asked = str(layer)
        named = [asked, *(f"{kind}/{asked}" for kind in ORDER), f"{asked}/forward"]
        for name in named:
            if name in self.places:
                return name
        there = ", ".join(self.places) or "none"
        raise RegardError(
            f"There is no layer {asked!r} with arithmetic to show: the layers of {self.system} are {there}."
        )


# -- the three tasks -------------------------------------------------------------------------------------------------


@torch.no_grad()
def calculate_language(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    *,
    counts: Callable[[], Counted | None] = lambda: None,
    system: str = "",
    run: str = "",
) -> Calculation:
    """For a language model that reads `text` from the beginning of a line. `counts`: the counts of an n-gram."""
    model.eval()
    system = system_name(model, system)
    ids = [tokenizer.begin, *tokenizer.encode(text)]
    return _language(model, ids, tokenizer.token, text, counts, system, run, predicts=True)


@torch.no_grad()
def calculate_ids(model: Stack, ids: Sequence[int], word: Callable[[int], str]) -> Calculation:
    """For a model that reads exactly these tokens, without a boundary; only its layers, no prediction."""
    return _language(model, list(ids), word, "", lambda: None, type(model).__name__, "", predicts=False)


def _language(
    model: Model,
    ids: list[int],
    word: Callable[[int], str],
    text: str,
    counts: Callable[[], Counted | None],
    system: str,
    run: str,
    *,
    predicts: bool,
) -> Calculation:
    tokens = torch.tensor([ids], device=model.device)
    if not isinstance(model, NGram | Stack):
        raise _unknown(system)
    logits, _, parts = model.explain(tokens)
    then = [*ids[1:], int(logits[0, -1].argmax())]
    read, names = tuple(word(token) for token in ids), tuple(word(token) for token in then)
    if isinstance(model, NGram):
        counted_again = counts()

        def orders(step: int) -> Sections:
            return ngram_sections(model, ids, parts, word, step, then[step], counted_again)

        return Calculation(system, text, read, names, {}, orders, run)
    places = {}
    x = parts["embedding"]
    for name, layer in model.layers.named_children():
        inside = parts["layers"][name]
        try:
            key, places[key] = view(layer, x, inside, name, read)
        except NotImplementedError:
            raise _unknown(system) from None
        x = inside["hidden"]
    after = stack_predictions(model, parts, logits, word, then, x) if predicts else lambda step: []
    return Calculation(system, text, read, names, places, after, run)


@torch.no_grad()
def calculate_translation(
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
    trace: Trace | None = None,
    system: str = "",
    run: str = "",
) -> Calculation:
    """For a translator that writes `target`, or the result of beam search, which is included. `trace`: a trace of the
    same sentence and the same search, to avoid searching again.
    """
    model.eval()
    system = system_name(model, system)
    if trace is None:
        read, written, branches = target_of(
            model, source_tokenizer, tokenizer, source, target, prefix=prefix, beam=beam,
            length_penalty=length_penalty, forbidden=forbidden,
        )  # fmt: skip
    else:
        read, written = [*source_tokenizer.encode(source), source_tokenizer.eos], list(trace.written)
        branches = trace.beam
    sources = torch.tensor([read], device=model.device)
    tokens = torch.tensor([[tokenizer.eos, *written[:-1]]], device=model.device)
    encoded, source_parts = model.explain_encode(sources, None)
    begun = model.begin_from(encoded, sources, None)
    logits, _, parts = model.explain(tokens, begun)
    spoken = tuple(source_tokenizer.token(token) for token in read)
    asked = tuple(tokenizer.token(token) for token in tokens[0].tolist())
    places = decoder_places(model, parts, begun, asked, spoken)
    if places is None:
        raise _unknown(system)
    encoder = encoder_places(model, source_parts, spoken)
    places |= {name: replace(place, before=True) for name, place in encoder.items()}
    begun_words = len(tokenizer.encode(prefix))
    predict = predictions(model, parts["hidden"][0], logits[0], tokenizer.token, written)
    read_out = readout_layer(model, parts, asked)

    def after(step: int) -> Sections:
        return [
            *read_out(step), *predict(step), *search_sections(branches, step - begun_words, length_penalty),
        ]  # fmt: skip

    then = tuple(tokenizer.token(token) for token in written)
    return Calculation(system, source, asked, then, places, after, run)


@torch.no_grad()
def calculate_classification(
    model: Classifier,
    source_tokenizer: Tokenizer,
    label_tokenizer: Tokenizer,
    text: str,
    label: str | None = None,
    *,
    system: str = "",
    run: str = "",
) -> Calculation:
    """For a classifier: its steps are those of its encoder, and each is followed by the pooled result."""
    model.eval()
    system = system_name(model, system)
    read = [*source_tokenizer.encode(text), source_tokenizer.eos]
    if len(read) == 1:
        raise RegardError("There is nothing to label: give some text.")
    sources = torch.tensor([read], device=model.device)
    encoded, parts = model.explain_encode(sources, None)
    logits, _, _ = model.explain(
        torch.tensor([[label_tokenizer.eos]], device=model.device), model.begin_from(encoded, sources, None)
    )
    among = logits[0].index_fill(-1, torch.tensor(label_tokenizer.specials, device=logits.device), -torch.inf)
    asked = int(among[0].argmax()) if label is None else label_number(label, label_tokenizer)
    spoken = tuple(source_tokenizer.token(token) for token in read)
    memory, whole = encoded["memory"][0], encoded["whole"]
    places = encoder_places(model, parts, spoken)
    predict = predictions(model, whole, among, label_tokenizer.token, [asked])

    def pooled(step: int, head: int) -> Sections:
        return pooled_mean(model, numbers(memory), numbers(whole[0]), labels(spoken))

    name = label_tokenizer.token(asked)
    if model.settings.pool == "mean":
        places = {"pool": LayerView(pooled, 0, spoken), **places}
    then = (name,) * len(spoken)
    return Calculation(system, text, spoken, then, places, lambda step: [*predict(0)], run)


def _unknown(system: str) -> RegardError:
    return RegardError(
        f"The equations of {system} are your own, so Regard does not know them: --work supports the systems "
        f"of `regard systems`."
    )
