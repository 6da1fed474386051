"""The report of claims tells everything a verdict rests on: from its numbers alone the verdict can be found again."""

import html
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from regard.claims.all_claims import all_claims
from regard.claims.claim import OVERS, Claim, Evidence, Expect, Worked
from regard.claims.claims_page import claims_page, reference, section, write_page
from regard.claims.result import ClaimResult, result_of
from regard.claims.verdict import FAILS, HOLDS, OPEN, find
from regard.report.figures import Heat, Intervals, Line, Lines, Mark
from regard.report.offline_page import script_of

EXPECTED = Expect("log-slope of a tanh network", "at most", -0.05, unit="nats per step")
SHARE = Expect("share of seeds that learned", "at least", 0.5, over="share")
IDENTITY = Expect("largest difference", "within", 0.0, 1e-9, over="draws")
CONTROL = Expect("log-slope with open gates", "at least", -0.05, unit="nats per step")
FIGURES = (
    Lines("Decay", "distance", "norm", [Line("tanh", [(1, 1.0), (9, 1e-5)])], log_y=True),
    Heat("Weights", ["a", "b"], ["c", "d"], [[0.1, 0.9], [0.5, 0.5]]),
    Intervals("Slopes", "slope", [Mark("tanh", -0.6, -0.7, -0.5)], threshold=-0.05),
)
GOOD = {
    EXPECTED.quantity: [-0.61, -0.58, -0.63, -0.6, -0.59],
    SHARE.quantity: [1.0] * 20,
    IDENTITY.quantity: [1e-16, 0.0, -3.25e-15],
    CONTROL.quantity: [-0.01, -0.012, -0.009, -0.011, -0.01],
}


def result(name="vanishing", number="C1", quote="MANY VALUES < 1", quick=False, **measured):
    numbers = {**GOOD, **{key.replace("_", " "): values for key, values in measured.items()}}
    evidence = Evidence(numbers, FIGURES, ("A remark & more.",), ({"system": "rnn", "learned": 0.25},))
    claim = Claim(
        name, number, ("identity", "measured"), quote, "003:148", "Gradients vanish.", "Width 64.", "Open gates.",
        "Never with f → 1.", (EXPECTED, SHARE, IDENTITY), (CONTROL,), lambda trial: evidence, knobs={"b": 1.0},
        worked=lambda: [Worked("q = (0, 1)", "1/2", "0.500", True, "002:49")],
    )  # fmt: skip
    trial = claim.trial(quick=quick)
    return result_of(claim, trial, claim.measure(trial), seconds=12.4, device="cpu, 2 threads", code="abc123")


def three():
    wrong = {EXPECTED.quantity: [0.01, 0.02, 0.012, 0.018, 0.011]}
    doubt = {CONTROL.quantity: [-0.2, 0.2, -0.1, 0.1, 0.0]}
    return [result(), result("exploding", "C2", **wrong), result("remedies", "C3", **doubt)]


OURS = f"<script>{script_of('report')}</script>"  # the lab's charts


class Words(HTMLParser):
    """What a reader sees, and which addresses there are."""

    def __init__(self, page):
        super().__init__()
        self.addresses, self.names, self.open, self.text = [], set(), [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.addresses += [given[name] for name in ("href", "src", "action") if name in given]
        self.names |= {given.get("id")}
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text.append(data)


def test_each_verdict_is_there_with_its_sign_and_a_way_to_its_claim():
    results = three()
    assert [one.verdict for one in results] == [HOLDS, FAILS, OPEN]
    page = claims_page(results)
    words = Words(page)
    for one in results:
        assert f"#{one.name}" in words.addresses
        assert one.name in words.names
    assert re.findall(r'<tr><th scope=row><span class="sign (\w+)"', page) == [HOLDS, FAILS, OPEN]
    seen = re.sub(r"\s+", " ", "".join(words.text))
    assert "Of 3 textbook claims: ✓ 1 holds, ✗ 1 fails, ? 1 is inconclusive." in seen
    assert "✓ 2 hold." in re.sub(r"\s+", " ", "".join(Words(claims_page([result(), result("b", "C2")])).text))


def test_a_claim_is_told_with_everything_it_rests_on():
    seen = re.sub(r"\s+", " ", "".join(Words(section(result(quick=True))).text)).replace("−", "-")
    told = (
        "Gradients vanish.",
        "MANY VALUES < 1",
        "notes 003, line 148",
        "notes 002, line 49",
        "Width 64.",
        "Open gates.",
        "Never with f → 1.",
    )
    for words in (*told, "A remark & more.", "q = (0, 1)", "0.500", "12 s", "cpu, 2 threads", "fewer seeds", "b = 1"):
        assert words in seen, words
    for figure in FIGURES:
        assert figure.title in seen
        assert figure.description in seen


def test_a_quick_verdict_is_never_shown_as_one_of_the_full_experiment():
    plain, quick = result(), result(quick=True)
    assert (plain.label, quick.label) == ("✓ holds", "✓ quick: holds at reduced size")
    assert (plain.sign, quick.sign) == ("✓", "✓ quick")
    assert quick.as_json()["label"] == quick.label
    seen = re.sub(r"\s+", " ", "".join(Words(claims_page([quick])).text))
    assert "Quick form, at reduced size. ✓ 1 holds." in seen
    assert "✓ quick C1 vanishing quick: holds at reduced size" in seen
    assert "Quick form, at reduced size (fewer seeds): the statement holds: log-slope" in seen
    assert not re.search(r">[✓✗?]</span>", section(quick))  # also of its parts and of each finding
    assert "quick" not in section(plain).lower().replace("quick-", "")


@pytest.mark.parametrize("number", range(3))
def test_the_verdict_is_found_again_from_the_numbers_on_the_page_alone(number):
    one = three()[number]
    page = html.unescape(section(one)).replace("−", "-").replace("\xa0", " ")
    items = re.findall(r"<li>(<span class=\"sign.*?)</li>", page, re.DOTALL)
    findings = [*one.expected, *one.control]
    assert len(items) == len(findings)
    for item, finding in zip(items, findings):
        numbers = [float(word) for word in re.search(r"</summary>(.*?)</details>", item)[1].split(", ")]
        wanted = re.search(r"expected (at most|at least|within) (\S+)(?: ± (\S+))?", re.sub(r"</?span.*?>", " ", item))
        bound, tolerance = float(wanted[2]), float(wanted[3] or 0)
        noun = re.search(r"\d+ (\w+)</summary>", item)[1]
        over = next(over for over, one in OVERS.items() if f"{one}s" == noun)
        again = find(Expect("it", wanted[1], bound, tolerance, over), numbers)
        assert re.search(r'class="sign (\w+)"', item)[1] == again.verdict == finding.verdict
        low, high = (f"{value:.3g}" for value in (again.low, again.high))
        assert (low, high) == (f"{finding.low:.3g}", f"{finding.high:.3g}")


def declared():
    return {one.over for claim in all_claims() for one in (*claim.expected, *claim.control, *claim.besides)}


@pytest.mark.parametrize("over", sorted(declared()))
def test_every_kind_of_number_that_a_claim_declares_can_be_written(over, tmp_path):
    findings = tuple(find(replace(EXPECTED, over=over), values) for values in ([1.0, 0.0, 1.0], [1.0]))
    write_page(tmp_path / "report.html", [replace(result(), expected=findings)])
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"3 {OVERS[over]}s</summary>" in page
    assert f"1 {OVERS[over]}</summary>" in page


def test_the_page_asks_for_nothing_and_escapes_what_claims_say(tmp_path):
    write_page(tmp_path / "report.html", [result(quote="<script>alert(1)</script>")])
    page = (tmp_path / "report.html").read_text(encoding="utf-8").replace(OURS, "", 1)
    assert "<script" not in page
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in Words(page).addresses)
    assert not re.search(r"https?://|url\(|@import", page)


def test_a_kept_result_looks_as_it_did_and_says_that_it_was_kept():
    one = result()
    again = ClaimResult.from_json(one.as_json())
    assert section(again) == section(one)
    assert "earlier run" in section(again.again())


def test_each_verdict_is_a_sentence_and_each_reference_is_in_words():
    holds, fails, doubt = (re.sub(r"\s+", " ", "".join(Words(section(one)).text)) for one in three())
    assert "The statement holds: log-slope of a tanh network is −0.602" in holds
    assert "nats per step; expected: at most −0.05" in holds
    assert "The statement fails: log-slope of a tanh network is 0.0142" in fails
    assert "The test is inconclusive, because its control did not come out the other way: log-slope with open" in doubt
    assert reference("003:148, 205; 002:15") == "notes 003, lines 148, 205; notes 002, line 15"
    assert reference("000:30, 003:223–225") == "notes 000, line 30; notes 003, lines 223–225"
    assert "line 148 of the file whose name begins with 003" in claims_page(three())


def test_no_word_of_a_claim_becomes_markup():
    evil = """<script>alert("1")</script><img src=x onerror='alert(1)'>&"'"""
    plain = result()
    names = "name number quote where statement conditions control_words breaks quick device code"
    words = dict.fromkeys(names.split(), evil)
    page = claims_page([replace(plain, **words, remarks=(evil,), table=({evil: evil},), knobs={evil: 1.0})], evil)
    page = page.replace(OURS, "", 1)
    assert not re.search("<script|<img", page)
    assert page.count(html.escape(evil)) > 10


def test_where_the_control_did_not_come_out_the_table_says_so():
    page = " ".join(Words(claims_page([three()[2]])).text)
    assert "did not come out the other way" in page
    assert CONTROL.quantity in page
