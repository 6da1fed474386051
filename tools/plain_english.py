"""Plain English in the pages for users: `python tools/plain_english.py`, part of `make check`.

It finds the slips that can be found mechanically, each with the line and a better wording: position verbs for "is",
"is no X", headless "what there is", British spelling, spaces inside numbers. Code, formulas and quotations in tables of
the claims are left out. ALLOWED has the few sentences in which the pattern is right.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG", "CODE_OF_CONDUCT", "paper")),
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("notes/*.md")),
    *(
        page
        for part in ("tutorials", "guides", "reference", "learn")
        for page in sorted(ROOT.glob(f"docs/{part}/*.md"))
    ),
]

PATTERNS = {  # what is found → what to write
    r"\b(stands?|lies|lie|lay) (in|on|at|below|above|beside|between|there)\b": "is, are",
    r"\b(is|are|was|were) no (?!longer|larger|smaller|more|less|better|worse|different|need|way|reason)\w+": "is not …",
    r"\bwhat (there is|it leaves|is left|is kept|stands|it says|was said|is promised)\b": "name the thing",
    r"\b(go|goes|went|going) on\b": "continue",
    r"\b(anew|thereby|hereby|whereby|thereof)\b": "again, by this",
    r"\b(mend|mends|mended)\b": "fix",
    r"\b(is|are|was) (said|told|asked|answered)\b": "print, report, return",
    r"\b(has|have) the rest\b": "see … for …",
    r"\bone's own\b": "your own",
    r"\bfrom elsewhere\b": "external",
    r"\bof one's\b": "your",
    r"\bbeside\b": "next to, alongside",
    r"\bin turns\b": "alternately",
    r"\b(a|the) (process|file|machine|folder)s? of (its|their|one's) own\b": "its own …, a separate …",
    r", (too|also)[.;:]": "put also before the verb, or leave it out",
    r"\bwho (asks|shows)\b": "name the person",
    r"\b(is|are) taken (off|up|as)\b": "removed, used",
    r"\bby itself\b": "separately, alone",
    r"(?<![\d.,-])\d{1,3}(?: \d{3})+(?!\d)": "10,000",
    r"\b(optim|initial|normal|recogn|token|orthogonal|summar|organ|random|general|minim)is(e|a|i)\w*": "-ize",
    r"\b(colour|neighbour|behaviour|favour|licence|centre|catalogue|labelled|learnt|judgement)\w*": "American",
}
ALLOWED = (
    "There is no",
    "there is no",
    "there are no",
    "there was no",
    "There were no",
)


def prose(text: str) -> list[str]:
    """The lines of a page, with everything that is not prose blanked."""
    text = re.sub(r"^( *)(`{3,4}|\$\$).*?^ *\2.*?$", _blank, text, flags=re.S | re.M)
    lines = []
    for line in text.split("\n"):
        line = re.sub(r"`[^`]*`|\$[^$]+\$|\]\([^)]*\)|<[^>]*>", "", line)
        lines.append("" if re.match(r"\| (C\d+|[✓✗?]) ", line) else line)
    return lines


def _blank(block: re.Match[str]) -> str:
    return "\n" * block[0].count("\n")


def slips(page: Path) -> list[str]:
    found = []
    for number, line in enumerate(prose(page.read_text(encoding="utf-8")), start=1):
        for pattern, better in PATTERNS.items():
            for match in re.finditer(pattern, line):
                around = line[max(0, match.start() - 12) : match.end() + 12]
                if not any(right in around for right in ALLOWED):
                    found.append(f"{page.relative_to(ROOT).as_posix()}:{number}: “{match[0]}” → {better}")
    return found


def main() -> int:
    found = [slip for page in PAGES for slip in slips(page)]
    print("\n".join(found) or f"plain English: {len(PAGES)} pages")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
