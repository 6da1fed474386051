"""The conversation of `chat`: lines for the model and commands that begin with /."""

from __future__ import annotations

import os
import signal
import threading
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.base.errors import RegardError
from regard.base.settings import check_range, did_you_mean
from regard.report.screen import for_stdout

if TYPE_CHECKING:
    from regard.runs.tasks.language.scores import NextToken


# -- output ----------------------------------------------------------------------------------------------------------


def show(words: str, end: str = "\n") -> None:
    """Print words of yours or of the model."""
    print(for_stdout(words), end=end, flush=True)


def say(words: str) -> None:
    from regard.report.progress import say as log

    log(words)


# -- what is said ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    does: Callable[[str], Any]
    about: str
    takes: str = ""  # what is typed after it
    now: Callable[[], Any] = lambda: ""  # a setting's value


class Talk:
    """A conversation: lines are for the model, lines that begin with / are commands, // is a line that begins so."""

    greeting = ""
    commands: dict[str, Command]

    def __init__(self) -> None:
        self.writing = self.stopped = False
        self.commands = {
            **self.own_commands(),
            "help": Command(lambda _: self.help(), "print this list"),
            "quit": Command(lambda _: None, "leave (or press Ctrl-D)"),
        }

    def own_commands(self) -> dict[str, Command]:
        raise NotImplementedError

    def line(self, words: str) -> None:
        raise NotImplementedError

    def answer(self, words: str) -> bool:
        """Answer one line; False if it was the last."""
        if not words.startswith("/") or words.startswith("//"):
            self.line(words.removeprefix("/") if words.startswith("//") else words)
            return True
        name, _, rest = words[1:].partition(" ")
        if name not in self.commands:
            raise RegardError(
                f"There is no command /{name}{did_you_mean(f'/{name}', [f'/{known}' for known in self.commands])}"
            )
        if rest.strip() and not self.commands[name].takes:
            raise RegardError(f"/{name} takes no argument; to write a line that begins with /, type //.")
        self.commands[name].does(rest.strip())
        return name != "quit"

    def help(self) -> None:
        width = max(len(f"/{name} {command.takes}") for name, command in self.commands.items())
        for name, command in self.commands.items():
            value = command.now()
            value = f" (now {value})" if value != "" else ""
            print(f"{f'/{name} {command.takes}'.ljust(width)}  {command.about}{value}")

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Ctrl-C ends what is being written after its token; a second one, or one at the prompt, is an exception."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread receives signals
            return

        def stop(number: int, frame: Any) -> None:
            if not self.writing or self.stopped:
                raise KeyboardInterrupt
            self.stopped = True

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def number_in(rest: str, name: str, kind: type) -> Any:
    try:
        return kind(rest)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise RegardError(f"/{name} takes {what}, as in /{name} {1 if kind is int else 0.8}.") from None


class Drawing(Talk):
    """Shared by both: how tokens are sampled."""

    sampling: Any  # regard.Sampling

    def drawing_commands(self) -> dict[str, Command]:
        def change(name: str, kind: type) -> Callable[[str], None]:
            def to(rest: str) -> None:
                self.sampling = replace(self.sampling, **{name: number_in(rest, name.replace("_", "-"), kind)})

            return to

        return {
            "temperature": Command(
                change("temperature", float),
                "below 1: safer, above 1: more varied, 0: the most probable token",
                "X",
                lambda: self.sampling.temperature,
            ),
            "top-k": Command(
                change("top_k", int),
                "sample from the N most probable tokens; 0 = all",
                "N",
                lambda: self.sampling.top_k,
            ),
            "top-p": Command(
                change("top_p", float),
                "sample from the most probable tokens whose probabilities sum to P",
                "P",
                lambda: self.sampling.top_p,
            ),
        }


def save(rest: str, text: str) -> None:
    """Save to a new file; one that is there stays."""
    from regard.base.locks import write_new

    if not rest:
        raise RegardError("Give a file name, as in /save story.txt.")
    try:
        path = Path(rest).expanduser()
        if os.path.lexists(path):
            raise RegardError(f"{path} already exists: choose another name.")
        write_new(path, text if text.endswith("\n") or not text else text + "\n")
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL in it, ~ of nobody
        why = getattr(error, "strerror", None) or str(error)
        raise RegardError(f"Could not write {rest!r:.80} ({why.rstrip('.')}): choose another name.") from None
    say(f"saved in {path}")


def chosen(rest: str, there: int) -> int:
    number = number_in(rest or "1", "take", int)
    if not 1 <= number <= there:
        raise RegardError(f"/take takes a number from 1 to {there}, not {number}.")
    return number - 1


# -- with a language model -------------------------------------------------------------------------------------------


@dataclass
class Turn:
    """The state that /undo and /retry return to."""

    before: str  # the text before your line
    yours: str  # … and after it, where the model went on


class Writing(Drawing):
    """One text, written in turns."""

    def __init__(self, run: Any, sampling: Any, max_tokens: int, lines: int, seed: int, text: str = "") -> None:
        self.run, self.sampling, self.seed, self.text = run, sampling, seed, text
        self.max_tokens, self.lines = max_tokens, lines
        self.turns: list[Turn] = []
        self.drawn = 0  # texts so far: each draws its own numbers
        self.shown: list[NextToken] = []  # what /take chooses from
        self.told = False  # that the context was full
        super().__init__()
        self.greeting = f"{run.recipe.system}, {run.folder}: type a line to continue, or an empty line for more text."

    def own_commands(self) -> dict[str, Command]:
        def tokens(rest: str) -> None:
            check_range("/tokens", count := number_in(rest, "tokens", int), 1)
            self.max_tokens = count

        def lines(rest: str) -> None:
            check_range("/lines", count := number_in(rest, "lines", int), 0)
            self.lines = count

        return {
            **self.drawing_commands(),
            "tokens": Command(tokens, "write at most N tokens at a time", "N", lambda: self.max_tokens),
            "lines": Command(lines, "stop after N lines; 0 = no limit", "N", lambda: self.lines),
            "undo": Command(lambda _: self.undo(), "remove your last line and its continuation"),
            "retry": Command(lambda _: self.retry(), "write another continuation of your last line"),
            "next": Command(self.next, "list the N most probable next tokens", "[N]"),
            "take": Command(self.take, "append the Nth of these tokens", "N"),
            "text": Command(lambda _: show(self.text), "print the whole text"),
            "new": Command(lambda _: self.begin_again(), "start a new text"),
            "save": Command(lambda rest: save(rest, self.text), "save the text to a new file", "FILE"),
        }

    def line(self, words: str) -> None:
        turn = Turn(self.text, joined(self.text, words))
        self.turns.append(turn)
        self.text = turn.yours
        self.write()

    def write(self) -> None:
        """The model continues; text written before an interruption is kept."""
        self.shown = []
        show(self.text.rpartition("\n")[2], end="")
        self.writing, self.stopped = True, False
        pieces = self.run.stream(
            self.text,
            max_tokens=self.max_tokens,
            lines=self.lines,
            sampling=self.sampling,
            seed=self.seed + self.drawn,
            on_reread=self.reread,
        )
        self.drawn += 1
        last = ""
        try:
            for last in pieces:
                self.text += last
                show(last, end="")
                if self.stopped:
                    break
        finally:
            self.writing = False
            pieces.close()
        if not last.endswith("\n"):
            print(flush=True)
        if self.stopped:
            say("stopped")

    def reread(self, kept: int) -> None:
        if not self.told:
            self.told = True
            say(f"note: the context of {self.run.model.context} tokens is full; continuing from the last {kept}")

    def undo(self) -> None:
        if not self.turns:
            raise RegardError("There is nothing to undo.")
        self.text, self.shown = self.turns.pop().before, []
        show(f"…{self.text[-70:]}" if len(self.text) > 70 else self.text)

    def retry(self) -> None:
        if not self.turns:
            raise RegardError("There is nothing to retry: type a line first.")
        self.text = self.turns[-1].yours
        self.write()

    def next(self, rest: str) -> None:
        count = number_in(rest or "10", "next", int)
        check_range("/next", count, 1)
        self.shown = self.run.choices(self.text, top=count, writable=True)
        from regard.insight.words import labels_after

        before = [self.run.tokenizer.token(token) for token in self.run.tokenizer.encode(self.text)]
        words = labels_after(before, [one.token for one in self.shown])
        for number, (one, word) in enumerate(zip(self.shown, words), start=1):
            show(f"{number}\t{one.drawn:.4f}\t{word}")

    def take(self, rest: str) -> None:
        if not self.shown:
            self.shown = self.run.choices(self.text, top=10, writable=True)
        piece = self.shown[chosen(rest, len(self.shown))].text
        self.turns.append(Turn(self.text, self.text + piece))
        self.text += piece
        self.shown = []
        show(self.text.removesuffix("\n").rpartition("\n")[2])

    def begin_again(self) -> None:
        self.turns.append(Turn(self.text, ""))  # /undo brings the old one back
        self.text, self.shown = "", []


def joined(text: str, words: str) -> str:
    """A line after a text: as a new word, unless it begins with \\, with a sign or in a script without spaces."""
    if words.startswith("\\"):
        return text + words[1:]
    if not text or not words or text[-1].isspace():
        return text + words
    wide = any(unicodedata.east_asian_width(sign) in "WF" for sign in (text[-1], words[0]))
    new_word = words[0].isalnum() or unicodedata.category(words[0]) in ("Ps", "Pi")
    return f"{text} {words}" if new_word and not wide else text + words


# -- with a translator -----------------------------------------------------------------------------------------------


@dataclass
class Translating(Drawing):
    """Sentences and their translations; of each the best one is kept, or the one that was taken."""

    run: Any
    sampling: Any
    seed: int = 0
    beam: int = 5
    n_best: int = 3
    length_penalty: float = 1.0
    pairs: list[tuple[str, list[str], int]] = field(default_factory=list)  # source, translations, which was taken
    drawn: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        self.greeting = f"{self.run.recipe.system}, {self.run.folder}: type a sentence to translate."

    def choose_search(self, beam: int | None, n_best: int | None, length_penalty: float | None) -> None:
        from regard.decoding.beam import Beam

        self.beam = max(5, n_best or 0) if beam is None else beam
        self.n_best = min(3, self.beam) if n_best is None else n_best
        self.length_penalty = 1.0 if length_penalty is None else length_penalty
        Beam(self.beam, self.length_penalty, self.n_best)  # refuses what does not fit

    def own_commands(self) -> dict[str, Command]:
        def beam(rest: str) -> None:
            width = number_in(rest, "beam", int)
            self.choose_search(width, min(self.n_best, max(width, 1)), self.length_penalty)

        def n_best(rest: str) -> None:
            count = number_in(rest, "n-best", int)
            self.choose_search(max(self.beam, count), count, self.length_penalty)

        def penalty(rest: str) -> None:
            self.choose_search(self.beam, self.n_best, number_in(rest, "length-penalty", float))

        return {
            **self.drawing_commands(),
            "beam": Command(beam, "beam size, used if the temperature is 0", "N", lambda: self.beam),
            "n-best": Command(n_best, "number of translations to show", "N", lambda: self.n_best),
            "length-penalty": Command(
                penalty, "divide log P by the length to this power", "X", lambda: self.length_penalty
            ),
            "undo": Command(lambda _: self.undo(), "remove the last sentence"),
            "retry": Command(lambda _: self.retry(), "translate the last sentence again with the current settings"),
            "take": Command(self.take, "select the Nth translation of the last sentence instead of the first", "N"),
            "text": Command(lambda _: show(self.kept, end=""), "print every sentence and its translation"),
            "save": Command(lambda rest: save(rest, self.kept), "save all pairs to a new file, source⇥target", "FILE"),
        }

    @property
    def kept(self) -> str:
        return "".join(f"{' '.join(source.split())}\t{found[taken]}\n" for source, found, taken in self.pairs)

    def line(self, words: str) -> None:
        from regard.decoding.beam import Beam

        if not words.strip():
            print(flush=True)
            return
        how: dict[str, Any] = {"sampling": self.sampling, "samples": self.n_best, "seed": self.seed + self.drawn}
        if self.sampling.temperature == 0:
            how = {"beam": Beam(self.beam, self.length_penalty, self.n_best)}
        else:
            self.drawn += 1
        (found,) = self.run.translations([words], **how)
        self.pairs.append((words, [one.text for one in found], 0))
        for number, one in enumerate(found, start=1):
            show(f"{number}\t{one.score:.4f}\t{one.text}")

    def undo(self) -> None:
        if not self.pairs:
            raise RegardError("There is nothing to undo.")
        say(f"removed: {self.pairs.pop()[0]}")

    def retry(self) -> None:
        if not self.pairs:
            raise RegardError("There is nothing to retry: type a sentence first.")
        self.line(self.pairs.pop()[0])

    def take(self, rest: str) -> None:
        if not self.pairs:
            raise RegardError("There is nothing to choose from: type a sentence first.")
        source, found, _ = self.pairs[-1]
        taken = chosen(rest, len(found))
        self.pairs[-1] = (source, found, taken)
        show(found[taken])
