"""The view Course: the chapters with formulas, code and verdicts, and what a page says is text."""

from regard.learn.lectures.lecture_pages import get_lecture, lectures


def test_a_chapter_has_its_formulas_code_and_verdicts(lab, page):
    page.goto(lab.url + "#/lectures")
    page.wait_for_selector(".lecture")
    assert page.locator(".lecture b").all_inner_texts()[:8] == [one.title for one in lectures()]
    page.goto(lab.url + "#/lectures?at=003:49")
    page.wait_for_selector(".lecture-part")
    chapter = get_lecture("recurrent")
    entry = chapter.entries[0]
    assert page.locator("h1").inner_text() == chapter.title
    at = page.locator(".lecture-part", has=page.locator("h2", has_text=entry.title)).first
    assert at.evaluate("node => node.getBoundingClientRect().top") < 900  # the section of line 49
    assert at.locator(".formula math").count() == len(entry.equations)
    assert at.locator(".formula math msub").count() > 2
    assert "$" not in at.locator(".prose").inner_text()
    at.locator("aside summary").first.click()
    assert entry.code[0].text in at.locator(".source .at").first.inner_text()
    assert at.locator("a.tag").first.get_attribute("href") == f"#/claims/{entry.claims[0]}"
    assert "✓ claim parameters holds" in at.inner_text()
    question = at.locator("details.question")
    assert not question.locator("p").first.is_visible()
    question.locator("summary").click()
    assert question.locator("p").first.is_visible()
    for picture in page.locator(".prose img").all():
        assert picture.evaluate("node => (node.loading = 'eager', node.decode().then(() => node.naturalWidth))") > 0


def test_markdown_becomes_elements_and_never_markup(lab, page):
    page.goto(lab.url)
    page.wait_for_selector("h1")
    made = page.evaluate(
        """async (text) => {
          const { markdown } = await import("./markdown.js"), root = document.createElement("div");
          root.append(...markdown(text));
          const tags = [...root.children].map((one) => one.tagName);
          return [tags, root.textContent, root.querySelectorAll("img, script, a").length];
        }""",
        "A *b* **c** `<i>`\nstill\n\n    x = 1\n\n    y = 2\n- one\n  more\n- two\n\n"
        "| a | b |\n|---|---|\n| <img src=x> | 2 |\n"
        "\n```\n<script>\n```\n## Head\n![p](javascript:alert(1))\n[x](javascript:alert(1)) <script>alert(1)</script>",
    )
    assert made[0] == ["P", "PRE", "UL", "DIV", "PRE", "H3", "P"]
    assert "<img src=x>" in made[1]
    assert made[2] == 0
