"""The default of every option of every verb: whoever leaves an option out meets it, and no other test asks which it is.

They are compared with tests/golden/option_defaults.json; `python tests/unit/cli/test_notices_options.py` writes it
anew.
"""

import inspect
import json
from pathlib import Path

import pytest

from regard.cli.commands import VERBS, app

GOLDEN = Path(__file__).parents[2] / "golden" / "option_defaults.json"


def functions(verb):
    """{words: function} of a verb, and of those below it."""
    own = app[verb]
    found = {verb: own.default_command} if own.default_command else {}
    below = [name for name in own if not name.startswith("-")]
    return found | {f"{verb} {name}": own[name].default_command for name in below}


def defaults(function):
    parameters = inspect.signature(function).parameters.values()
    given = {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}
    return json.loads(json.dumps(given, default=str))


def every_default(verb):
    return {words: defaults(function) for words, function in functions(verb).items()}


@pytest.mark.parametrize("verb", VERBS)
def test_the_defaults_of_a_verb_change_only_on_purpose(verb):
    assert every_default(verb) == json.loads(GOLDEN.read_text(encoding="utf-8"))[verb]


if __name__ == "__main__":
    lines = [f" {json.dumps(verb)}: {json.dumps(every_default(verb), ensure_ascii=False)}" for verb in VERBS]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
