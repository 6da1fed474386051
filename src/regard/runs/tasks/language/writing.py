"""Text generation by a language model: one text, a stream, a batch, or beam search."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.decoding.adjustments import Adjustment
from regard.decoding.beam import WIDEST, beam_search
from regard.decoding.constraints import Constraints
from regard.decoding.engine import Engine, Prompt
from regard.decoding.generate import read_prompts
from regard.decoding.growing_text import GrowingText, Until
from regard.decoding.sampling import Sampling, mask_tokens, one_sampling, sampling_probabilities
from regard.runs.data_lookup import template_of
from regard.runs.lists import each_line
from regard.runs.run import Run
from regard.runs.store.folder import forbidden_tokens
from regard.runs.tasks.language.scores import NextToken
from regard.text.chat_template import ChatTemplate, read_messages, read_template
from regard.text.dialogue_tokens import prompt_tokens


@checked
class WritingRun(Run):
    """A run that generates text."""

    @cached_property
    def chat_template(self) -> str:
        """Its Jinja template for dialogues; "" if it has none of its own."""
        return read_template(self.folder)

    @cached_property
    def template(self) -> ChatTemplate:
        """Its chat template, or the plain one; it renders dialogues in a separate process."""
        return template_of(self.chat_template, self.tokenizer)

    def reply(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int = 200,
        sampling: Sampling | None = None,
        seed: int = 0,
    ) -> Iterator[str]:
        """Generate the next message of a dialogue, and yield each piece of it as soon as it is complete.

        Args:
            messages: The dialogue so far, as [{"role": "user", "content": "Hello"}].
            max_tokens: The maximum number of tokens to generate.
            sampling: The sampling settings.
            seed: The random seed of sampling.

        Yields:
            The pieces of the message, up to the end marked by the template.

        Raises:
            RegardError: If the template cannot render the dialogue, or an argument is wrong.
        """
        read = prompt_tokens(read_messages(list(messages)), self.template, self.tokenizer)
        ends, stops = self.reply_ends()
        written = GrowingText(self.tokenizer, read[1:])
        until, blank = Until(stops), True
        limits: dict[str, Any] = {"max_tokens": max_tokens, "lines": self._lines(0), "seed": seed}
        for _, tokens, done in self._engine(sampling or Sampling(), rows=1).stream([Prompt(read)], **limits):
            for place, token in enumerate(tokens, 1):
                ended = token in ends or (done and place == len(tokens))
                piece = until.add("" if token in ends else written.add([token]), ended)
                piece = piece.lstrip() if blank else piece
                blank = blank and not piece
                if piece:
                    yield piece
                if until.met or ended:
                    return

    def reply_ends(self) -> tuple[frozenset[int], tuple[str, ...]]:
        """Find out how an answer ends.

        Returns:
            The tokens that end it, such as `<|im_end|>`, and the stop strings before which it ends.

        Raises:
            RegardError: If the template cannot render a dialogue.
        """
        closing = self.tokenizer.encode_template(self.template.closing)
        if closing[0] in self.tokenizer.specials and self.tokenizer.kind == "imported":
            return frozenset((closing[0], self.tokenizer.eos)), ()
        return frozenset(() if self.tokenizer.begin == self.tokenizer.eos else (self.tokenizer.eos,)), (
            self.template.closing,
        )

    def generate(
        self,
        prompt: str = "",
        *,
        max_tokens: int = 200,
        sampling: Sampling | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        lines: int = 0,
        on_reread: Callable[[int], None] | None = None,
    ) -> str:
        """Continue a prompt.

        Args:
            prompt: The beginning of the text.
            max_tokens: The maximum number of tokens to generate.
            sampling: The sampling settings, including penalties and constraints. Alternatively, give some of its
                fields:
            temperature: The divisor of the logits; 0 always chooses the most probable token (greedy). Default: 1.
            top_k: Sample from this many of the most probable tokens; 0 means no limit.
            top_p: Sample from the smallest set of most probable tokens whose total probability reaches this value; 1
                means no limit.
            seed: The random seed of sampling.
            lines: Stop after this many lines; 0 means no limit.
            on_reread: Called with the number of tokens that are read again when the model's context is full.

        Returns:
            The prompt followed by the generated text.

        Raises:
            RegardError: If an argument is wrong.
        """
        how = one_sampling(sampling, temperature, top_k, top_p)
        opening = self.opening(prompt, exact=how.constrained)
        (tokens,) = self._engine(how, rows=1).texts(
            [opening], max_tokens=max_tokens, lines=self._lines(lines), seed=seed, on_reread=on_reread
        )
        return self.tokenizer.decode([*opening.tokens[1:], *self._content(how, tokens)])

    def stream(
        self,
        prompt: str = "",
        *,
        max_tokens: int = 200,
        sampling: Sampling | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        lines: int = 0,
        on_reread: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        """Continue a prompt, and yield each piece of the text as soon as it is complete.

        Args:
            prompt: The beginning of the text.
            max_tokens: The maximum number of tokens to generate.
            sampling: The sampling settings, including penalties and constraints. Alternatively, give some of its
                fields:
            temperature: The divisor of the logits; 0 always chooses the most probable token (greedy). Default: 1.
            top_k: Sample from this many of the most probable tokens; 0 means no limit.
            top_p: Sample from the smallest set of most probable tokens whose total probability reaches this value; 1
                means no limit.
            seed: The random seed of sampling.
            lines: Stop after this many lines; 0 means no limit.
            on_reread: Called with the number of tokens that are read again when the model's context is full.

        Yields:
            The new text, without the prompt. Characters are never split.

        Raises:
            RegardError: If an argument is wrong.
        """
        how = one_sampling(sampling, temperature, top_k, top_p)
        opening = self.opening(prompt, exact=how.constrained)
        read, written = list(opening.tokens[1:]), self.as_read(prompt)
        limits: dict[str, Any] = {"max_tokens": max_tokens, "lines": self._lines(lines)}
        steps = self._engine(how, rows=1).stream([opening], seed=seed, on_reread=on_reread, **limits)
        for _, tokens, _ in steps:
            read += self._content(how, tokens)
            text = self.tokenizer.decode(read)
            if len(text) > len(written):  # otherwise a character is incomplete
                yield text[len(written) :]
                written = text

    def _lines(self, lines: int) -> int:
        """The lines to generate; a text that begins and ends with different tokens is always one line."""
        return lines or int(self.tokenizer.begin != self.tokenizer.eos)

    def _content(self, how: Sampling, tokens: list[int]) -> list[int]:
        """The tokens without the final <eos> of a constrained text, which is not part of the text."""
        return tokens[:-1] if how.constrained and tokens[-1:] == [self.tokenizer.eos] else tokens

    @torch.no_grad()
    def choices(
        self, prompt: str = "", sampling: Sampling | None = None, top: int = 20, *, writable: bool = False
    ) -> list[NextToken]:
        """Return the tokens from which `generate` chooses the next one.

        Args:
            prompt: The text so far. If it is longer than the model's context, its end is read.
            sampling: The sampling settings.
            top: The maximum number of tokens to return.
            writable: Leave out tokens that cannot be sampled, and parts of characters.

        Returns:
            The most probable tokens, best first.

        Raises:
            RegardError: If an argument is wrong.
        """
        check_range("--top", top, 0)
        how = sampling or Sampling()
        opening = self.opening(prompt, exact=how.constrained)
        read, written = list(opening.tokens[1:]), self.as_read(prompt)
        end = opening.tokens[-self.model.context :] if self.model.context else opening.tokens
        logits, _ = read_prompts(self.model, [end], None)
        allowed = mask_tokens(logits, [*self.forbidden, *opening.unfit])
        whole = logits.double().softmax(-1)[0]
        if how.adjusts:
            allowed = Adjustment(how, opening.tokens, self.constraints.begin(how))(allowed[0])[None]
        drawn = sampling_probabilities(allowed, how)[0]
        found: list[NextToken] = []
        for number in allowed[0].sort(descending=True, stable=True).indices.tolist():
            if len(found) == top:
                break
            text = self.tokenizer.decode([*read, number])[len(written) :]
            if not writable or (drawn[number] and text):
                token, chance = self.tokenizer.token(number), float(drawn[number])
                found.append(NextToken(number, token, text, float(whole[number]), chance))
        return found

    def as_read(self, text: str) -> str:
        """Encode a text and decode it again.

        Args:
            text: Any text.

        Returns:
            The text after normalization, without spaces that no token contains.

        Raises:
            RegardError: If an argument is wrong.
        """
        return self.tokenizer.decode(self.tokenizer.encode(text))

    def completions(
        self,
        prompts: str | Iterable[str],
        *,
        max_tokens: int = 200,
        sampling: Sampling | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        before: int = 0,
        rows: int | None = None,
        on_reread: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        """Complete many lines in batches and in constant memory. No line depends on the others.

        The samples of a line depend only on the seed and its line number.

        Args:
            prompts: The beginnings of the lines: a list, an open file, or one string.
            max_tokens: The maximum number of tokens to generate for each line.
            sampling: The sampling settings, including penalties and constraints. Alternatively, give some of its
                fields:
            temperature: The divisor of the logits; 0 always chooses the most probable token (greedy). Default: 1.
            top_k: Sample from this many of the most probable tokens; 0 means no limit.
            top_p: Sample from the smallest set of most probable tokens whose total probability reaches this value; 1
                means no limit.
            seed: The random seed of sampling.
            before: The number of lines completed in earlier calls.
            rows: The number of lines in a batch. It affects only memory and speed.
            on_reread: Called with the number of tokens that are read again when the model's context is full.

        Yields:
            The complete line of each prompt, in order.

        Raises:
            RegardError: If an argument is wrong.
        """
        taken: deque[list[int]] = deque()  # the tokens read for prompts that are not completed yet

        how = one_sampling(sampling, temperature, top_k, top_p)

        def openings() -> Iterator[Prompt]:
            for prompt in each_line(prompts):
                opening = self.opening(prompt, exact=how.constrained)
                taken.append(list(opening.tokens[1:]))
                yield opening

        engine = self._engine(how, rows, one_line=True)
        limits: dict[str, Any] = {"max_tokens": max_tokens, "lines": 1, "seed": seed, "first": before}
        for tokens in engine.texts(openings(), on_reread=on_reread, **limits):
            line = tokens[:-1] if tokens[-1:] == [self.tokenizer.eos] else tokens
            yield self.tokenizer.decode([*taken.popleft(), *line])

    def _engine(self, sampling: Sampling, rows: int | None, *, one_line: bool = False) -> Engine:
        build = partial(self.new_engine, sampling, rows, one_line=one_line)
        engine: Engine = self._engine_for((sampling, rows, one_line), build)
        return engine

    def new_engine(self, sampling: Sampling, rows: int | None = None, *, one_line: bool = False) -> Engine:
        """Build an engine that generates many texts at once, for callers that submit texts and run its steps.

        Args:
            sampling: The sampling settings.
            rows: The number of texts in a batch.
            one_line: Generate no line break except the one that ends a text.

        Returns:
            The engine.

        Raises:
            RegardError: If an argument is wrong.
        """
        if rows is not None:
            check_range("--rows", rows, 1)
        unseen = () if sampling.constrained else self.unseen  # a constraint may require unseen bytes
        forbidden, eos = forbidden_tokens(self.tokenizer, unseen, one_line=one_line), self.tokenizer.eos
        how: dict[str, Any] = {"sampling": sampling, "guides": partial(self.constraints.begin, sampling)}
        return Engine(self.model, eos=eos, forbidden=forbidden, rows=rows, install=self.install, **how)

    @cached_property
    def constraints(self) -> Constraints:
        """Follows constraints with the run's tokens."""
        return Constraints(self.tokenizer)

    def opening(self, prompt: str, *, exact: bool = False) -> Prompt:
        """Encode a prompt.

        In byte-pair encoding, a space belongs to the word after it, so a prompt that ends in a space would ask for a
        word without one. This space is therefore not read, and the next token must begin with it, if any allowed token
        does.

        Args:
            prompt: The beginning of a text.
            exact: Also read a space at the end.

        Returns:
            The tokens to read, and the tokens that must not come next.

        Raises:
            RegardError: If an argument is wrong.
        """
        if exact or not prompt.endswith(" ") or not prompt.strip() or not self._without_space:
            return Prompt([self.tokenizer.begin, *self.tokenizer.encode(prompt)])
        return Prompt([self.tokenizer.begin, *self.tokenizer.encode(prompt[:-1])], self._without_space)

    @cached_property
    def _without_space(self) -> list[int]:
        """The byte-pair tokens that do not begin with a space; empty if all others are forbidden."""
        with_space = {n for n, token in enumerate(self.tokenizer.tokens) if token.startswith(" ")}
        if self.tokenizer.kind not in ("bpe", "imported") or with_space <= {*self.forbidden}:
            return []
        return [n for n in range(self.tokenizer.vocabulary) if n not in with_space]

    def beam(self, prompt: str = "", *, width: int = 5, max_tokens: int = 200) -> list[tuple[str, float]]:
        """Search for the most probable completions of the prompt's line.

        Args:
            prompt: The beginning of the line.
            width: The number of hypotheses kept at each step.
            max_tokens: The maximum number of tokens to generate.

        Returns:
            The lines with their log-probabilities in nats, best first.

        Raises:
            RegardError: If prompt and `max_tokens` exceed the model's context, or an argument is wrong.
        """
        check_range("--beam", width, 1, WIDEST)
        check_range("--max-tokens", max_tokens, 1)
        read = [self.tokenizer.begin, *self.tokenizer.encode(prompt)]
        limit = self.model.context
        if limit is not None and len(read) + max_tokens > limit:
            raise RegardError(f"Beam search must fit in the model's context of {limit} tokens: lower --max-tokens.")
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
