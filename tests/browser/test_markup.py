"""Names, labels and texts that look like markup are seen as text in every view."""

import json
from urllib.parse import quote

import pytest

import regard
from regard.base.digests import file_digest, with_digest
from regard.cli import main
from regard.runs.run_report import write_report

MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def marked(tmp_path_factory, lab_over):
    """A lab over runs, a corpus, a comparison and a claim that are all called alike."""
    folder = tmp_path_factory.mktemp("marked") / "runs"
    (folder / "uploads").mkdir(parents=True)
    text = folder / "uploads" / f"{MARKUP}.txt"
    seen = [f"{MARKUP} sees <b>{number}</b> &amp; a <script>alert({number})</script>." for number in range(200)]
    text.write_text("\n".join(seen) + "\n", encoding="utf-8")
    pairs = folder / "uploads" / f"{MARKUP}.tsv"
    lines = [f"{MARKUP} {number}\t<script>alert({number})</script> {number}" for number in range(200)]
    pairs.write_text("\n".join(lines) + "\n", encoding="utf-8")
    tiny = ["--size", "tiny", "--training.steps", "6", "--training.evaluate-every", "3", "--training.threads", "1"]
    small = ["--model.width", "16", "--data.tokenizer", "char", "--training.snapshots", "2"]
    main(["train", "lstm", "--data", str(text), "--run", str(folder / MARKUP), *tiny, *small])
    main(["train", "seq2seq", "--data", str(pairs), "--run", str(folder / f"{MARKUP} 2"), *tiny, *small])
    compared = folder / "compare" / MARKUP
    compared.mkdir(parents=True)
    facts = {"created": MARKUP, "command": MARKUP, "corpus": {"name": MARKUP}}
    tree = {"entrants": [{"label": MARKUP}], "facts": facts, "question": {"data": MARKUP}}
    (compared / "comparison.json").write_text(json.dumps(tree))
    return lab_over(folder)


VIEWS = {
    "#/runs?run={one}": ".run-card .samples pre",
    "#/runs?run={two}": ".run-card .samples .pairs",
    "#/new?data={file}.txt": ".step select",
    "#/new?from={one}": ".step select, form, .side",
    "#/ladder": ".card",
    "#/ladder/open?name=compare%2F{one}": ".failure",
    "#/sentence?run={one}&text={one}": ".words button",
    "#/sentence?run={one}&text={one}&show=states": ".part.states canvas",
    "#/sentence?run={one}&text={one}&show=write": ".write .choice-row",
    "#/sentence?run=%3Cimg%20src%3Dy%3E&text={one}": ".words button",
    "#/translation?run={two}&text={one}": ".panel .answer",
    "#/translation?run={two}&text={one}&show=search": ".tree",
    "#/translation/file?run={two}&data={one}": ".card, .failure",
    "#/time?run={one}&text={one}": ".scatter .point, .words button",
    "#/text?corpus={file}.txt&text={one}": ".piece",
    "#/claims/{one}": ".failure",
}


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_markup_in_names_and_texts_stays_text(marked, page, view):
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.add_init_script("try { localStorage.setItem('tour', 'seen'); } catch { /* about:blank */ }")
    word = "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
    page.goto(marked.url + view.format(one=word, two=f"{word}%202", file=word))
    page.locator(VIEWS[view]).locator("visible=true").first.wait_for()  # the very first may be in a closed part
    page.wait_for_function("() => !document.querySelector('[aria-busy]')")
    assert page.locator("main img, main script, #notices img").count() == 0
    if view != "#/sentence?run=%3Cimg%20src%3Dy%3E&text={one}":
        page.get_by_text("<img src=").first.wait_for(state="attached")
    assert not asked


HACK = "window.hacked=1"
HOSTILE = [
    f"<img src=x onerror={HACK}>",
    f"<script>{HACK}</script>",
    f'"><svg onload={HACK}>',
    f"</script><script>{HACK}</script>",
    f"</title></pre><iframe src='javascript:{HACK}'>",
    f"' onmouseover='{HACK}' autofocus onfocus='{HACK}",
    f"javascript:{HACK}",
    f"<a href=javascript:{HACK}>here</a>",
    "<a href=//evil.example>there</a>",
    "<style>*{background:url(//evil.example)}</style><link rel=stylesheet href=//evil.example>",
    "<meta http-equiv=refresh content='0;url=//evil.example'><base href=//evil.example>",
    "&lt;img src=x&gt; &#60;script&#62; &amp;",
    "\u202eexe.txt\u202c",
    f"${{{HACK}}} {{{{constructor.constructor('{HACK}')()}}}}",
    "<!-- ]]> --><math><mtext>",
]
ALL = " ".join(HOSTILE)


def sealed(path, change):
    """A JSON file that Regard wrote, changed on purpose: its digest fits."""
    tree = json.loads(path.read_text(encoding="utf-8"))
    tree.pop("blake2b", None)
    change(tree)
    path.write_text(json.dumps(with_digest(tree)), encoding="utf-8")


def poison(run):
    """Every word of the tokenizer, and every fact of a run, becomes markup."""
    for file in ("tokenizer.json", "tokenizer.source.json"):
        if (run / file).exists():
            tree = json.loads((run / file).read_text(encoding="utf-8"))
            plain = [word for word in tree["model"]["vocab"] if not word.startswith("<")]
            new = {word: f"{HOSTILE[place % len(HOSTILE)]} {place}" for place, word in enumerate(plain)}
            tree["model"]["vocab"] = {new.get(word, word): number for word, number in tree["model"]["vocab"].items()}
            (run / file).write_text(json.dumps(tree), encoding="utf-8")

    def change(facts):
        facts["corpus"] |= {"name": ALL, "notes": HOSTILE}
        facts |= dict.fromkeys(("torch", "python", "platform", "device", "created"), ALL)
        facts["files"] = {name: file_digest(run / name) for name in facts["files"]}

    sealed(run / "run.json", change)
    write_report(regard.load(run, device="cpu"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, lab_over):
    """A lab over runs, a comparison and a claim of an attacker, whose digests all fit."""
    folder = tmp_path_factory.mktemp("hostile") / "runs"
    (folder / "uploads").mkdir(parents=True)
    text, pairs = folder / "uploads" / "text.txt", folder / "uploads" / "pairs.tsv"
    words = [f"w{number}" for number in range(40)]
    lines = [" ".join(words[(start + step) % 40] for step in range(6)) for start in range(200)]
    text.write_text("\n".join(f"{line} {n}" for n, line in enumerate(lines)) + "\n", encoding="utf-8")
    pairs.write_text("\n".join(f"{line} {n}\t{line} {n}" for n, line in enumerate(lines)) + "\n", encoding="utf-8")
    tiny = ["--size", "tiny", "--training.steps", "6", "--training.evaluate-every", "3", "--training.threads", "1"]
    tiny += ["--model.width", "16", "--data.tokenizer", "word"]
    one, two = folder / "\u202e<b>one", folder / "'\"<b>two"
    main(["train", "lstm", "--data", str(text), "--run", str(one), *tiny, "--training.snapshots", "2"])
    main(["train", "seq2seq", "--data", str(pairs), "--run", str(two), *tiny])
    compared, claimed = folder / "compared", folder / "claimed"
    main(["compare", "ngram", "--data", str(text), "--size", "tiny", "--run", str(compared)])
    main(["claims", "gaussian-dot", "--quick", "--again", "--run", str(claimed)])
    for run in (one, two):
        poison(run)

    def change(tree):
        tree["facts"] |= {"command": ALL, "prompt": ALL}
        tree["facts"]["corpus"]["name"] = ALL

    sealed(compared / "comparison.json", change)
    for result in compared.glob("*/result.json"):
        sealed(result, lambda tree: tree["evaluation"].update(sample=ALL))
    (record,) = json.loads((claimed / "claims.json").read_text(encoding="utf-8"))
    record |= dict.fromkeys(("statement", "quote", "where", "conditions", "breaks", "quick", "device"), ALL)
    record |= {"remarks": HOSTILE, "knobs": {ALL: 1.0}}
    (claimed / "claims.json").write_text(json.dumps([record]), encoding="utf-8")
    return lab_over(folder), one, two


SEEN = {
    "#/runs?run={one}": ".run-card .samples pre",
    "#/runs?run={two}": ".run-card .samples .pairs",
    "#/new?from={one}": ".step select, form, .side",
    "#/ladder": ".card",
    "#/ladder/open?name=compared": "table",
    "#/sentence?run={one}&text={text}": ".words button",
    "#/sentence?run={one}&text={text}&show=attention": ".words button",
    "#/sentence?run={one}&text={text}&show=states": ".part.states canvas",
    "#/sentence?run={one}&text={text}&show=write": ".write .choice-row",
    "#/sentence?run={one}&text={text}&show=work": ".words button",
    "#/translation?run={two}&text={text}": ".panel .answer",
    "#/translation?run={two}&text={text}&show=search": ".tree",
    "#/time?run={one}&text={text}": ".scatter .point, .words button",
    "#/text?corpus=text.txt&text={text}": ".piece",
    "#/claims/gaussian-dot?from=claimed": ".statement",
}
FOUND = """() => [...document.querySelectorAll("*")].filter((one) =>
  (["IMG", "IFRAME", "OBJECT", "EMBED", "BASE", "MATH"].includes(one.tagName.toUpperCase())
    && !one.src?.endsWith("mark.svg"))
  || (one.tagName === "SCRIPT" && one.textContent.startsWith("window.hacked"))
  || (one.tagName === "META" && one.httpEquiv === "refresh") || (one.tagName === "LINK" && /evil/.test(one.href))
  || (one.tagName === "STYLE" && one.textContent.includes("evil"))
  || [...one.attributes].some(({ name, value }) => name.startsWith("on") || name === "autofocus"
     || (["href", "src", "action", "srcdoc", "xlink:href"].includes(name) && /^\\s*javascript:|evil/i.test(value)))
).map((one) => one.outerHTML.slice(0, 200))"""


@pytest.fixture
def watched(page):
    """A page on which no dialog opens, and from which nothing is requested that an element of the attacker would."""
    wrong = []
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda asked: wrong.append(asked.url) if asked.url.endswith("/x") else None)
    page.add_init_script("try { localStorage.setItem('tour', 'seen'); } catch { /* about:blank */ }")
    yield page
    assert not wrong


def assert_harmless(page):
    assert page.evaluate(FOUND) == []
    assert page.evaluate("() => window.hacked") is None
    assert page.evaluate("() => [...document.querySelectorAll('[href^=\"//\"]')].length") == 0


@pytest.mark.slow
@pytest.mark.parametrize("view", SEEN)
def test_a_hostile_tokenizer_sample_and_trace_stay_text(hostile, watched, view):
    lab, one, two = hostile
    names = {"one": quote(one.name), "two": quote(two.name), "text": quote(f"w1 w2 {HOSTILE[0]} {HOSTILE[1]}")}
    watched.goto(lab.url + view.format(**names))
    watched.wait_for_selector(SEEN[view])
    watched.wait_for_function("() => !document.querySelector('[aria-busy]')")
    assert_harmless(watched)
    assert "\u202e" not in watched.inner_text("main")
    watched.mouse.move(600, 400)  # what appears beside the pointer
    assert_harmless(watched)


@pytest.mark.slow
def test_pages_that_are_saved_from_a_hostile_run_do_nothing(hostile, watched, tmp_path):
    lab, one, two = hostile
    pages = [one / "report.html", two / "report.html"]
    for view, run in (("sentence", one), ("translation", two)):
        trace = {"run": run.name, "text": f"w1 w2 {HOSTILE[0]}", "gradients": True}
        answer = watched.request.post(f"{lab.url}api/{view}/page", data={"traces": [trace, trace]})
        assert answer.ok, answer.text()
        pages.append(tmp_path / f"{view}.html")
        pages[-1].write_text(answer.json()["page"], encoding="utf-8")
    pages.append(tmp_path / "inspected.html")
    main(["inspect", str(one), "--text", f"w1 {HOSTILE[1]}", "--html", str(pages[-1]), "--gradients"])
    for page in pages:
        watched.goto(page.as_uri())
        watched.wait_for_selector("body")
        watched.wait_for_function("() => !document.querySelector('script.trace') || document.querySelector('.words')")
        assert_harmless(watched)
        assert watched.get_by_text("<script>").count() or "hacked" in watched.content()
