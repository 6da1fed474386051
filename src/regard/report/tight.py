"""Scripts and styles with fewer characters, for a page that is one file: the same tokens, without comments and spaces.

A script keeps its lines, so that the rules for missing semicolons still apply. Names declared by its modules are
shortened. A style can also lose the rules for classes that a script never gives to an element.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product

LEXEME = re.compile(
    r"""(?P<space>[ \t\r]+|//[^\n]*|/\*(?:(?!\*/)[^\n])*\*/)|(?P<line>\n)"""
    r"""|(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<word>[\w$#.]+)|(?P<sign>[^`/])"""
)
PATTERN = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/\w*")
CLASSES = re.compile(r"\s?[a-z][a-z0-9 -]*")  # a string that could name classes: a sentence could not
BEFORE_PATTERN = ("return", "typeof", "case", "do", "else", "in", "of", "void", "delete", "throw", "await", "yield")


def lexemes(program: str) -> Iterator[tuple[str, str]]:
    """Kind and text of every piece of a JavaScript program: space, line, string, template, word, pattern or sign."""
    at, before, braces = 0, "", [0]  # `braces`: how many are open, in each template around this place
    while at < len(program):
        kind, text = "", ""
        if program[at] == "`" or (program[at] == "}" and braces[-1] == 0 and len(braces) > 1):
            kind, text = "template", _template(program, at)
            if program[at] == "}":
                braces.pop()
            if text.endswith("${"):
                braces.append(0)
        elif match := LEXEME.match(program, at):
            kind, text = str(match.lastgroup), match[0]
            braces[-1] += (text == "{") - (text == "}")
        elif match := PATTERN.match(program, at) if _begins_value(before) else None:
            kind, text = "pattern", match[0]
        else:
            kind, text = "sign", program[at]
        yield kind, text
        at += len(text)
        if kind not in ("space", "line"):
            before = text


def _begins_value(before: str) -> bool:
    """True if a slash after `before` begins a regular expression instead of dividing."""
    return before in BEFORE_PATTERN or not before or not (before[-1].isalnum() or before[-1] in "_$)]}\"'`")


def _template(program: str, start: int) -> str:
    """The text of a template from ` or } up to the next ${ or the end."""
    match = re.compile(r"[`}](?:\\.|\$(?!\{)|[^`\\$])*(?:`|\$\{)", re.DOTALL).match(program, start)
    if match is None:
        raise ValueError(f"a template does not end: {program[start : start + 60]!r}")
    return match[0]


def tight_script(program: str) -> str:
    """The same lexemes, without comments, indentation, empty lines, and spaces that separate nothing."""
    out: list[str] = ["\n"]
    gap = False
    for kind, text in lexemes(program):
        if kind == "space":
            gap = True
            continue
        last = out[-1][-1]
        if kind == "line":
            if last != "\n":
                out.append("\n")
        else:
            if gap and last != "\n" and _separates(last, text[0]):
                out.append(" ")
            out.append(text)
        gap = False
    return "".join(out).strip("\n")


def _separates(left: str, right: str) -> bool:
    """True if two lexemes could become others without the space between them."""
    if "/" in (left, right) or left + right == "<!":
        return True
    signs = [one in "+-" for one in (left, right)]
    return all(signs) or not (any(signs) or any(not (one.isalnum() or one in "_$#.") for one in (left, right)))


CONSTANT = re.compile(r"[A-Z_]{5,}$")  # no browser's own: those are shorter, such as URL, or begin a word
# Words that declare nothing, and names of the browser, which are never declared names.
KEPT = frozenset(
    re.findall(
        r"\w+",
        """addEventListener arguments async atob await break btoa case catch class clearTimeout close console const
        continue default delete dispatchEvent do document else event export extends false finally find focus for
        from function get getComputedStyle globalThis history if in instanceof length let localStorage location
        matchMedia name navigator new null of open origin parent performance postMessage print queueMicrotask
        removeEventListener return screen requestAnimationFrame scroll self set setTimeout static status stop
        super switch this throw top true try typeof undefined void while window yield""",
    )
)


def short_names(module: str, kept: Collection[str] = ()) -> str:
    """A module in the scope of a function, with short names for its declarations.

    A name is replaced in all scopes of the module, by one that is new there, so nothing is captured. It is not replaced
    where it could be a property: in `{ name }`, before a colon, or as a method. `kept`: names that other modules do not
    declare.
    """
    pieces = list(lexemes(module))
    words = [at for at, (kind, _) in enumerate(pieces) if kind not in ("space", "line")]
    counts, declared, refused = _names(pieces, words)
    taken = set(re.findall(r"[\w$]+", module))
    fresh = (name for name in _short() if name not in taken and name not in kept)
    able = [
        name
        for name in counts
        if len(name) > 2
        and name in declared - refused - KEPT
        and name not in kept
        and (name[0].islower() or CONSTANT.match(name))
    ]
    new = dict(zip(sorted(able, key=lambda name: -counts[name] * (len(name) - 1)), fresh))
    return "".join(_renamed(text, new) if kind == "word" else text for kind, text in pieces)


def undeclared(module: str) -> set[str]:
    """The names that a module uses and does not declare."""
    pieces = list(lexemes(module))
    counts, declared, _ = _names(pieces, [at for at, (kind, _) in enumerate(pieces) if kind not in ("space", "line")])
    return counts.keys() - declared


def _names(pieces: Sequence[tuple[str, str]], words: Sequence[int]) -> tuple[Counter[str], set[str], set[str]]:
    """How often each name is used, which are declared, and which could be properties."""
    texts = ["", *(pieces[at][1] for at in words), "", "", ""]
    counts: Counter[str] = Counter()
    declared: set[str] = set()
    refused: set[str] = set()
    open_: list[tuple[str, int]] = []
    for at, place in enumerate(words, 1):
        kind, text = pieces[place]
        before, after = texts[at - 1], texts[at + 1]
        if kind == "template":
            if text.startswith("}"):
                open_.pop()
            if text.endswith("${"):
                open_.append(("(", at))
        elif kind == "word" and (name := _head(text)):
            counts[name] += 1
            if before in ("const", "let", "function", "class") or (after == "=" and texts[at + 2] == ">"):
                declared.add(name)
            key = after == ":" and text == name and before != "?"
            inside = bool(open_) and open_[-1][0] == "{"
            listed = before in ("{", ",") and after in (",", "}", "=")
            method = after == "(" and (
                before in ("{", ",", "}", ";") or before in ("async", "get", "set", "static", "*")
            )
            if key or (inside and (listed or method)):
                refused.add(name)
        elif kind == "sign" and text in "([{":
            open_.append((text, at))
        elif kind == "sign" and text in ")]}":
            opening, start = open_.pop()
            arrow, called = after == "=" and texts[at + 2] == ">", texts[start - 1]
            if opening == "(" and (arrow or (after == "{" and called not in ("if", "for", "while", "switch"))):
                declared.update(_parameters(texts, start, at))
    return counts, declared, refused


def _parameters(texts: Sequence[str], start: int, end: int) -> Iterator[str]:
    """The names between the parentheses of a function, but not those within the calls of their defaults."""
    depth = 0
    for at in range(start, end):
        depth += (texts[at] == "(") - (texts[at] == ")")
        if depth == 1 and texts[at] in ("(", ",", "[", "{", "..."):
            yield _head(texts[at + 1])


def _head(word: str) -> str:
    """The name with which a word begins: of `one.two` one, of `...rest` rest; "" of a number or a property."""
    name = word.removeprefix("...").partition(".")[0]
    return "" if not name or name[0].isdigit() or name[0] == "#" else name


def _renamed(word: str, new: Mapping[str, str]) -> str:
    name = _head(word)
    return word.replace(name, new[name], 1) if name in new else word


def _short() -> Iterator[str]:
    for size in (1, 2):
        yield from map("".join, product("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", repeat=size))


def tight_style(style: str) -> str:
    """Without comments, and without spaces around braces, semicolons and commas; strings stay as they are."""
    pieces = re.split(r"""("[^"\n]*"|'[^'\n]*')""", re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL))
    for at in range(0, len(pieces), 2):
        pieces[at] = re.sub(r"\s*([{},;])\s*", r"\1", re.sub(r"\s+", " ", pieces[at]))
        pieces[at] = re.sub(r"(^|[{;])([\w-]+): ", r"\1\2:", pieces[at]).replace(";}", "}")
    return "".join(pieces).strip()


def used_rules(style: str, program: str, html: str) -> str:
    """The rules of a tight style whose classes are in `html`, or in a string or the name of a property in `program`."""
    pieces = [(kind, text) for kind, text in lexemes(program) if kind not in ("space", "line")]
    names = {name for names in re.findall(r'class="([^"]*)"', html) for name in names.split()}
    for (kind, text), (_, after) in zip(pieces, [*pieces[1:], ("sign", "")]):
        if kind == "string" and not CLASSES.fullmatch(text[1:-1]):
            continue
        if kind in ("string", "template") or (kind == "word" and after == ":"):
            names.update(re.findall(r"[\w-]+", text))
    return _used(style, names)


def _used(style: str, names: set[str]) -> str:
    kept, at = [], 0
    while at < len(style):
        start = style.index("{", at)
        end, depth = start + 1, 1
        while depth:
            depth += {"{": 1, "}": -1}.get(style[end], 0)
            end += 1
        head, body = style[at:start], style[start + 1 : end - 1]
        if head.startswith("@media"):
            body = _used(body, names)
        elif not head.startswith("@"):
            head = ",".join(one for one in _selectors(head) if _reachable(one, names))
        if head and body:
            kept.append(f"{head}{{{body}}}")
        at = end
    return "".join(kept)


def _selectors(head: str) -> list[str]:
    """The selectors of a rule: commas within parentheses do not separate them."""
    found = [""]
    for piece in head.split(","):
        whole = f"{found[-1]},{piece}" if found[-1].count("(") > found[-1].count(")") else ""
        found = [*found[:-1], whole] if whole else [*found, piece]
    return found[1:]


def _reachable(selector: str, names: set[str]) -> bool:
    needed = re.findall(r"\.([A-Za-z][\w-]*)", re.sub(r":not\([^)]*\)", "", selector))
    return all(name in names for name in needed)
