"""The views of a trace show what the trace holds, whatever system it is of, and the page works by itself."""

import hashlib
import html
import json
import re
import xml.etree.ElementTree as ET
from base64 import b64decode, b64encode
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from rich.cells import cell_len

from regard.base.errors import RegardError
from regard.insight.trace import Candidate
from regard.insight.tracing import trace_language, trace_translation
from regard.insight.views import figures
from regard.insight.views.as_json import facts
from regard.insight.views.page import fragment, trace_page
from regard.insight.views.terminal import show
from regard.insight.words import labels, labels_after, part_name
from regard.laws.registry import builder, stirred
from regard.report.figures import Heat
from regard.report.svg import svg
from regard.report.terminal import UNLIMITED, terminal
from regard.systems.catalogue import SYSTEMS
from regard.text.tokenizers.tokenizer import Tokenizer

WORDS = Tokenizer.of_tokens(["<eos>", "<unk>", *"abcdefghijklmno"], "word")
NAMES = [system.name for system in SYSTEMS if system.task in ("language model", "translation")]


def trace_of(system, target=None):
    torch.manual_seed(0)
    model = stirred(builder(system))
    if next(one.task for one in SYSTEMS if one.name == system) == "translation":
        return trace_translation(model, WORDS, WORDS, "d e a f b", target, gradients=True, beam=3, system=system)
    return trace_language(model, WORDS, "c a f e b a d", gradients=True, system=system)


@pytest.fixture(scope="module", params=NAMES)
def trace(request):
    return trace_of(request.param)


def unpacked(page):
    """What the page's script reads: the facts, and each matrix as the numbers that its bytes stand for."""
    raw = b64decode(re.search(r'<script type="text/plain" class="trace">(.*?)</script>', page, re.DOTALL)[1])
    length = int.from_bytes(raw[:4], "little")
    header = json.loads(raw[4 : 4 + length])
    arrays = {}
    for one in header["arrays"]:
        values = np.frombuffer(
            raw, np.dtype(one["type"]), int(np.prod(one["shape"])), 4 + length + one["offset"]
        ).reshape(one["shape"])
        if one["type"] == "uint8":
            values = one["low"] + values / 255 * (one["high"] - one["low"])
        arrays[one["name"]] = values
    return header["about"], arrays


def facts_of(page):
    return unpacked(page)[0]


def test_the_page_asks_for_nothing_and_may_ask_for_nothing(trace):
    page = trace_page(trace)
    assert not re.search(
        r"\ssrc\s*=|@import|url\(|fetch\(|XMLHttpRequest|import\(|EventSource|WebSocket|\.innerHTML", page
    )
    assert set(re.findall(r"https?://[^\"\s]*", page)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert all(address.startswith("data:") for address in re.findall(r'href="([^"]*)', page))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy
    for tag in ("style", "script"):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1]
        digest = b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert len(page) < 400_000


def test_the_page_holds_the_trace_up_to_the_steps_of_its_shades(trace):
    facts, arrays = unpacked(trace_page(trace))
    assert facts["words"]["read"] == list(trace.tokens)
    assert [[one["token"] for one in choices] for choices in facts["top"]] == [
        [c.token for c in row] for row in trace.top
    ]
    assert [entry["name"] for entry in facts["attention"]] == list(trace.attention)
    for entry in facts["attention"]:
        weights = trace.attention[entry["name"]]
        assert np.abs(arrays[f"attention/{entry['name']}"] - weights).max() <= 0.5 / 255 + 1e-6
        assert entry["causal"] == trace.attention_matrix(entry["name"]).causal
    held = {**trace.gates, **trace.hidden}
    assert {entry["name"] for entry in facts["inside"]} == set(held)
    for entry in facts["inside"]:
        values, shown = held[entry["name"]], arrays[f"inside/{entry['name']}"]
        reach = np.abs(values).max() * (2 if entry["diverging"] else 1)
        assert np.abs(shown - values).max() <= 0.51 * max(reach, 1.0) / 255
    for entry in facts["gradients"]:
        slopes = trace.gradients_by_name[entry["name"]].values
        shown = arrays[f"gradient/{entry['name']}"]
        assert np.array_equal(np.isfinite(shown), np.isfinite(slopes) & (slopes > 0))
        assert np.allclose(10 ** shown[np.isfinite(shown)], slopes[np.isfinite(shown)], rtol=1e-4)


def test_what_is_there_is_told_and_nothing_else(trace):
    facts = facts_of(trace_page(trace))
    assert bool(facts["attention"]) == bool(trace.attention)
    assert facts["alignment"] == (trace.alignment is not None)
    assert bool(facts["gradients"]) == bool(trace.gradients_by_name)
    assert bool(facts["beam"]) == bool(trace.beam)
    assert facts["words"]["source"] == list(trace.source)


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("colour", [False, True])
def test_the_terminal_shows_every_step_within_its_width(trace, width, colour):
    text = re.sub(r"\x1b\[[0-9;]*m", "", show(trace, width=width, colour=colour))
    lines = text.split("\n")
    assert max(map(cell_len, lines)) <= width
    first = 1 + next(number for number, line in enumerate(lines) if line.startswith("read"))
    table = lines[first : first + trace.steps]
    assert [line.split()[0] for line in table] == list(trace.tokens)
    for number in range(1, 1 + sum(branch.rank > 0 for branch in trace.beam)):
        assert chr(0x245F + number) in text


def test_a_head_is_shown_alone_where_it_is_named():
    trace = trace_of("gpt")
    whole, alone = figures.attention(trace, "self/0"), figures.attention(trace, "self/0", 1)
    assert np.allclose(np.nan_to_num(alone.values), trace.attention["self/0"][1])
    assert np.allclose(np.nan_to_num(whole.values), trace.attention["self/0"].mean(0))
    assert "Self-attention, layer 1, head 2 (--layer self/0 --head 1)" in show(
        trace, width=80, colour=False, attention="self/0", head=1
    )
    with pytest.raises(RegardError, match="self/9"):
        show(trace, attention="self/9")
    with pytest.raises(RegardError, match="its heads are 0 to"):
        show(trace, attention="self/0", head=99)


def test_a_gradient_that_is_exactly_zero_is_an_empty_cell_and_no_other():
    trace = trace_of("lstm")
    shown = np.array(figures.gradients(trace)["gradients"].values)
    known = np.isfinite(trace.gradients)
    assert np.array_equal(np.isnan(shown[known]), trace.gradients[known] == 0)
    assert np.allclose(10 ** shown[~np.isnan(shown)], trace.gradients[known & (trace.gradients > 0)])


HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>&"\''


class Tags(HTMLParser):
    """Every tag of a page, and every attribute that could run something."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.acts = Counter(), []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self.acts += [name for name, _ in attributes if name.startswith("on") or name == "src"]


@pytest.mark.parametrize("system", ["gpt", "bahdanau", "lstm"])
def test_words_that_look_like_code_stay_words(system):
    trace = trace_of(system)
    plain = Tags(trace_page(replace(trace, text="x", translation="x", run="x", notes=("x",), label="x")))
    evil = replace(
        trace,
        tokens=(HOSTILE, *trace.tokens[1:]), targets=(HOSTILE, *trace.targets[1:]), source=trace.source and
        (HOSTILE, *trace.source[1:]), text=HOSTILE, translation=HOSTILE, run=HOSTILE, notes=(HOSTILE,), label=HOSTILE,
        system=HOSTILE, top=((Candidate(HOSTILE, 0.5), *trace.top[0][1:]), *trace.top[1:]),
        attention={name.replace("self/0", HOSTILE): weights for name, weights in trace.attention.items()},
        gates={name.replace("layer", HOSTILE): values for name, values in trace.gates.items()},
        beam=tuple(replace(branch, token=HOSTILE, text=HOSTILE) for branch in trace.beam),
    )  # fmt: skip
    page = trace_page(evil)
    assert Tags(page).tags == plain.tags
    assert Tags(page).acts == []
    assert facts_of(page)["words"]["read"][0] == HOSTILE
    assert html.escape(HOSTILE) in re.search(r"<title>(.*?)</title>", page, re.DOTALL)[1]


# -- one labelled array ----------------------------------------------------------------------------------------------


def printed(heat):
    """Rows, columns and numbers of a heat map, read back from what a pipe gets of it."""
    _, _, heads, *lines = terminal(heat, width=UNLIMITED, colour=False).split("\n")
    rows = [line.partition("│")[::2] for line in lines if "│" in line]
    cells = [
        [re.sub("[ ░▒▓█]", "", cell) for cell in re.findall(r"[ ░▒▓█]*(?:·|−?\d*\.\d\d)", line)] for _, line in rows
    ]
    return tuple(row.strip() for row, _ in rows), tuple(heads.split()), cells


def test_page_terminal_and_json_show_the_same_numbers_for_the_same_words(trace):
    facts, arrays = unpacked(trace_page(trace))
    sent = json.loads(json.dumps(trace.as_json()))
    assert len(facts["attention"]) == len(trace.attention)
    for entry in facts["attention"]:
        rows, columns = (tuple(facts["words"][entry[side]]) for side in ("rows", "columns"))
        matrix = sent["attention"][entry["name"]]
        assert (rows, columns) == (tuple(matrix["rows"]), tuple(matrix["columns"]))  # letters are their own labels
        shown = arrays[f"attention/{entry['name']}"]
        for head in range(len(entry["heads"])):
            heat = figures.attention(trace, entry["name"], head)
            assert printed(heat)[:2] == (heat.rows, heat.columns) == (rows, columns)
            for r, row in enumerate(printed(heat)[2]):
                for c, cell in enumerate(row):
                    weight = matrix["values"][head][r][c]
                    assert (cell == "·") == (entry["causal"] and c > r)
                    assert cell == "·" or abs(float(cell) - weight) < 0.0051
                    assert abs(shown[head, r, c] - weight) < 0.003
    for entry in facts["gradients"]:
        heat = figures.gradients(trace)[entry["name"]]
        assert tuple(facts["words"][entry["rows"]]) == heat.rows == tuple(word or "–" for word in trace.targets)
        assert tuple(facts["words"][entry["columns"]]) == heat.columns


def test_what_looks_across_to_the_source_is_named_by_the_word_that_is_written():
    trace = trace_of("transformer", target="c a f e b")
    assert trace.attention_matrix("cross/0").rows == trace.targets == ("c", "a", "f", "e", "b", "<eos>")
    assert trace.attention_matrix("self/0").rows == trace.tokens == ("<eos>", "c", "a", "f", "e", "b")
    assert figures.alignment(trace).rows == figures.attention(trace, "cross/1").rows == trace.targets


# -- words as a reader sees them -------------------------------------------------------------------------------------


def test_spaces_can_be_seen_and_the_bytes_of_a_character_are_shown_as_the_character():
    assert labels([" ", "a", " b", "\n", "\t", "c  ", "\u200d"]) == ("␣", "a", "␣b", "⏎", "⇥", "c␣␣", "U+200D")
    assert labels(["<0xC3>", "<0xA9>", "<0x20><0xE4><0xB8>", "<0xAD>"]) == ("é 1/2", "é 2/2", "␣中 1/2", "␣中 2/2")
    assert labels(["<0xC3>", "x", "<0xA9>", "<0xFF>"]) == ("<0xC3>", "x", "<0xA9>", "<0xFF>")  # of no character
    assert labels_after(["a", "<0xC3>"], ["<0xA9>", "b"]) == ["é 2/2", "b"]


def test_the_first_byte_of_a_character_that_came_is_named_as_in_the_text():
    trace = trace_of("lstm")
    read, came = (("<eos>", "<0xC3>", "<0xA9>", *trace.tokens[3:]), ("<0xC3>", "<0xA9>", *trace.targets[2:]))
    top = ((Candidate("<0xC3>", 0.5), Candidate("<0xC4>", 0.1)), *trace.top[1:])
    found = facts(replace(trace, tokens=read, targets=came, top=top))
    assert found["words"]["written"][0] == "é 1/2"
    assert [one["word"] for one in found["top"][0]] == ["é 1/2", "<0xC4>"]  # what the other begins is not known


@pytest.mark.parametrize("text", ["é中 ẞ", "שלום", "a\u0301 नमस्ते"])
def test_bytes_of_every_script_come_back_as_their_characters(text):
    tokens = [f"<0x{byte:02X}>" if byte > 127 else chr(byte) for byte in text.encode()]
    shown = labels(tokens)
    assert "".join(dict.fromkeys(re.sub(r" \d/\d", "", label) for label in shown if "/" in label)) == "".join(
        dict.fromkeys(sign for sign in text if ord(sign) > 127)
    )
    assert "0x" not in "".join(shown)


def test_a_script_that_runs_from_right_to_left_does_so_in_a_heat_map():
    heat = Heat("T", ["a", "שלום"], ["אחת", "שתיים", "."], [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], "looked at", "word")
    lines = terminal(heat, width=60, colour=False).split("\n")
    assert "looked at ←" in lines[1]
    assert [cell.strip(" ░▒▓█") for cell in re.findall(r"[ ░▒▓█]*\.\d\d", lines[-3])] == [".30", ".20", ".10"]
    assert "\u2067שלום\u2069 │" in lines[-2]  # isolated: the numbers beside it stay where they are
    page = ET.fromstring(svg(heat))
    place = {
        rect.find("title").text: float(rect.get("x")) for rect in page.iter("rect") if rect.find("title") is not None
    }
    assert place["a · .: 0.3"] < place["a · שתיים: 0.2"] < place["a · אחת: 0.1"]


def test_gates_share_the_scale_from_0_to_1_and_what_is_no_gate_has_its_own():
    strips = figures.gates(trace_of("lstm"))
    assert [strip.title for strip in strips] == ["Gates over time", "Update over time", "Cell over time"]
    gates, *others = strips
    assert gates.scale == (0.0, 1.0)
    assert {row.partition(": ")[2] for row in gates.rows} == {"forget gate", "store gate", "output gate"}
    for strip in others:
        assert strip.scale == (0.0, max(max(row) for row in strip.values))


def test_a_pipe_gets_everything_whole_and_a_terminal_what_fits(monkeypatch):
    trace = trace_of("transformer")
    long = tuple("w" * 40 for _ in trace.tokens)
    trace = replace(trace, tokens=long, top=tuple((Candidate("v" * 60, 0.5),) * 5 for _ in long))
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    piped = show(trace)
    assert "…" not in piped.partition("unfinished when the search ended")[0].replace("…: ", "")  # its legend
    assert piped.count("v" * 60) == 5 * trace.steps
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert max(map(cell_len, re.sub(r"\x1b\[[0-9;]*m", "", show(trace)).split("\n"))) <= 100


# -- the page --------------------------------------------------------------------------------------------------------


def test_the_title_says_run_text_and_translation():
    trace = replace(trace_of("bahdanau"), run="runs-enfr", text="They ran.", translation="Ils couraient.")
    assert "<title>runs-enfr: “They ran.” → “Ils couraient.”</title>" in trace_page(trace)


def test_the_page_opens_at_the_word_that_surprised_the_model_most(trace):
    opens = facts_of(trace_page(trace))["opens"]
    assert trace.probability[opens] == np.nanmin(trace.probability)


def test_heads_and_layers_are_named_in_words():
    names = [entry["heads"] for entry in facts_of(trace_page(trace_of("transformer")))["attention"]]
    assert "Cross-attention, layer 1, head 2" in [head for heads in names for head in heads]
    assert part_name("layer/0/forget") == "Layer 1: forget gate"
    assert part_name("encoder/1/backward/cell") == "Encoder layer 2, reading backward: cell"


def test_the_tree_has_every_candidate_with_the_probability_of_its_word():
    trace = trace_of("bahdanau")
    told = facts_of(trace_page(trace))["beam"]
    assert [one["kept"] for one in told] == [branch.kept for branch in trace.beam]
    for one, branch in zip(told, trace.beam):
        before = trace.beam[branch.parent].log_probability if branch.parent >= 0 else 0.0
        assert np.isclose(one["p"], np.exp(branch.log_probability - before), rtol=1e-3)


def test_the_sentences_that_the_search_found_are_on_the_page_and_in_the_terminal():
    trace = trace_of("transformer")
    texts = [branch.text for branch in trace.beam if branch.rank and branch.text]
    assert texts
    page, shown = trace_page(trace), show(trace, width=200, colour=False)
    told = [one["text"].removesuffix(" …") for one in facts_of(page)["beam"] if "text" in one]
    assert sorted(text for text in told if text != "(empty)") == sorted(texts)
    assert all(text in shown for text in texts)


def test_a_notebook_shows_the_page_in_a_frame_of_its_own():
    trace = trace_of("rnn")
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)" .*></iframe>', fragment(trace), re.DOTALL)
    assert html.unescape(frame[1]) == trace_page(trace)
    assert trace._repr_html_() == fragment(trace)
