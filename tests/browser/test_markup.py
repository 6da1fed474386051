"""Names, labels and texts that look like markup are seen as text in every view."""

import json

import pytest

from regard.cli import main

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
    page.wait_for_selector(VIEWS[view])
    page.wait_for_function("() => !document.querySelector('[aria-busy]')")
    assert page.locator("main img, main script, #notices img").count() == 0
    if view != "#/sentence?run=%3Cimg%20src%3Dy%3E&text={one}":
        page.get_by_text("<img src=").first.wait_for(state="attached")
    assert not asked
