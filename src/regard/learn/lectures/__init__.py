"""The companion to the lectures: each line of the notes, and the code, command and claim that belong to it.

lectures()                  the five lectures, each with its entries and its markdown
get_lecture("003")          one of them; "errata" is the page of errata and words
find("003:49")              the entry of a line, and the errata that concern it
entry.code[0].line          the number of the line of code, looked up now
"""

from regard.learn.lectures.code_anchor import Anchor
from regard.learn.lectures.lecture_pages import Found, LectureEntry, Page, find, get_lecture, lectures, with_places

__all__ = ["Anchor", "Found", "LectureEntry", "Page", "find", "get_lecture", "lectures", "with_places"]
