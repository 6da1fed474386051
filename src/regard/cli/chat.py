"""`chat`: write with a language model or a translator, line by line, in a terminal or through a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.cli.conversation import Talk, Translating, Writing, say
from regard.cli.dialogue import Conversation
from regard.cli.options import (
    LANGUAGE_MODELS,
    SEARCH,
    TRANSLATORS,
    Beam,
    Device,
    LengthPenalty,
    Prompt,
    RunFolder,
    TopK,
    TopP,
    Weights,
    given_options,
)
from regard.cli.stdin import stdin_lines


def chat(
    run: RunFolder,
    *,
    prompt: Annotated[Prompt, Parameter(group=LANGUAGE_MODELS)] = "",
    max_tokens: Annotated[int, Parameter(group=LANGUAGE_MODELS)] = 200,
    lines: Annotated[int, Parameter(group=LANGUAGE_MODELS)] = 1,
    temperature: Annotated[float | None, Parameter(group=SEARCH)] = None,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Annotated[int, Parameter(group=SEARCH)] = 0,
    beam: Beam = None,
    n_best: Annotated[int | None, Parameter(group=TRANSLATORS, metavar="N")] = None,
    length_penalty: LengthPenalty = None,
    weights: Weights = "best",
    device: Device = "auto",
) -> None:
    """Write interactively with a model. It completes your text, or answers if it was trained on dialogues.

    A language model continues each line that you type; a translator answers with its best translations. A model with a
    chat template (trained on dialogues, or imported with one) answers each line, unless --prompt is given. Type /help
    for the commands: change the temperature, undo, retry, list and choose the next token, save. Ctrl-C stops the
    current output. With piped input, each line is answered as soon as it arrives.

        regard chat runs/mine
        regard chat runs/mine --temperature 0.8 --lines 3
        regard chat runs/translator --n-best 5

    Parameters
    ----------
    prompt
        text to start with
    max_tokens
        maximum number of tokens to write at a time
    lines
        stop after this many lines; 0 = no limit
    temperature
        below 1: safer, above 1: more varied, 0: greedy [default: 1; translators search instead of sampling]
    seed
        the same seed and input give the same texts
    n_best
        number of translations to show [default: 3]
    """
    from regard.decoding.sampling import Sampling
    from regard.runs.load import load
    from regard.runs.tasks.task import task_of

    check_range("--max-tokens", max_tokens, 1)
    check_range("--lines", lines, 0)
    loaded: Any = load(run, weights=weights, device=device)
    task = task_of(loaded)
    search = {"--beam": beam, "--n-best": n_best, "--length-penalty": length_penalty}
    talk: Writing | Translating | Conversation
    known = task.options.get("chat", ())
    if known:
        given_options(loaded, "chat", search | {"--prompt": prompt or None})
    if "--prompt" in known:
        sampling = Sampling(1.0 if temperature is None else temperature, top_k, top_p)
        if loaded.chat_template and not prompt:
            talk = Conversation(loaded, sampling, max_tokens, seed)
        else:
            talk = Writing(loaded, sampling, max_tokens, lines, seed, prompt)
    elif "--beam" in known:
        if temperature is None and (top_k or top_p != 1.0):
            raise RegardError("--top-k and --top-p need sampling: add --temperature.")
        sampling = Sampling(temperature or 0.0, top_k, top_p)
        talk = Translating(loaded, sampling, seed=seed)
        talk.choose_search(beam, n_best, length_penalty)
    else:
        raise RegardError(f"{run} is {task.noun}: use `regard {task.verb} {run}`.")
    talk_with(talk)


def talk_with(talk: Talk) -> None:
    """Answer each line until the input ends or /quit; on a terminal, errors are printed and it continues."""
    if sys.stdin is None or not sys.stdin.isatty():
        for number, line in enumerate(stdin_lines(), start=1):
            try:
                if not talk.answer(line):
                    return
            except RegardError as error:
                raise RegardError(f"Line {number}: {error}") from None
        return
    say(f"{talk.greeting} Type /help for the commands, /quit or Ctrl-D to leave.")
    with talk.stoppable():
        for line in typed_lines(talk):
            try:
                if not talk.answer(line):
                    return
            except RegardError as error:
                say(f"regard: {error}")
            except KeyboardInterrupt:
                say("stopped")


def typed_lines(talk: Talk) -> Iterator[str]:
    """What is typed at the prompt, with the line editing and the history of readline where Python has it."""
    try:
        import readline
    except ImportError:
        pass
    else:
        words = [f"/{name}" for name in talk.commands]
        readline.set_completer(lambda text, n: [*(word for word in words if word.startswith(text)), None][n])
        readline.set_completer_delims(" ")
        by_libedit = "libedit" in (readline.__doc__ or "")  # on macOS
        readline.parse_and_bind("bind ^I rl_complete" if by_libedit else "tab: complete")
    while True:
        try:
            if sys.stdout.isatty():
                yield input("> ")
            else:
                print("> ", end="", file=sys.stderr, flush=True)
                if not (line := sys.stdin.readline()):
                    return
                yield line.removesuffix("\n")
        except EOFError:
            print(file=sys.stderr)
            return
        except KeyboardInterrupt:
            print(file=sys.stderr)
            say("To leave, type /quit or press Ctrl-D.")
