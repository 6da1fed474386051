"""A page's script and style lose characters, and no token."""

import json

import pytest

from javascript import javascript
from regard.report.offline_page import STATIC
from regard.report.tight import lexemes, tight_script, tight_style, used_rules

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
