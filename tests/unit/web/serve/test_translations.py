"""LibreTranslate's own client against a server on a real socket, and what happens to HTML."""

import string
from html.parser import HTMLParser

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libretranslatepy import LibreTranslateAPI
from starlette.testclient import TestClient

import regard
from regard.base.errors import RegardError
from regard.exchange.engines import open_engine
from regard.web.serve.api_server import application
from regard.web.serve.html_segments import HtmlSegments
from regard.web.serve.sentences_of import Sentences
from regard.web.serve.served_models import ServedModels

SENTENCES = ["They are watching.", "The cat sees the house.", "I do not eat bread."]


@pytest.fixture(scope="module")
def run(runs):
    return regard.load(runs["enfr"], device="cpu")


@pytest.fixture(scope="module")
def post(address):
    with httpx.Client(base_url=address, timeout=600) as client:

        def ask(path, **body):
            answer = client.post(path, json=body)
            return answer.status_code, answer.json()

        yield ask


def translate(post, q, **more):
    status, said = post("/translate", **{"q": q, "source": "en", "target": "fr", **more})
    assert status == 200, said
    return said


def test_their_client_translates(address, run):
    client = LibreTranslateAPI(address)
    for sentence in SENTENCES:
        assert client.translate(sentence, "en", "fr") == run.translate(sentence)
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["fr"]},
        {"code": "fr", "name": "French", "targets": []},
    ]
    (found,) = client.detect(SENTENCES[0])
    assert found["language"] == "en"
    assert 0 < found["confidence"] <= 100


def test_arrays_alternatives_and_sentences(post, run):
    together = translate(post, SENTENCES, alternatives=2)
    assert together["translatedText"] == run.translate(SENTENCES)
    for number, sentence in enumerate(SENTENCES):
        alone = translate(post, sentence, alternatives=2)
        assert alone["translatedText"] == together["translatedText"][number]
        assert alone["alternatives"] == together["alternatives"][number]
        (ways,) = run.translations([sentence], beam=regard.Beam(5, n_best=3))
        assert [alone["translatedText"], *alone["alternatives"]] == list(dict.fromkeys(way.text for way in ways))
    text = f"  {SENTENCES[0]} {SENTENCES[1]}\n\n{SENTENCES[2]}\n"
    first, second, third = together["translatedText"]
    assert translate(post, text)["translatedText"] == f"  {first} {second}\n\n{third}\n"
    assert translate(post, " \n")["translatedText"] == " \n"
    assert translate(post, "même", source="fr")["translatedText"] == "même"


def test_the_language_may_be_left_to_the_models(post):
    said = translate(post, SENTENCES[0], source="auto")
    assert said["detectedLanguage"]["language"] == "en"
    assert said["translatedText"] == translate(post, SENTENCES[0])["translatedText"]
    assert len(translate(post, SENTENCES, source="auto")["detectedLanguage"]) == 3


def test_html_keeps_its_mark_up(post, run):
    first, second = run.translate(SENTENCES[:2])
    html = f'<p class="a b">{SENTENCES[0]}<br/>\n<b>{SENTENCES[1]}</b><code>x &lt; 1.</code><!-- no --></p>'
    expected = f'<p class="a b">{first}<br/>\n<b>{second}</b><code>x &lt; 1.</code><!-- no --></p>'
    assert translate(post, html, format="html")["translatedText"] == expected
    assert translate(post, "<b>.</b>&nbsp;<i>—</i>", format="html")["translatedText"] == "<b>.</b>&nbsp;<i>—</i>"


@pytest.mark.parametrize(
    "body, words",
    [
        ({}, "q must be a text or a list of texts"),
        ({"q": "a"}, "source must be"),
        ({"q": "a", "source": "en"}, "target must be"),
        ({"q": "a", "source": "en", "target": "xx"}, '"xx" is not supported'),
        ({"q": "a", "source": "fr", "target": "en"}, "No model here translates fr → en"),
        ({"q": "a", "source": "auto", "target": "en"}, "The language could not be detected"),
        ({"q": 1, "source": "en", "target": "fr"}, "q must be"),
        ({"q": [], "source": "en", "target": "fr"}, "q must be"),
        ({"q": ["a", None], "source": "en", "target": "fr"}, "q must be"),
        ({"q": "a", "source": "en", "target": "fr", "format": "pdf"}, "format must be"),
        ({"q": "a", "source": "en", "target": "fr", "alternatives": 99}, "alternatives must be"),
        ({"q": "a b " * 300, "source": "en", "target": "fr"}, "trained on at most"),
        ({"q": "a" * 20_001, "source": "en", "target": "fr"}, "more than 20,000 characters"),
        ({"q": "a", "source": "en", "target": "fr", "glossary": "b"}, 'no field "glossary"'),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(post, body, words):
    status, said = post("/translate", **body)
    assert status == 400
    assert words in said["error"]


def test_the_settings_are_those_their_page_asks_for(address):
    said = httpx.get(f"{address}frontend/settings").json()
    assert said["language"]["target"]["code"] == "fr"
    assert said["keyRequired"] is False


def test_a_key_is_asked_for_where_there_is_a_token(runs, served):
    token = "a-token-of-this-test-0123"
    with served(runs["enfr"], token=token) as (address, _):
        assert LibreTranslateAPI(address, api_key=token).translate(SENTENCES[0], "en", "fr")
        assert LibreTranslateAPI(address, api_key=token).languages()
        body = {"q": "a", "source": "en", "target": "fr"}
        for key in ({}, {"api_key": "wrong"}, {"api_key": 1}):
            assert httpx.post(f"{address}translate", json={**body, **key}).status_code == 401
        shown = {"authorization": f"Bearer {token}"}
        assert httpx.post(f"{address}translate", json=body, headers=shown).status_code == 200
        assert httpx.get(f"{address}metrics").status_code == 401
        assert httpx.get(f"{address}frontend/settings").json()["keyRequired"] is True


def test_languages_may_be_named(runs, served):
    with served(runs["enfr"], languages={"enfr": ("sw", "de")}) as (address, _):
        assert httpx.post(f"{address}detect", json={"q": "Maji."}).json()[0]["language"] == "sw"
        assert httpx.get(f"{address}languages").json()[1] == {"code": "sw", "name": "Swahili", "targets": ["de"]}


# -- HTML and sentences by themselves ----------------------------------------------------------------------------------


class Tags(HTMLParser):
    """Everything but the text."""

    def __init__(self, html):
        super().__init__()
        self.found = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, attrs))

    def handle_endtag(self, tag):
        self.found.append(tag)

    def handle_comment(self, data):
        self.found.append(data)


PIECES = st.sampled_from(
    ["<p>", "</p>", "<b>", "</b>", "<br>", "<br/>", "<a href='x?a=1&amp;b=2'>", "</a>", "<!-- a > b -->", "&lt;",
     "&amp;", "word", "Two words. ", "\n", " ", "é", "<script>if (a < b) c()</script>", "<!doctype html>", "<", ">",
     "&", "<?pi?>", "<p translate=no>", "<i class='notranslate x'>", "</i>", "<ul><li>", "</div>", "<![CDATA[x]]>",
     "<img alt='a>b'>"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=12).map("".join))
def test_another_text_never_changes_the_tags(html):
    segments = HtmlSegments(html)
    assert Tags(segments.filled([text.upper() for text in segments.texts])).found == Tags(html).found
    same = segments.filled(segments.texts)
    assert HtmlSegments(same).texts == segments.texts
    assert Tags(segments.filled(["<script>alert('&amp;')</script>"] * len(segments.texts))).found == Tags(html).found


def test_what_is_no_text_stays_byte_for_byte():
    html = "<!doctype html>\n<P ID = x >A&nbsp;b<BR>c</P  ><pre>d</pre><b translate=no>e<i>f</i></b><style>g</style>"
    segments = HtmlSegments(html)
    assert segments.texts == ["A\xa0b", "c"]
    assert segments.filled(["1", "2"]) == html.replace("A&nbsp;b", "1").replace(">c<", ">2<")


@pytest.mark.parametrize("html", ["<a " * 6000, "</" * 9000, "<p>x</p><!-- never ended", "<xmp><style>" * 1500])
def test_tags_that_never_end_stay_as_they_are(html):
    """In linear time: else the server would answer nobody meanwhile."""
    segments = HtmlSegments(html)
    assert segments.filled(["y"] * len(segments.texts)) == html.replace(">x<", ">y<")


IMAGE = "<img src=x onerror=alert(1)>"


@pytest.mark.parametrize(
    "kept",
    [
        f"<!-- >{IMAGE}", f'<a b="> {IMAGE}', f"<a b='> {IMAGE}", "<?php a", "<!a", "<a", "</", "</a b", "<",
        f"<textarea>{IMAGE}", f"<plaintext>a</plaintext>{IMAGE}", f"<title>a{IMAGE}", f"<style>a{IMAGE}",
        f"<script><!-- <script> a </script>{IMAGE} -->", f"<svg><style><!--</style></svg>a{IMAGE}-->",
        f"<svg><![CDATA[ ></svg>a{IMAGE} ]]>", f"<noscript><a b='</noscript>a{IMAGE}'>",
        f"<select><xmp><!--</xmp></select>a{IMAGE}-->", "<![<![ ",
    ],
)  # fmt: skip
def test_all_from_what_is_left_open_or_has_two_readings_stays_as_it_is(kept):
    segments = HtmlSegments(f"<p>the cat</p>{kept}")
    assert segments.filled(["y"] * len(segments.texts)) == f"<p>y</p>{kept}"


@pytest.mark.parametrize(
    "kept",
    [
        "<!-- x --!>", "<!-->", "<!--->", "<!-- a > b -->", "<?php echo $a->b ?>", "<?php x ?>", "<!DOCTYPE a>",
        '<!DOCTYPE a [ <!ENTITY b "c"> <!ENTITY d "e"> ]>', "<![foo[ a ]]>", "<![CDATA[ a ]]>", "<![<![ >", "</>",
        "</ a>",
        "<textarea><b>a</textarea>", "<TITLE>a<b></tItLe >", "<script>if (a<b) '<!--'</script>", "<style>a<b</style>",
        "<noscript><iframe src=a></iframe></noscript>", "<svg><title>a</title><path d='M0'/></svg>", "<br/>",
        "<a b = 'c>d' e=f/ g=\"'>\" =h i=>", "<p translate=NO>a<b/>b</b></p>", "<b class='x notranslate' class=y>a</b>",
    ],
)  # fmt: skip
def test_markup_stays_byte_for_byte(kept):
    segments = HtmlSegments(f"one{kept}two")
    assert (segments.texts[0], segments.texts[-1].endswith("two")) == ("one", True)
    assert segments.filled(["y" if text == "one" else text for text in segments.texts]) == f"y{kept}two"
    if "ENTITY" not in kept:  # for browsers it ends with the first one, and text follows
        assert segments.texts == ["one", "two"]


@pytest.mark.parametrize(
    ("html", "texts"),
    [
        ("<p translate=no><b>x</b></b>y</p>z", ["z"]), ("<b>x</b></b></b>y", ["x", "y"]),
        ("<i translate=no>a<b>b<b>c</b>d</b>e</i>f", ["f"]), ("<i translate=no><b><b>a</i>b", ["b"]),
        ("<p translate=yes>a</p>", ["a"]), ("<svg><circle/>a</svg>b", ["b"]), ("<svg><g>a</g>b</svg>c", ["c"]),
        ("<br translate=no>a", ["a"]), ("<p class=notranslated>a</p>", ["a"]),
        ("<p translate=no translate=yes>a</p>b", ["b"]), ("<i translate='no'/>a", []),
        ("<!a>b?>c", ["b?>c"]), ("<?a>b?>c", ["c"]), ("a<p", ["a"]), ("a<p>", ["a"]), ("&lt;b&gt; &amp;", ["<b> &"]),
        ("<div/>a", ["a"]), ("<i translate=no/>a", ["a"]),
        ("<svg><![CDATA[x]]></svg>b", ["b"]), ("<svg><![CDATA[x>y]]></svg>b", []),
        ("<svg/>a", ["a"]), ("<svg><i translate=no/></svg>a", ["a"]),
    ],
)  # fmt: skip
def test_texts_are_those_that_stand_in_no_element_whose_content_stays(html, texts):
    segments = HtmlSegments(html)
    assert segments.texts == texts
    assert segments.filled(segments.texts) == html


LETTERS = st.text(st.sampled_from("<>!-/?=\"' [](&;#aAdtscriptxmlve\n"), max_size=30)


@given(
    st.lists(PIECES | LETTERS | st.sampled_from(["<svg>", "<!--", "-->", "<style>", "</xmp>", "&nbsp;"])).map("".join)
)
def test_the_parts_are_the_html_and_the_same_texts_change_nothing(html):
    segments = HtmlSegments(html)
    assert "".join(part for part, _ in segments.parts) == html
    assert segments.filled(segments.texts) == html


@given(st.text(st.sampled_from(string.ascii_letters + " .!?\n\t…。\"')(É1"), max_size=60))
def test_sentences_and_what_is_between_them_are_the_text(text):
    cut = Sentences(text)
    assert cut.joined(cut.found) == text
    assert all(one == one.strip() != "" for one in cut.found)


@pytest.mark.parametrize(
    "text, sentences",
    [
        ("It rains. She sleeps! Does he? Yes.", ["It rains.", "She sleeps!", "Does he?", "Yes."]),
        ("Dr. Who met J. Smith. They ran.", ["Dr. Who met J. Smith.", "They ran."]),
        ("It costs 3.50 euros, e.g. here. “So?” he asked.", ["It costs 3.50 euros, e.g. here.", "“So?” he asked."]),
        ("He said “No.” She left.", ["He said “No.”", "She left."]),
        ("Oui…  Étienne dort.\nFin", ["Oui…", "Étienne dort.", "Fin"]),
        ("雨が降る。寝る。", ["雨が降る。", "寝る。"]),
        (" . — ", []),
    ],
)
def test_a_text_is_cut_where_sentences_end(text, sentences):
    assert Sentences(text).found == sentences


def test_another_engine_searches_for_the_server_as_for_translate(runs):
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    for folder, engine, sentence in (
        ("writer", "ctranslate2", "applies only to translators"),
        ("enfr", "nothing", "--engine"),
    ):
        with pytest.raises(RegardError, match=sentence):
            ServedModels([runs[folder]], languages={}, places=1, device="cpu", engine=engine)
    models = ServedModels([runs["enfr"]], languages={}, places=8, device="cpu", engine="ctranslate2-int8")
    asked = {"q": "The cat sees the house.", "source": "en", "target": "fr"}
    with TestClient(application(models, host="127.0.0.1"), base_url="http://127.0.0.1") as client:
        found = client.post("/translate", json=asked).json()["translatedText"]
    beside = regard.load(runs["enfr"], device="cpu")
    beside.searcher = open_engine("ctranslate2-int8", beside)
    assert found == beside.translate(asked["q"])
