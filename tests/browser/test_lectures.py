"""The view Lectures: the companion's pages, with their code, and what a page says is text."""

from regard.learn.lectures.lecture_pages import get_lecture, lectures


def test_every_section_of_a_lecture_stands_with_its_lines_code_and_claims(lab, page):
    page.goto(lab.url + "#/lectures")
    page.wait_for_selector(".lecture")
    assert page.locator(".lecture b").all_inner_texts()[:5] == [one.title for one in lectures()]
    page.goto(lab.url + "#/lectures/003?at=003:49")
    page.wait_for_selector(".lecture-part")
    entries = get_lecture("003").entries
    assert page.locator(".lecture-part").count() == len(entries)
    at = page.locator(".lecture-part", has=page.locator("h2", has_text="003:48"))
    assert at.first.evaluate("node => node.getBoundingClientRect().top") < 900  # the section of line 49
    first = page.locator(".lecture-part").first
    assert first.locator("h2 .tag").inner_text() == str(entries[0].lines[0])
    first.locator("summary").first.click()
    assert entries[0].code[0].text in first.locator(".source .at").inner_text()
    assert first.locator("a.tag").first.get_attribute("href") == f"#/claims/{entries[0].claims[0]}"
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
