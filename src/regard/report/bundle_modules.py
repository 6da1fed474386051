"""ES modules as one script, for a page that is a single file: each becomes a function's scope, in the order of imports.

It understands how the lab's modules are written: `import { a, b as c } from "./x.js";`, `import * as x from "./x.js";`
and `export` before const, function or class, each at the beginning of a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from posixpath import dirname, join, normpath

IMPORT = re.compile(r'^import (?:\{([^}]*)\}|\* as (\w+)) from "(\.{1,2}/[\w/-]+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?(?:const|let|function|class)\*? (\w+))", re.MULTILINE)


def bundle_modules(entry: str, read: Callable[[str], str]) -> str:
    """The module `entry` and all that it imports; `read` gives a module's text by its name, without .js."""
    done: dict[str, str] = {}
    _add(entry, read, done, ())
    return '"use strict";\n' + "\n".join(done.values())


def _add(name: str, read: Callable[[str], str], done: dict[str, str], above: tuple[str, ...]) -> None:
    if name in above:
        raise ValueError(f"{name} imports itself, by way of {' and '.join(above)}")
    if name in done:
        return
    text = read(name)
    for _, _, other in IMPORT.findall(text):
        _add(_resolved(name, other), read, done, (*above, name))

    def bound(match: re.Match[str]) -> str:
        names, whole, other = match.groups()
        return f"const {whole or '{' + names.replace(' as ', ': ') + '}'} = {_scope(_resolved(name, other))};"

    exported = [name for _, name in EXPORT.findall(text)]
    body = EXPORT.sub(r"\1", IMPORT.sub(bound, text))
    if left := re.search(r"^(?:import|export)\b.*", body, re.MULTILINE):
        raise ValueError(f"{name}.js has {left[0]!r}, which is not understood")
    done[name] = f"const {_scope(name)} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();"


def _resolved(name: str, other: str) -> str:
    """The name of a module that the module `name` imports as ./other or ../other."""
    return normpath(join(dirname(name), other))


def _scope(name: str) -> str:
    return "module_" + re.sub(r"\W", "_", name)
