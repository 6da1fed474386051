"""The course: its chapters, and the code, command and claim that belong to each section.

lectures()                  the eight chapters, each with its sections and its markdown
get_lecture("recurrent")    one of them, also by its number; "mistakes" and "about" are further pages
find("003:49")              the section that explains a line of the notes, and the mistakes that concern it
entry.code[0].line          the number of the line of code, looked up now
"""

from regard.learn.lectures.code_anchor import Anchor
from regard.learn.lectures.lecture_pages import (
    Found,
    LectureEntry,
    Page,
    find,
    get_lecture,
    lectures,
    with_places,
    with_verdicts,
)

__all__ = ["Anchor", "Found", "LectureEntry", "Page", "find", "get_lecture", "lectures", "with_places", "with_verdicts"]
