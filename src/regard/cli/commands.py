"""Every verb in its group, and what is said to a command that is not understood or fails."""

from __future__ import annotations

import errno
import os
import re
import shlex

from cyclopts import App, CycloptsError, Group
from cyclopts.exceptions import MissingArgumentError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

from regard import __version__
from regard.base.errors import RegardError
from regard.base.settings import did_you_mean
from regard.base.synonyms import COMMANDS, RUN_FIRST, SETTINGS, from_synonym
from regard.cli import MEMORY

GROUPS: dict[str, dict[str, str]] = {  # each verb, and where in regard.cli it is: imported when it is asked for
    "Start": {"demo": "demo:demo", "systems": "systems:systems", "data": "data:data_app"},
    "Train": {
        "train": "train:train", "resume": "resume:resume", "compare": "compare:compare", "runs": "runs:runs_app",
    },
    "Use": {
        "generate": "generate:generate", "chat": "chat:chat", "translate": "translate:translate",
        "classify": "classify:classify", "score": "score:score",
    },
    "Serve": {"serve": "serve:serve"},
    "Look inside": {"lab": "lab:lab", "inspect": "inspect:inspect", "claims": "claims:claims", "laws": "laws:laws"},
    "Learn": {"lecture": "lecture:lecture", "exercise": "exercise:exercise_app"},
    "Exchange": {"export": "export:export_run", "import": "import_:import_run"},
    "Measure": {"evaluate": "evaluate:evaluate", "bench": "bench:bench", "doctor": "doctor:doctor"},
}  # fmt: skip
# As PyTorch, CUDA and the loader of shared libraries say it:
NO_MEMORY = "out of memory|can't allocate|allocate memory|failed to map segment|bad_alloc"
VERBS = [name for verbs in GROUPS.values() for name in verbs]

app = App(
    name="regard",
    help="Every sequence model from the n-gram to GPT: train it on your own text, compare it, see inside it, ship it.\n"
    "\n`regard VERB --help` says more about each.",
    version=__version__,
    suppress_keyboard_interrupt=False,  # `main` says so
    group_commands=Group("Options", sort_key=len(GROUPS)),  # --help and --version, after the verbs
)
app.command("regard.cli.completion:install_completion", name="--install-completion")
for place, (title, verbs) in enumerate(GROUPS.items()):
    group = Group(title, sort_key=place)
    for order, (name, verb) in enumerate(verbs.items()):
        app.command(f"regard.cli.{verb}", name=name, group=group, sort_key=order)


def run(words: list[str]) -> None:
    """`regard WORDS`; `regard help VERB` is `regard VERB --help`."""
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not words or words[0] not in VERBS:  # its own page and what it says to a wrong word name them all
        app.resolved_commands()
    try:
        app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except UnknownCommandError as error:
        word = (error.unused_tokens or [""])[0]
        if word.startswith("-") and not error.command_chain:
            raise RegardError(_no_verb(word.partition("=")[0])) from None
        raise RegardError(f"There is no command {word!r}{_command(word, list(error.command_chain or ()))}") from None
    except MissingArgumentError as error:
        raise RegardError(_missing(error)) from None
    except UnusedCliTokensError as error:
        verb = " ".join(["regard", *(error.command_chain or ())])
        unexpected = (error.unused_tokens or [""])[0]
        raise RegardError(f"Did not expect {unexpected!r}: {_instead(verb, unexpected, words)}") from None
    except UnknownOptionError as error:
        keyword = (error.token.keyword or error.token.value).partition("=")[0]
        if not keyword.startswith("--"):
            raise
        named = (one for one in error.argument_collection if one.parse and one.index is None)  # not what comes first
        options = [name for one in named for name in one.names]
        verb = " ".join(["regard", *(error.command_chain or ())])
        raise RegardError(f"{verb} has no option {keyword}{_option(keyword, options, verb)}") from None


def _missing(error: MissingArgumentError) -> str:
    """An option without its value, or a verb without what it works on."""
    assert error.argument is not None
    verb = " ".join(["regard", *(error.command_chain or ())])
    if error.keyword or error.argument.index is None:
        option = error.keyword or error.argument.name
        return f"{verb} {option} needs a value, written `{option}=…` if it begins with -."
    return f"{verb} needs {error.argument.name.strip('-').upper()}: `{verb} --help` says what it takes."


def _no_verb(option: str) -> str:
    """An option without a verb: whose it may be, by the name that Regard has for it."""
    found = from_synonym(option, SETTINGS, SETTINGS) or (option[2:] if option[2:] in SETTINGS else None)
    if found:
        return f"{option} without a verb: did you mean `regard train SYSTEM --{found}`?"
    return f"{option} without a verb: the verb comes first, as in `regard train lstm --data my.txt`."


def _instead(verb: str, text: str, words: list[str]) -> str:
    """What a user who gave a text to a verb on the command line may have meant."""
    run = shlex.quote(words[1]) if len(words) > 1 and words[1] != text else "RUN"
    if _is_run(text) and not (len(words) > 1 and _is_run(words[1])):
        return f"the run comes first, as in `{verb} {shlex.quote(text)}`."
    if verb in ("regard translate", "regard classify", "regard score"):
        if os.path.isfile(text):
            return f"a file comes through a pipe, as in `{verb} {run} < {shlex.quote(text)}`."
        return f"text comes through a pipe, as in `echo {shlex.quote(text)} | {verb} {run}`."
    if verb == "regard generate":
        return f"the text to continue is given as in `{verb} {run} --prompt {shlex.quote(text)}`."
    return f"`{verb} --help` says what it takes."


def _is_run(word: str) -> bool:
    return os.path.isfile(os.path.join(word, "run.json"))  # also of a word that can be no path


def _command(word: str, before: list[str]) -> str:
    if before:  # of `regard data`
        return f": `regard {' '.join(before)} --help` says what there is."
    found = from_synonym(word, COMMANDS, COMMANDS)
    return f": did you mean `regard {found}`?" if found else did_you_mean(word, VERBS)


def _option(keyword: str, options: list[str], verb: str) -> str:
    if keyword.strip("-") in RUN_FIRST.split():
        return f": what it works on comes first, as in `{verb} runs/mine`."
    return did_you_mean(keyword, [name for name in options if name.startswith("--")])


def sentence(error: Exception) -> str:
    """What went wrong, in one sentence; what went wrong inside Regard is raised again."""
    if isinstance(error, RegardError | CycloptsError):
        return " ".join(str(error).split())
    if isinstance(error, MemoryError) or re.search(NO_MEMORY, str(error), re.IGNORECASE):
        return MEMORY
    from regard.systems.own.code import crash

    if line := crash(error):  # in the user's own layer, whose author wants the line and not our stack
        return f"your own code crashed: {line}"
    if isinstance(error, OSError):
        if error.filename:
            return f"{error.filename}: {error.strerror}."
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EBADF, errno.EIO):  # files are named by those who write
            return f"The output could not be written ({error.strerror}), so results are lost: send it elsewhere."
        return f"{error.strerror or error}."
    if isinstance(error, OverflowError) or "Overflow when unpacking long" in str(error):
        return "A number here is too large: give a smaller one."
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return "A name here holds a NUL character, and so names no file: write it without."
    if isinstance(error, UnicodeEncodeError):
        return "A name or text here is not valid Unicode; rename the file or convert the text."
    raise error
