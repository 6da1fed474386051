"""ES modules as one script, for a page that is a single file: each becomes a function's scope, in the order of imports.

It understands how the lab's modules are written: `import { a, b as c } from "./x.js";`, `import * as x from "./x.js";`
and `export` before const, function or class, each at the beginning of a line. Functions that nothing uses are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import compress
from operator import not_
from posixpath import dirname, join, normpath

from regard.report.tight import short_names, undeclared

IMPORT = re.compile(r'^import (?:\{([^}]*)\}|\* as (\w+)) from "(\.{1,2}/[\w/-]+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?(?:const|let|function|class)\*? (\w+))", re.MULTILINE)
COMMENT = re.compile(r"^//.*\n", re.MULTILINE)
STATEMENT = re.compile(r"^(?=[A-Za-z])", re.MULTILINE)  # at the beginning of a line: one of the module's own
FUNCTION = re.compile(
    r"(?:export )?(?:(?:async )?function\b|const \w+ = (?:async )?(?:\w+|\((?:[^()]|\([^()]*\))*\)) =>)"
)


def bundle_modules(entry: str, read: Callable[[str], str]) -> str:
    """The module `entry` and all that it imports; `read` gives a module's text by its name, without .js."""
    done: dict[str, str] = {}
    texts: dict[str, str] = {}
    _read(entry, lambda name: COMMENT.sub("", read(name)), texts)
    _add(entry, _used(texts, entry).__getitem__, done, ())
    kept = {_scope(name) for name in done}.union(*(undeclared(module) for module in done.values()))
    return '"use strict";\n' + "\n".join(short_names(module, kept) for module in done.values())


def _read(name: str, read: Callable[[str], str], texts: dict[str, str]) -> None:
    if name not in texts:
        texts[name] = read(name)
        for _, _, other in IMPORT.findall(texts[name]):
            _read(_resolved(name, other), read, texts)


def _used(texts: dict[str, str], entry: str) -> dict[str, str]:
    """The modules without the functions that no statement uses, in the module or in one that imports them."""
    while True:
        imported = {
            (_resolved(name, other), one.partition(" as ")[0].strip())
            for name, text in texts.items()
            for names, _, other in IMPORT.findall(text)
            for one in names.split(",")
            if len(re.findall(rf"\b{re.escape(one.rpartition(' as ')[2].strip())}\b", text)) > 1
        }
        stars = ((name, *found) for name, text in texts.items() for found in IMPORT.findall(text))
        whole = {_resolved(name, other) for name, _, star, other in stars if star}
        left = {}
        for name, text in texts.items():
            statements = STATEMENT.split(text)
            words = Counter(word for one in statements for word in set(re.findall(r"\w+", one)))
            needed = {word for word, count in words.items() if count > 1 or (name, word) in imported}
            idle = [bool(FUNCTION.match(one)) and needed.isdisjoint(_declared(one)) for one in statements]
            left[name] = text if name in (entry, *whole) else "".join(compress(statements, map(not_, idle)))
        if left == texts:
            return texts
        texts = left


def _declared(statement: str) -> list[str]:
    """The names that a function or a const declares, outside of all brackets."""
    inner = re.compile(r"\([^(){}\[\]]*\)|\{[^(){}\[\]]*\}|\[[^(){}\[\]]*\]")
    while (shorter := inner.sub("", statement)) != statement:
        statement = shorter
    return re.findall(r"(?:function\*?|const|,) (\w+)", statement)


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
