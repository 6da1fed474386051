"""A page's script and style lose characters, and no token."""

import json
import re

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
