"""Modules as one script: each keeps its scope, and what is not understood is refused."""

import re

import pytest

from regard.report.bundle_modules import bundle_modules
from regard.report.offline_page import STATIC

MODULES = {
    "a": 'import { twice, x as y } from "./b.js";\nimport * as c from "./c.js";\nconst short = twice(y) + c.z;\n',
    "b": 'import { z } from "./c.js";\nexport const x = z;\nexport function twice(n) { return 2 * n; }\n',
    "c": "const short = 3;\nexport const z = short;\n",
}


def test_what_is_imported_comes_first_and_once():
    script = bundle_modules("a", MODULES.__getitem__)
    assert re.findall(r"^const module_(\w+)", script, re.MULTILINE) == ["c", "b", "a"]
    assert "const { twice, x: y } = module_b;" in script
    assert "const c = module_c;" in script
    assert "return { x, twice };" in script
    assert "export" not in script


def test_every_kind_of_export_is_returned_and_a_name_may_have_a_path():
    modules = {
        "a/b-c": 'import { d } from "../d.js";\nexport async function f() {}\nexport class G {}\nexport let h = 1;\n',
        "d": "export function* d() {}\n",
    }
    script = bundle_modules("a/b-c", modules.__getitem__)
    assert script.startswith('"use strict";\nconst module_d = (() => {\nfunction* d() {}\n')
    assert "const module_a_b_c = (() => {\nconst { d } = module_d;\nasync function f() {}\n" in script
    assert "return { f, G, h };" in script


@pytest.mark.parametrize("line", ["export default {};", 'import "./c.js";', "export { z };"])
def test_what_is_not_understood_is_refused(line):
    with pytest.raises(ValueError, match="not understood"):
        bundle_modules("a", {"a": line + "\n"}.__getitem__)


def test_modules_that_import_each_other_are_refused():
    with pytest.raises(ValueError, match="imports itself"):
        bundle_modules("a", {"a": 'import { b } from "./b.js";\n', "b": 'import { a } from "./a.js";\n'}.__getitem__)


def test_no_module_of_the_offline_page_could_end_its_script():
    for path in STATIC.glob("*.js"):
        assert "</script" not in path.read_text(encoding="utf-8")


def test_what_nothing_uses_is_left_out_and_nothing_else():
    modules = {
        "a": 'import { used } from "./b.js";\nconst kept = used(2);\nexport const more = kept;\n',
        "b": "// idle() in a comment is no use\nexport const idle = (x, y = [1, 2]) => deeper(x);\n"
        "function deeper(n) {\n  return n;\n}\nexport function used(n) { return twice(n); }\n"
        "const twice = (n) => 2 * n, thrice = (n) => 3 * n;\nconst done = (() => run())();\nfunction run() {}\n",
    }
    script = bundle_modules("a", modules.__getitem__)
    assert "idle" not in script
    assert "deeper" not in script
    assert "return { used };" in script
    assert re.search(r"= \(\(\) => \w+\(\)\)\(\);", script)  # what a module does when it is read stays
    assert re.search(r"const (\w+) = \(n\) => 2 \* n, \w+ = \(n\) => 3 \* n;", script)
