"""The Python of the pages as `make check` sees it: on the lines of its page, and checked for real."""

import re
from pathlib import Path

import pytest

import typed_docs

PAGE = """# A page

```python
import regard
```

```python
>>> regard.__version__
'0.1.0'
```

```python
return "a fragment"
```
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    def write(text):
        (tmp_path / "page.md").write_text(text, encoding="utf-8")
        monkeypatch.setattr(typed_docs, "PAGES", [tmp_path / "page.md"])
        return tmp_path / "page.md"

    return write


def test_code_keeps_the_lines_of_its_page(page):
    code = typed_docs.python_of(page(PAGE)).splitlines()
    assert len(code) == len(PAGE.splitlines())
    assert (code[3], code[7], code[8]) == ("import regard", "regard.__version__", "")
    assert code[11:13] == ["def fragment_11() -> Any:", '    return "a fragment"']


def test_a_machine_without_node_is_told_so(page, capsys, monkeypatch):
    page("```python\nimport math\n```\n")
    monkeypatch.setattr(typed_docs, "which", lambda name: None)
    assert typed_docs.main() == 0
    assert "only mypy has checked" in capsys.readouterr().out


def test_every_page_with_python_is_checked():
    root = Path(__file__).parents[2]
    with_python = [path for path in (root / "docs").rglob("*.md") if "```python" in path.read_text(encoding="utf-8")]
    assert {root / "README.md", *with_python} <= set(typed_docs.PAGES)


def test_both_checkers_name_a_wrong_line_of_a_page_and_know_the_run_of_a_system(page, capsys):
    kinds = {
        "regard.train('lstm')": "LanguageRun",
        "regard.train('seq2seq', size='tiny')": "TranslationRun",
        "regard.train('classifier')": "ClassificationRun",
        "regard.train('mine.py:Mine')": "LanguageRun | TranslationRun | ClassificationRun",
        "regard.load('x', regard.TranslationRun)": "TranslationRun",
        "regard.load('x', regard.TranslationRun).translate('x')": "str",
        "regard.load('x', regard.TranslationRun).translate(['x'])": "list[str]",
    }
    revealed = "".join(f"reveal_type({code})\n" for code in kinds)
    page(f"```python\nimport regard\n\nregard.train('lstm').translate('x')\n{revealed}```\n")
    assert typed_docs.main()
    said = capsys.readouterr().out
    assert 'page.md:4: error: "LanguageRun" has no attribute "translate"' in said
    assert "page.md:4:22 - error" in said or "only mypy has checked" in said
    found = re.findall(r'Revealed type is "(.*)"', said)
    assert [re.sub(r"\w+\.", "", kind) for kind in found] == list(kinds.values()), said
