"""The words of each claim, read from its file without its imports: `regard claims --list` need not load torch.

They are literals, or f-strings of the module's constants; so constants are computed, and nothing else.
"""

from __future__ import annotations

import ast
import math
from functools import cache
from pathlib import Path
from typing import Any

from regard.claims.all_claims import module_of

WORDS = ("number", "name", "kinds", "where", "quote", "statement", "conditions", "control_words")
HOME = Path(__file__).parent


def words_of(name: str) -> dict[str, Any]:
    """The words of the claim of this name, as in its declaration."""
    module = module_of(name)
    for node in _parsed(module).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="CLAIM")], value=ast.Call(keywords=keywords)):
                given = {each.arg: each.value for each in keywords}
                return {key: _computed(given[key], _constants(module)) for key in WORDS}
    raise ValueError(f"{module} declares no claim")


@cache
def _parsed(module: str) -> ast.Module:
    return ast.parse((HOME / f"{module}.py").read_text(encoding="utf-8"))


@cache
def _constants(module: str) -> dict[str, Any]:
    """The module's constants by name, with those that it imports from other claims."""
    constants: dict[str, Any] = {"math": math}
    for node in _parsed(module).body:
        match node:
            case ast.ImportFrom(module=str(other), names=names) if other.startswith("regard.claims."):
                theirs = _constants(other.removeprefix("regard.claims."))
                constants |= {one.asname or one.name: theirs[one.name] for one in names if one.name in theirs}
            case ast.Assign(targets=[target], value=value):
                try:
                    computed = _computed(value, constants)
                except Exception:  # it is made of more than constants
                    continue
                targets = target.elts if isinstance(target, ast.Tuple) else [target]
                values = computed if isinstance(target, ast.Tuple) else [computed]
                constants |= {one.id: part for one, part in zip(targets, values) if isinstance(one, ast.Name)}
    return constants


def _computed(expression: ast.expr, names: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(expression), "a claim's words", "eval"), {"__builtins__": {}}, names)
