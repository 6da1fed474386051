"""Every verb in its group, and what is said to a command that is not understood or fails."""

from __future__ import annotations

import errno
import os
import re
import shlex
from typing import Any

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.exceptions import MissingArgumentError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

from regard import __version__
from regard.base.errors import RegardError
from regard.base.settings import did_you_mean
from regard.base.synonyms import COMMANDS, RUN_FIRST, SETTINGS, from_synonym
from regard.cli import MEMORY
from regard.cli.help import DOCUMENTATION, ENVIRONMENT, HelpFormatter
from regard.cli.options import ARGUMENTS, OPTIONS, with_default

# Each verb, where it is in regard.cli (imported when it is used), and its arguments; an App declares its own.
GROUPS: dict[str, dict[str, str]] = {
    "Start": {
        "demo": "demo:demo", "lab": "lab:lab [FOLDER]", "data": "data:data_app", "systems": "systems:systems",
    },
    "Train": {
        "train": "train:train [SYSTEM|RECIPE]", "resume": "resume:resume RUN", "evaluate": "evaluate:evaluate RUN",
        "compare": "compare:compare [SYSTEM...]", "runs": "runs:runs_app",
    },
    "Use": {
        "generate": "generate:generate RUN", "translate": "translate:translate RUN",
        "classify": "classify:classify RUN", "score": "score:score RUN", "chat": "chat:chat RUN",
        "serve": "serve:serve RUN...",
    },
    "Understand": {
        "inspect": "inspect:inspect RUN [TEXT]", "lecture": "lecture:lecture [CHAPTER|LINE]",
        "exercise": "exercise:exercise_app", "claims": "claims:claims [CLAIM...]",
    },
    "Exchange": {"export": "export:export_run RUN OUT --to FORMAT", "import": "import_:import_run FILE"},
    "Maintain": {"doctor": "doctor:doctor", "bench": "bench:bench [BENCHMARK...]", "laws": "laws:laws SYSTEM"},
}  # fmt: skip
# As PyTorch, CUDA and the loader of shared libraries say it:
NO_MEMORY = "out of memory|can't allocate|allocate memory|failed to map segment|bad_alloc"
VERBS = [name for verbs in GROUPS.values() for name in verbs]

app = App(
    name="regard",
    help="Train, compare, inspect and serve sequence models, from n-grams to GPT and Llama, on your own text.\n"
    "\n`regard VERB --help` shows the options of a verb, with examples.",
    usage="regard VERB [ARGUMENTS] [OPTIONS]",
    version=__version__,
    suppress_keyboard_interrupt=False,  # `main` reports it
    default_parameter=Parameter(show_default=with_default, negative=()),
    group_arguments=ARGUMENTS,
    group_parameters=OPTIONS,
    group_commands=Group("Options", sort_key=len(GROUPS)),  # --help and --version, after the verbs
    help_format="plaintext",
    help_formatter=HelpFormatter(),
    help_epilogue=ENVIRONMENT + DOCUMENTATION,
)
app["--help"].help, app["--version"].help = "Print this help and exit.", "Print the version and exit."
app.command("regard.cli.completion:install_completion", name="--install-completion", help_epilogue=DOCUMENTATION)
for place, (title, verbs) in enumerate(GROUPS.items()):
    group = Group(title, sort_key=place)
    for order, (name, verb) in enumerate(verbs.items()):
        verb, _, arguments = verb.partition(" ")
        usage = " ".join(filter(None, ["regard", name, arguments, "[OPTIONS]"]))
        own: dict[str, Any] = {} if verb.endswith("_app") else {"usage": usage, "help_epilogue": DOCUMENTATION}
        app.command(f"regard.cli.{verb}", name=name, group=group, sort_key=order, **own)


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
        raise RegardError(f"Unexpected argument {unexpected!r}: {_instead(verb, unexpected, words)}") from None
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
    return f"{verb} needs {error.argument.name.strip('-').upper()}; see `{verb} --help`."


def _no_verb(option: str) -> str:
    """An option without a verb: whose it may be, by the name that Regard has for it."""
    found = from_synonym(option, SETTINGS, SETTINGS) or (option[2:] if option[2:] in SETTINGS else None)
    if found:
        return f"{option} without a verb: did you mean `regard train SYSTEM --{found}`?"
    return f"{option} without a verb: put the verb first, as in `regard train lstm --data my.txt`."


def _instead(verb: str, text: str, words: list[str]) -> str:
    """A suggestion for a user who passed a text to a verb on the command line."""
    run = shlex.quote(words[1]) if len(words) > 1 and words[1] != text else "RUN"
    if _is_run(text) and not (len(words) > 1 and _is_run(words[1])):
        return f"put the run first, as in `{verb} {shlex.quote(text)}`."
    if verb in ("regard translate", "regard classify", "regard score"):
        if os.path.isfile(text):
            return f"redirect the file to stdin, as in `{verb} {run} < {shlex.quote(text)}`."
        return f"pipe the text in, as in `echo {shlex.quote(text)} | {verb} {run}`."
    if verb == "regard generate":
        return f"give the text to continue with --prompt, as in `{verb} {run} --prompt {shlex.quote(text)}`."
    return f"see `{verb} --help`."


def _is_run(word: str) -> bool:
    return os.path.isfile(os.path.join(word, "run.json"))  # also of a word that can be no path


def _command(word: str, before: list[str]) -> str:
    if before:  # of `regard data`
        return f"; see `regard {' '.join(before)} --help`."
    found = from_synonym(word, COMMANDS, COMMANDS)
    return f": did you mean `regard {found}`?" if found else did_you_mean(word, VERBS)


def _option(keyword: str, options: list[str], verb: str) -> str:
    if keyword.strip("-") in RUN_FIRST.split():
        return f": give it as the first argument, as in `{verb} runs/mine`."
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
            return f"Could not write the output ({error.strerror}), so results are lost: write it somewhere else."
        return f"{error.strerror or error}."
    if isinstance(error, OverflowError) or "Overflow when unpacking long" in str(error):
        return "A number is too large: use a smaller one."
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return "A name contains a NUL character and is not a valid file name."
    if isinstance(error, UnicodeEncodeError):
        return "A name or text is not valid Unicode: rename the file or convert the text."
    raise error
