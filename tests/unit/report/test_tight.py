"""A page's script and style lose characters, and no token."""

import json
import re
import string

import pytest

from javascript import javascript
from regard.exchange.chromium import Chromium, find_chromium
from regard.report.offline_page import STATIC, script_of
from regard.report.tight import lexemes, short_names, tight_script, tight_style, undeclared, used_rules

TRICKY = r"""
const list = [1, 2, 3], half = (list.length + 1) / 2 / 1, g = 4; // "a comment
const pattern = /[/"'`]{1,2}\/ \{/g, nested = `a  ${ `b // ${ { c: "}" }.c }` }  /* no comment */`;
/* a comment */ let a = 1, b = 2
a = b
++b
const sum = a + +b - -b + b++ + ++b, text = "two  spaces // here" + 'it\'s  so';
const smaller = a < !b, point = 1 .toFixed(1), fraction = a ? .5 : 1;
const divided = list [0] / g / 2, tested = typeof /x y/.source, both = "x" in { x: 1 } ? 1 : 0;
const of = (x) => { if (x) return /a b/.test(x) ; return x };
const all = [half, pattern.source, nested, a, b, sum, text, smaller, point, fraction];
return JSON.stringify([...all, divided, tested, both, of("a b"), "a".match(pattern)]);
"""
SCRIPTS = sorted(STATIC.glob("**/*.js"))


def pieces(program):
    """The lexemes that count, and which of them begin a line."""
    found, new_line = [], True
    for kind, text in lexemes(program):
        if kind == "line":
            new_line = True
        elif kind != "space":
            found.append((kind, text, new_line))
            new_line = False
    return found


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_module_of_the_lab_keeps_its_lexemes_and_lines(path):
    program = path.read_text(encoding="utf-8")
    assert pieces(tight_script(program)) == pieces(program)
    assert "".join(text for _, text in lexemes(program)) == program


def test_a_script_computes_the_same():
    tight = tight_script(TRICKY)
    assert len(tight) < len(TRICKY) - 60
    assert pieces(tight) == pieces(TRICKY)
    both = "return [new Function(given[0])(), new Function(given[1])()];"
    before, after = javascript("arrays", both, [TRICKY, tight])
    assert before == after
    assert len(json.loads(before)) == 15


def test_a_template_that_does_not_end_is_an_error():
    with pytest.raises(ValueError, match="does not end"):
        tight_script("const a = `b ${ c }")


def test_a_style_keeps_its_strings_and_selectors():
    style = """/* a, b */ .a > b , i:not(.x)::after { content: " , ; { "; color: red; }
    @media (max-width: 4rem) { .b c:hover { --s: 1px } }"""
    assert tight_style(style) == (
        '.a > b,i:not(.x)::after{content:" , ; { ";color:red}@media (max-width: 4rem){.b c:hover{--s:1px}}'
    )


def test_only_rules_for_classes_that_the_script_names_are_kept():
    style = tight_style(
        "p, .gone p, .kept, .key:is(.x, i:not(.y)), .key { a: b } .word { a: b } .html:not(.gone) { a: b } "
        "@media print { .gone { a: b } } @media screen { .part-of { a: b } }"
    )
    program = 'const word = el("p", { class: `kept ${name}` }), names = { key: 1 }; one.toggle("part-of");'
    assert used_rules(style, program, '<p class="other html">') == (
        "p,.kept,.key{a:b}.html:not(.gone){a:b}@media screen{.part-of{a:b}}"
    )


NAMED = """
const counted = (given, { length, step = 2 }) => {
  const total = given.length + step;
  return { total, length, other: given };
};
function longer(words) {
  for (const word of words) if (performance.now() > word.size) { return `${word} ${words.join("words")}`; }
  return words;
}
class Reader { words() { return longer([3]); } }
const parent = (event) => event.target === document;
"""


def test_short_names_replace_what_is_declared_and_nothing_that_could_be_a_property():
    short = short_names(NAMED, {"Reader"})
    for name in ("length", "step", "total", "performance", "document", "event", "other", "size", "target", "Reader"):
        assert len(re.findall(rf"\b{name}\b", short)) == len(re.findall(rf"\b{name}\b", NAMED)), name
    for name in ("counted", "given", "longer", "word"):
        assert not re.search(rf"\b{name}\b", short), name
    assert '"words"' in short
    assert undeclared(short) == undeclared(NAMED)


@pytest.mark.parametrize(
    ("module", "short"),
    [
        ("const counted = 1, other = counted + counted;", "const a = 1, other = a + a;"),
        ("const longer = 1; const most = longer; most; most; most;", "const b = 1; const a = b; a; a; a;"),
        ("const letters = [outside]; const first = letters;", "const a = [outside]; const b = a;"),
        ("const ab = 1, a = ab;", "const ab = 1, a = ab;"),  # too short to lose anything
        (
            "const Reader = 1; const CONST = Reader; const SIZES = CONST;",
            "const Reader = 1; const a = Reader; const b = a;",
        ),
        ("if (outside > 1) { outside(); } while (beyond) { beyond(); }", None),
        ("switch (outside) { default: outside; } for (outside of beyond) { beyond; }", None),
        ("const made = (given) => { return given; };", "const b = (a) => { return a; };"),
        ("const made = given => given;", "const b = a => a;"),
        ("function made(given, ...others) { return given(others); }", "function c(b, ...a) { return b(a); }"),
        (
            "const made = (given = outside(inner, last)) => { given; };",
            "const b = (a = outside(inner, last)) => { a; };",
        ),
        ("const made = ([first, last]) => { first; last; };", "const c = ([a, b]) => { a; b; };"),
        ("const value = 1; other({ value, more: value });", None),
        ("const value = 1; one.value = value;", "const a = 1; one.value = a;"),
        ("const value = 1; test ? value : 2;", "const a = 1; test ? a : 2;"),
        (
            "const value = 1; const one = { value() { return value; } };",
            "const value = 1; const a = { value() { return value; } };",
        ),
        ("class Made { get value() { return 1; } } const value = 2;", None),
        ("const value = 1; `${value} ${[value]}`;", "const a = 1; `${a} ${[a]}`;"),
        ("let value = 1; value = #value in x ? 2 : 3;", "let a = 1; a = #value in x ? 2 : 3;"),
    ],
)
def test_what_is_declared_gets_a_letter_and_what_may_be_known_elsewhere_keeps_its_name(module, short):
    found = short_names(module)
    assert found == (short or module)
    assert undeclared(found) == undeclared(module)


def test_names_are_of_one_letter_and_then_of_two():
    names = [f"name{n:02}" for n in range(60)]
    found = re.findall(r"(\w+) =", short_names("".join(f"const {name} = 1;\n" for name in names)))
    assert found == [*string.ascii_lowercase, *string.ascii_uppercase, *(f"a{letter}" for letter in "abcdefgh")]
    taken = short_names("const counted = a + b;", {"c"})
    assert taken == "const d = a + b;"
    assert undeclared("const first = second + third.fourth;") == {"const", "second", "third"}


@pytest.mark.parametrize("entry", ["page/page", "page/worker", "report", "offline"])
def test_no_name_of_the_browser_is_replaced(entry, monkeypatch):
    if find_chromium() is None:
        pytest.skip("no Chromium is here to ask for its names")
    replaced = set()

    def spied(module, kept):
        short = short_names(module, kept)
        replaced.update({*re.findall(r"\w+", module)} - {*re.findall(r"\w+", short)})
        return short

    monkeypatch.setattr("regard.report.bundle_modules.short_names", spied)
    script_of.__wrapped__(entry)
    with Chromium.start() as browser:
        page = browser.open("about:blank")
        assert page.evaluate(f"{json.dumps(sorted(replaced))}.filter((name) => name in globalThis)") == []
    assert replaced
