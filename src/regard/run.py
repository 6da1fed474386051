"""A run: one folder that holds a trained model and everything that made it, and what can be done with it.

    recipe.toml            every setting, resolved
    run.json               version, device, threads, corpus and its checksum
    tokenizer.json         text ↔ tokens
    model.safetensors      the weights that were best on validation
    training.safetensors   the checkpoint a resume starts from (the last weights are in it)
    metrics.jsonl          the learning curve
    mine.py                where the system is one's own: its code, as it was

In Python the lecture's loop works on it with plain strings:

    run, state = regard.load("runs/mine"), None
    for word in run.words("I love nebully"):
        prediction, state = run(word, state)
    prediction.top(5)

`run.words` cuts a text as the model does: a word model gives ["I", "love", "nebully"], byte pairs keep their spaces.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.decoding.beam import beam_search
from regard.decoding.generate import generate, read_prompts
from regard.decoding.sampling import Sampling
from regard.errors import RegardError
from regard.evaluation.documents import Documents
from regard.evaluation.perplexity import Likelihood, Method, token_losses
from regard.evaluation.scoring import line_losses
from regard.files import reading
from regard.layers.state import State
from regard.recipe import Recipe, compose, read_recipe
from regard.report.progress import progress, say
from regard.systems.catalogue import find, load_class
from regard.systems.code import is_own, locate, reach, vouch, was_named
from regard.systems.model import Model
from regard.text.corpus import Corpus, open_corpus
from regard.text.tokenizer import Tokenizer
from regard.text.tokens import TokenArray, cached
from regard.training.checkpoint import load_tensors, unflatten

FORMAT = 1  # of the run folder; raised when an older Regard could not read it


class Prediction:
    """What comes next: a distribution over the vocabulary."""

    def __init__(self, logits: Tensor, tokenizer: Tokenizer):
        self.log_probabilities = torch.log_softmax(logits.double(), -1).cpu().numpy()  # [V]
        self._tokenizer = tokenizer

    @property
    def probabilities(self) -> np.ndarray:
        return np.exp(self.log_probabilities)

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """The most probable next tokens with their probabilities, best first."""
        order = np.argsort(-self.log_probabilities, kind="stable")[:count]
        return [(self._tokenizer.token(int(n)), float(math.exp(self.log_probabilities[n]))) for n in order]

    def probability(self, token: str) -> float:
        """P(token): `token` is one token of the vocabulary, or text that is a single token."""
        ids = self._tokenizer.encode(token)
        if token == "<eos>":
            ids = [self._tokenizer.eos]
        if len(ids) != 1:
            raise RegardError(f"{token!r} is {len(ids)} tokens for this model; ask for one at a time.")
        return float(math.exp(self.log_probabilities[ids[0]]))

    @property
    def entropy(self) -> float:
        """In bits."""
        p = self.probabilities
        return float(-(p * np.where(p > 0, self.log_probabilities, 0)).sum() / math.log(2))

    def __repr__(self) -> str:
        return "Prediction(" + ", ".join(f"{token!r} {p:.3f}" for token, p in self.top(3)) + ", …)"


@dataclass(frozen=True)
class LineScore:
    text: str
    tokens: list[str]
    log_probabilities: list[float]  # nats, one per token, <eos> last

    @property
    def log_probability(self) -> float:
        return float(sum(self.log_probabilities))


class Run:
    """A trained model with its tokenizer: call it, evaluate it, let it write, let it score."""

    def __init__(self, folder: Path, recipe: Recipe, tokenizer: Tokenizer, model: Model):
        self.folder, self.recipe, self.tokenizer, self.model = folder, recipe, tokenizer, model
        model.eval()

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}: {self.recipe.system}, {self.parameters:,} parameters)"

    @property
    def parameters(self) -> int:
        """Numbers learned from the text: weights, or what an n-gram stores."""
        return count_parameters(self.model)

    # -- the lecture's call ------------------------------------------------------------------------------------------

    @torch.no_grad()
    def __call__(self, words: str, state: State | None = None) -> tuple[Prediction, State]:
        """Read some text after `state` (None: the beginning of a line) and predict what follows."""
        ids = self.tokenizer.encode(words)
        if state is None:
            ids = [self.tokenizer.eos, *ids]
        if not ids:
            raise RegardError("There is nothing to read: give at least one character.")
        context = self.model.context
        if context is not None and (0 if state is None else int(state["seen"].max())) + len(ids) > context:
            raise RegardError(f"This model remembers at most {context} tokens: start again with state=None.")
        hidden, state = self.model.read(torch.tensor([ids], device=self.model.device), state)
        return Prediction(self.model.predict(hidden[:, -1])[0], self.tokenizer), state

    def words(self, text: str) -> list[str]:
        """The text as this model's tokens, each as text: what to loop over."""
        if self.tokenizer.kind == "char":
            return list(self.tokenizer.normalise(text))
        pieces: list[str] = []
        pending: list[int] = []
        for token in self.tokenizer.encode(text):
            pending.append(token)
            piece = self.tokenizer.decode(pending)
            if self.tokenizer.encode(piece) == pending:  # else it is part of a character, which needs the next token
                pieces.append(piece)
                pending = []
        return pieces

    # -- how good is it ----------------------------------------------------------------------------------------------

    def evaluate(
        self,
        split: str | None = None,
        *,
        data: str | None = None,
        stream: bool = False,
        segment: int | None = None,
        overlap: int | None = None,
        rows: int | None = None,
        documents: bool = False,
    ) -> dict[str, Any]:
        """Perplexity and bits per character on held-out text, with how they were computed; with `documents` also the
        loss of each document of it, for intervals."""
        corpus = self.corpus(data)
        name = choose_split(corpus, split)
        array = tokens_of(corpus, self.tokenizer, name)
        method = Method.of(self.model, segment, overlap, stream)
        began = time.perf_counter()
        result, cut = Likelihood(0.0, 0), Documents.cut(array.ids, self.tokenizer.eos) if documents else None
        with progress(f"evaluating {name}", len(array.ids), unit=" tokens") as bar:
            for losses in token_losses(self.model, array.ids, method, eos=self.tokenizer.eos, rows=rows):
                if cut is not None:
                    cut.add(result.tokens, losses)
                result = result.plus(losses)
                bar.advance(len(losses))
        facts = self._report(result, array, corpus, name, method, time.perf_counter() - began)
        if cut is not None:
            facts["documents"] = {
                "tokens": cut.tokens.tolist(), "nats": cut.nats.tolist(), "whole_lines": cut.whole_lines
            }  # fmt: skip
        return facts

    def _report(
        self, result: Likelihood, array: TokenArray, corpus: Corpus, split: str, method: Method, seconds: float
    ) -> dict[str, Any]:
        why_not = self._no_bits_per_character(array)
        bits = None if why_not else result.nats / math.log(2) / array.characters
        return {
            "system": self.recipe.system,
            "corpus": corpus.name,
            "split": split,
            "perplexity": result.perplexity,
            "nats_per_token": result.mean,
            "bits_per_character": bits,
            **({"bits_per_character_refused": why_not} if why_not else {}),
            "tokens": result.tokens,
            "characters": array.characters,
            "unknown_tokens": array.unknown,
            "unknown_rate": array.unknown / max(result.tokens, 1),
            **({"impossible_tokens": result.impossible} if result.impossible else {}),
            "counted": "every token, with <eos> at the end of each line",
            "method": method.sentence,
            "tokenizer": f"{self.tokenizer.kind}, {self.tokenizer.vocabulary} symbols",
            "parameters": self.parameters,
            "seconds": round(seconds, 3),
        }

    def _no_bits_per_character(self, array: TokenArray) -> str:
        """Bits per character mean something only where the tokens determine the text."""
        if array.unknown:
            return f"{array.unknown} tokens are <unk>, which stands for more than one word"
        if self.tokenizer.kind == "word" and not self.tokenizer.pretokenised:
            return "word tokens do not say where the spaces were"
        return ""

    def corpus(self, data: str | None = None) -> Corpus:
        """The corpus this run was trained on, or another one."""
        if data is not None:
            return open_corpus(data)
        if not self.recipe.data.corpus:
            raise RegardError(f"{self.folder} was imported without a text: say which one with --data.")
        return corpus_of(self.folder, self.recipe)

    # -- what does it write ------------------------------------------------------------------------------------------

    def generate(
        self,
        prompt: str = "",
        *,
        max_tokens: int = 200,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        lines: int = 0,
        on_reread: Callable[[int], None] | None = None,
    ) -> str:
        """The prompt and what the model writes after it; temperature 0 is greedy, `lines` > 0 ends after so many."""
        *_, text = self.stream(
            prompt,
            max_tokens=max_tokens,
            sampling=Sampling(temperature, top_k, top_p),
            seed=seed,
            lines=lines,
            on_reread=on_reread,
        )
        return text

    def stream(
        self,
        prompt: str,
        *,
        max_tokens: int,
        sampling: Sampling,
        seed: int = 0,
        lines: int = 0,
        on_reread: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        """The text so far, prompt included, each time it has grown by a token that completes a character."""
        read, unfit = self._opening(prompt)
        steps = generate(
            self.model,
            [[self.tokenizer.eos, *read]],
            max_tokens=max_tokens,
            eos=self.tokenizer.eos,
            lines=lines,
            sampling=sampling,
            seed=seed,
            forbidden=self.forbidden,
            forbidden_first=unfit,
            on_reread=on_reread,
        )
        yield self.tokenizer.decode(read)
        for (token,) in steps:
            if token is not None:
                read.append(token)
                text = self.tokenizer.decode(read)
                if not text.endswith("\ufffd"):  # a character of several bytes is still being written
                    yield text
        yield self.tokenizer.decode(read)

    def _opening(self, prompt: str) -> tuple[list[int], list[int]]:
        """The prompt's tokens, and those that may not come next.

        Byte pairs keep a word's space with the word, so a prompt that ends in a space would ask for a word without one.
        The space is left out of what is read, and the next token must bring it.
        """
        if self.tokenizer.kind != "bpe" or not prompt.endswith(" ") or not prompt.strip():
            return self.tokenizer.encode(prompt), []
        without = [n for n, token in enumerate(self.tokenizer.tokens) if not token.startswith(" ")]
        return self.tokenizer.encode(prompt[:-1]), without

    def beam(self, prompt: str = "", *, width: int = 5, max_tokens: int = 200) -> list[tuple[str, float]]:
        """The most probable ways to finish the prompt's line, with their log-probabilities (nats), best first."""
        if width < 1:
            raise RegardError(f"--beam must be at least 1, not {width}.")
        read = [self.tokenizer.eos, *self.tokenizer.encode(prompt)]
        limit = self.model.context
        if limit is not None and len(read) + max_tokens > limit:
            raise RegardError(
                f"Beam search keeps everything in the model's {limit} tokens: ask for fewer --max-tokens."
            )
        with torch.no_grad():
            logits, state = read_prompts(self.model, [read], None)
            (found,) = beam_search(
                self.model,
                logits,
                state,
                width=width,
                max_tokens=max_tokens,
                eos=self.tokenizer.eos,
                forbidden=self.forbidden,
            )
        return [
            (self.tokenizer.decode([*read[1:], *hypothesis.tokens]).removesuffix("\n"), hypothesis.log_probability)
            for hypothesis in found
        ]

    @property
    def forbidden(self) -> list[int]:
        """Tokens that may be read but are never written."""
        return [n for n in self.tokenizer.specials if n != self.tokenizer.eos]

    # -- how probable is this ----------------------------------------------------------------------------------------

    def score(self, lines: Iterable[str]) -> Iterator[LineScore]:
        """Log-probability of each line, in nats, read on its own from the boundary to its <eos>."""
        chunk: list[str] = []
        for line in lines:
            chunk.append(line)
            if len(chunk) == 256:  # constant memory, whatever the size of the file
                yield from self._score(chunk)
                chunk = []
        yield from self._score(chunk)

    def _score(self, lines: Sequence[str]) -> Iterator[LineScore]:
        ids = [[*self.tokenizer.encode(line), self.tokenizer.eos] for line in lines]
        for line, tokens, losses in zip(lines, ids, line_losses(self.model, ids, self.tokenizer.eos)):
            yield LineScore(line, [self.tokenizer.token(n) for n in tokens], [-float(loss) for loss in losses])


# -- opening a folder ------------------------------------------------------------------------------------------------


def load(folder: str | Path, *, weights: str = "best", device: str = "cpu") -> Run:
    """Open a run folder. `weights`: "best" on validation, or "last"."""
    folder = Path(folder)
    recipe, tokenizer = open_folder(folder)
    model = build_model(recipe, tokenizer)
    set_weights(model, read_weights(folder, weights), folder)
    return Run(folder, recipe, tokenizer, model.to(pick_device(device)))


def open_folder(folder: Path) -> tuple[Recipe, Tokenizer]:
    """The recipe and tokenizer of a run, after making sure that this version can read it."""
    facts = read_facts(folder)
    tree = read_recipe(folder / "recipe.toml")
    if is_own(str(tree["system"])):
        tree["system"] = own_code(str(tree["system"]), facts, folder)
    recipe = compose(str(tree["system"]), None, tree)
    return recipe, Tokenizer.load(folder / "tokenizer.json")


def read_facts(folder: Path) -> dict[str, Any]:
    """run.json: which version wrote the run, on what, from which text."""
    if not folder.exists():
        raise RegardError(f"There is no run {folder}; `regard train` makes one.")
    if not (folder / "run.json").is_file():
        raise RegardError(f"{folder} is not a run: it has no run.json; `regard train` makes one.")
    with reading(folder / "run.json") as stream:
        content = stream.read()
    try:
        facts = json.loads(content)
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        raise RegardError(f"{folder / 'run.json'} is damaged; restore it, or train the run again.")
    if facts.get("format") != FORMAT:
        raise RegardError(
            f"{folder} was written by Regard {facts.get('regard', '?')} in run format {facts.get('format')}; "
            f"this version reads format {FORMAT}: install the version that wrote it."
        )
    return facts


def own_code(system: str, facts: dict[str, Any], folder: Path) -> str:
    """The name of the code a run was trained with: the file it names or, if that has changed since, the run's copy.

    It is run only if this very code was named on this machine before; see `systems/code.py`.
    """
    recorded = facts.get("code") or {}
    place, _, label = system.rpartition(":")
    copy = folder / Path(str(recorded.get("file", "")) or "code").name
    for name in (system, f"{copy}:{label}"):
        try:
            code = locate(name)
        except RegardError:
            continue
        if code.digest != recorded.get("sha256"):
            continue
        if name != system and was_named(code.digest, Path(place)):
            say(f"note: {place} is not what {folder} was trained with; using the run's own copy, {copy}")
            reach(Path(place).parent)
        else:
            vouch(code, folder)
        return code.name
    raise RegardError(
        f"{folder} was trained with code of its own, and neither {place} nor {copy} is that code any more: "
        "put it back, or train a new run."
    )


def read_weights(folder: Path, weights: str = "best") -> dict[str, Tensor]:
    if weights not in ("best", "last"):
        raise RegardError(f"--weights must be best or last, not {weights!r}.")
    best, checkpoint = folder / "model.safetensors", folder / "training.safetensors"
    if weights == "best" and best.exists():
        return load_tensors(best)[0]
    if checkpoint.exists():
        if weights == "best":
            say(f"note: {folder} has not been validated yet; these are its last weights")
        return unflatten(load_tensors(checkpoint)[0], "model")
    if best.exists():  # a counted system has one set of numbers
        return load_tensors(best)[0]
    raise RegardError(f"{folder} holds no weights: its training never began; train it again.")


def set_weights(model: Model, weights: dict[str, Tensor], folder: Path) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError:
        raise RegardError(f"The weights in {folder} do not fit its recipe.toml: one of the two was changed.") from None


def build_model(recipe: Recipe, tokenizer: Tokenizer) -> Model:
    return load_class(recipe.system)(tokenizer.vocabulary, recipe.model)


def is_counted(recipe: Recipe) -> bool:
    return find(recipe.system).trained == "counting"


def count_parameters(model: Model) -> int:
    counted = getattr(model, "stored_numbers", None)
    return counted if counted is not None else sum(p.numel() for p in model.parameters())


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise RegardError(f"The device {name!r} is not available here; use cpu, cuda or auto.")
    return device


def corpus_of(folder: Path, recipe: Recipe) -> Corpus:
    """The text a run was trained on, if it still is that text: else what was held out may not be held out any more."""
    corpus = open_corpus(recipe.data.corpus, recipe.data.split)
    if corpus.checksum() != read_facts(folder)["corpus"].get("checksum"):
        raise RegardError(
            f"{recipe.data.corpus} has changed since {folder} was trained on it; put it back, evaluate on another "
            f"with --data, or start anew with --from {folder}."
        )
    return corpus


def choose_split(corpus: Corpus, split: str | None) -> str:
    """The split asked for; without one, test, or valid where there is no test."""
    if split is None:
        return "test" if "test" in corpus.splits else "valid"
    if split not in corpus.splits:
        raise RegardError(f"{corpus.name} has no split {split!r}; it has {', '.join(corpus.splits)}.")
    return split


def tokens_of(corpus: Corpus, tokenizer: Tokenizer, split: str) -> TokenArray:
    """A split as one array of tokens, made once and kept in the cache."""
    with progress(f"tokenising {split}", corpus.splits[split].size, unit=" bytes") as bar:
        return cached(corpus, tokenizer, split, progress=bar.reach)
