"""Translation memories element by element: what is text, what is code, and on which line each unit begins."""

import pytest

from regard.base.errors import RegardError
from regard.text.readers import translation_memory
from regard.text.readers.translation_memory import memory_kind, read_memory

TMX = '<tmx version="1.4"><header/><body>{}</body></tmx>'
XLIFF = '<xliff version="{}" {}><file {}>{}</file></xliff>'


def units(tmp_path, content, encoding="utf-8"):
    path = tmp_path / "memory.xml"
    path.write_bytes(content.encode(encoding))
    memory = read_memory(path)
    return memory, list(memory.records(None))


def refusal(tmp_path, content):
    with pytest.raises(RegardError) as caught:
        units(tmp_path, content)
    return str(caught.value)


def segment(text, language="en"):
    return f'<tuv xml:lang="{language}"><seg>{text}</seg></tuv>'


@pytest.mark.parametrize(
    "head, kind",
    [
        ("<tmx>", "TMX"), ("  <?xml version='1.0'?>\n<tmx a='b'>", "TMX"), ("<!DOCTYPE tmx><tmx>", "TMX"),
        ("<!-- <html> --><tmx>", "TMX"), ("<!-- a --><!-- b --><x:xliff>", "XLIFF"), ("<XLIFF>", ""),
        ("<?xml?><XLIFF>", "XLIFF"),
        ("<html>", ""), ("<?xml?><html>", ""), ("text <tmx>", ""), ("", ""), ("<tmxx>", ""), ("<!-- <tmx>", ""),
        ("<?xml?>", ""), ("<!DOCTYPE tmx>", ""),
    ],
)  # fmt: skip
def test_a_memory_is_told_by_its_first_element(head, kind):
    assert memory_kind(head.encode()) == kind
    assert memory_kind(b"\xef\xbb\xbf" + head.encode()) == kind
    assert memory_kind(head.encode("utf-16")) == kind


def test_units_have_the_line_where_they_begin(tmp_path):
    content = TMX.format(f"\n<tu>\n{segment('one')}</tu>\n\n<tu>{segment('two')}\n</tu><tu>{segment('three')}</tu>")
    memory, found = units(tmp_path, content)
    assert memory.kind == "TMX"
    assert found == [(2, {"en": "one"}), (5, {"en": "two"}), (6, {"en": "three"})]


@pytest.mark.parametrize(
    "markup, text",
    [
        ("a <bpt i='1'>code</bpt>b<ept>code</ept> c", "a b c"), ("a <ph>x <sub>y</sub> z</ph> b", "a b"),
        ("a <hi>b <hi>c</hi></hi> d", "a b c d"), ("a <it>x</it><ut>y</ut><x/><bx/><ex/>b", "a b"),
        (" a\n\t b ", "a b"), ("a<cp hex='1f'/>b", "a\ufffdb"), ("a<cp hex='zz'/>b", "ab"), ("a<cp/>b", "ab"),
        ("a<cp hex='1234567'/>b", "ab"), ("&lt;b&gt; &amp;amp;", "<b> &amp;"), ("a <ph>x</ph> b <ph>y</ph> c", "a b c"),
    ],
)  # fmt: skip
def test_text_stays_and_codes_of_other_programs_go(tmp_path, markup, text):
    _, found = units(tmp_path, TMX.format(f"<tu>{segment(markup)}</tu>"))
    assert found == [(1, {"en": text})]


def test_the_first_of_two_sentences_in_a_language_counts_and_none_without_a_language(tmp_path):
    body = f"<tu>{segment('one')}{segment('other')}{segment('moja', 'SW-ke')}<tuv><seg>nobody's</seg></tuv></tu><tu/>"
    _, found = units(tmp_path, TMX.format(body))
    assert found == [(1, {"en": "one", "sw-ke": "moja"})]
    odd = f"<seg>outside</seg><tu><prop><seg>inside</seg></prop>{segment('one')}</tu>"
    assert units(tmp_path, TMX.format(odd))[1] == [(1, {"en": "one"})]


def test_languages_of_xliff_are_the_roots_or_the_files(tmp_path):
    unit = "<unit><segment><source>a</source><target>b</target></segment><segment><source>c</source></segment></unit>"
    memory, found = units(tmp_path, XLIFF.format("2.0", 'srcLang="sw" trgLang="en"', 'id="f"', unit))
    assert (memory.kind, memory.languages) == ("XLIFF 2.0", {"source": "sw", "target": "en"})
    assert found == [(1, {"source": "a", "target": "b"}), (1, {"source": "c"})]
    unit = "<body><trans-unit><source>a</source><target>b</target></trans-unit></body>"
    languages = 'source-language="sw" target-language="en"'
    memory, found = units(tmp_path, XLIFF.format("1.2", "", languages, unit))
    assert (memory.kind, memory.languages) == ("XLIFF 1.2", {"source": "sw", "target": "en"})
    assert found == [(1, {"source": "a", "target": "b"})]
    memory, _ = units(tmp_path, XLIFF.format("1.2", "", 'source-language="sw"', unit))
    assert memory.languages == {"source": "sw", "target": ""}
    memory, _ = units(tmp_path, XLIFF.format("1.2", "", "", unit))
    assert memory.languages == {"source": "", "target": ""}
    memory, _ = units(tmp_path, XLIFF.format("123456789", "", "", unit))
    assert memory.kind == "XLIFF 12345678"
    memory, _ = units(tmp_path, XLIFF.format("1.2", "", "", unit).replace(' version="1.2"', ""))
    assert memory.kind == "XLIFF 1.2"


@pytest.mark.parametrize("depth, fine", [(64, True), (65, False)])
def test_elements_nest_at_most_64_deep(tmp_path, depth, fine):
    inside = depth - 5  # tmx, body, tu, tuv, seg
    content = TMX.format(f"<tu>{segment('<hi>' * inside + 'x' + '</hi>' * inside)}</tu>")
    if fine:
        assert units(tmp_path, content)[1] == [(1, {"en": "x"})]
    else:
        assert "nests elements more than 64 deep" in refusal(tmp_path, content)


def test_a_sentence_and_a_tag_have_a_largest_size(tmp_path, monkeypatch):
    monkeypatch.setattr(translation_memory, "MAX_LINE_BYTES", 300)
    monkeypatch.setattr(translation_memory, "BLOCK", 100)
    assert units(tmp_path, TMX.format(f"<tu>{segment('x' * 300)}</tu><tu>{segment('y' * 300)}</tu>"))[1][1][1] == {
        "en": "y" * 300
    }
    unit = XLIFF.format("1.2", "", "", "<trans-unit><source>{}</source><target>b</target></trans-unit>")
    assert units(tmp_path, unit.format("x" * 300))[1] == [(1, {"source": "x" * 300, "target": "b"})]
    assert "a sentence of more than 0 MiB" in refusal(tmp_path, unit.format("x" * 301))
    assert "a sentence of more than 0 MiB" in refusal(tmp_path, TMX.format(f"<tu>{segment('x' * 301)}</tu>"))
    assert "a tag or comment of more than" in refusal(tmp_path, TMX.format(f"<!--{'x' * 600}-->"))
    assert units(tmp_path, TMX.format(f"<!--{'x' * 150}--><tu>{segment('a')}</tu>"))[1] == [(1, {"en": "a"})]
    monkeypatch.setattr(translation_memory, "MAX_LINE_BYTES", 3 << 20)
    monkeypatch.setattr(translation_memory, "BLOCK", 1 << 20)
    assert "a tag or comment of more than 3 MiB" in refusal(tmp_path, TMX.format(f"<!--{'x' * (5 << 20)}-->"))


def test_what_is_no_memory_says_where(tmp_path):
    assert "neither TMX nor XLIFF" in refusal(tmp_path, "<a><tmx/></a>")
    assert "not complete XML: mismatched tag on line 3;" in refusal(tmp_path, "<tmx>\n<body>\n</tmx>")


@pytest.mark.parametrize("longest, fine", [(400, True), (399, False)])
def test_a_comment_is_measured_from_its_first_byte(tmp_path, monkeypatch, longest, fine):
    monkeypatch.setattr(translation_memory, "MAX_LINE_BYTES", longest)
    monkeypatch.setattr(translation_memory, "BLOCK", 100)
    rest = f"<tmx><tu>{segment('a')}</tu></tmx>"
    assert len(rest) < 100  # so that the comment ends in the last block
    content = f"<!--{'x' * (400 - 7 - len(rest))}-->{rest}"
    assert len(content) == 400
    if fine:
        assert units(tmp_path, content)[1] == [(1, {"en": "a"})]
    else:
        assert "a tag or comment of more than" in refusal(tmp_path, content)
