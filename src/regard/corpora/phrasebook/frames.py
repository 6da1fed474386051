"""Frames: what may follow a verb, and the tenses that go with each other.

A plan is a verb with its frame. The same complement serves a finite verb (he gave it to her), an infinitive (to give it
to her) and a command (give it to her), and knows where each language puts its pronouns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from regard.corpora.phrasebook.lexicon import (
    ASKING,
    BE,
    BE_AFRAID,
    BE_HUNGRY,
    BECOME,
    CAN,
    FEEL,
    GIVING,
    GOING,
    INTRANSITIVE,
    LEARN,
    MUST,
    PLAY,
    SAYING,
    SEEM,
    SHOULD,
    SPEAK,
    STAYING,
    TELLING,
    TRANSITIVE,
    WILLING,
    WONDERING,
    Verb,
)
from regard.corpora.phrasebook.nouns import Nominal
from regard.corpora.phrasebook.pair import Word
from regard.corpora.phrasebook.verbs import (
    CONDITION,
    CONDITIONAL,
    FUTURE,
    PAST,
    PAST_PROGRESSIVE,
    PERFECT,
    PRESENT,
    PROGRESSIVE,
    TIME,
    Agreement,
)

MAIN = (PRESENT, PRESENT, PROGRESSIVE, PAST, PAST, PAST_PROGRESSIVE, FUTURE)
REPORTED = (PAST_PROGRESSIVE, PERFECT, CONDITIONAL)  # she said that he was eating, had eaten, would eat
BACKGROUND = (PAST_PROGRESSIVE, PERFECT)
SHORT = (PRESENT, PAST, TIME, CONDITION)  # tenses of one English word
PLACE, TIME_OF, MANNER_OF = "place", "time", "manner"  # kinds of adjuncts

# frame: fewest words of verb and complement, how often it is drawn, and how often in a long clause
FRAMES = {
    "intransitive": (1, 3, 1),
    "transitive": (2, 8, 6),
    "being": (2, 3, 1),
    "feeling": (2, 0.5, 0.1),
    "job": (3, 0.6, 0.1),
    "language": (2, 0.5, 0.1),
    "sport": (2, 0.4, 0.1),
    "instrument": (3, 0.4, 0.1),
    "afraid": (4, 0.5, 0.3),
    "comparison": (5, 0.5, 0.3),
    "going": (2, 1.5, 1.5),
    "staying": (3, 1.5, 1.5),
    "giving": (4, 3, 3),
    "willing": (3, 2, 3),
    "modal": (2, 1.5, 1.5),
    "asking": (4, 1.5, 3),
    "saying": (5, 2, 6),
    "telling": (6, 1, 3),
    "wondering": (5, 1, 3),
}
VERBS = {
    "intransitive": INTRANSITIVE,
    "transitive": TRANSITIVE,
    "being": [BE, BE, BE, BE, SEEM, BECOME, FEEL],
    "feeling": [BE_HUNGRY],
    "job": [BE, BE, BECOME],
    "language": [SPEAK, LEARN],
    "sport": [PLAY],
    "instrument": [PLAY],
    "afraid": [BE_AFRAID],
    "comparison": [BE],
    "going": GOING,
    "staying": STAYING,
    "giving": GIVING,
    "willing": WILLING,
    "modal": [CAN, MUST, SHOULD],
    "asking": ASKING,
    "saying": SAYING,
    "telling": TELLING,
    "wondering": WONDERING,
}
ACTIONS = frozenset(["intransitive", "transitive", "going", "giving", "language", "sport", "instrument", "staying"])
AFFIRMED = frozenset(["saying", "telling", "job"])  # il ne pense pas que … would want the subjunctive
ANIMAL_FRAMES = frozenset(["intransitive", "transitive", "being", "going", "staying"])


@dataclass
class Complement:
    """What follows a verb, and the pronouns that French puts before it."""

    english: list[Word] = field(default_factory=list)
    french: list[Word] = field(default_factory=list)
    pronouns: list[Word] = field(default_factory=list)
    preceding: Agreement | None = None  # of a direct object that comes before the participle

    def add(self, english: list[Word], french_words: list[Word]) -> None:
        self.english += english
        self.french += french_words


@dataclass(frozen=True)
class SentencePlan:
    """A verb about to be said, and what its complement depends on."""

    frame: str
    verb: Verb
    subject: Nominal
    tense: str
    key: int  # of the verb's meaning
    negated: bool = False

    @property
    def article(self) -> str:
        return "generic" if self.verb.generic else "negated" if self.negated else "plain"


@dataclass(frozen=True)
class Said:
    """A predicate: the auxiliary apart, since a question puts it before the subject."""

    auxiliary: list[Word]
    rest: list[Word]
    french: list[Word]
    tense: str


@dataclass(frozen=True)
class Clause:
    english: list[Word]
    french: list[Word]
    tense: str = PRESENT


@cache
def verbs_of(frame: str, subject: str) -> tuple[Verb, ...]:
    return tuple(verb for verb in VERBS[frame] if subject in verb.subjects)


@cache
def frames_for(subject: str, room: int, allowed: frozenset[str] | None) -> tuple[tuple[str, float], ...]:
    """Frames and the running sum of their weights."""
    total, frames = 0.0, []
    for frame, (least, weight, weight_if_long) in FRAMES.items():
        if least > room or (allowed is not None and frame not in allowed):
            continue
        if subject == "a" and frame not in ANIMAL_FRAMES:
            continue
        total += weight_if_long if room > 8 else weight
        frames.append((frame, total))
    return tuple(frames)


@cache
def transitive_for(tags: str, subject: str) -> tuple[Verb, ...]:
    verbs = verbs_of("transitive", subject) + (verbs_of("giving", subject) if subject == "p" else ())
    return tuple(verb for verb in verbs if not verb.preposition and set(verb.objects) & set(tags))


PRESENTLY, LATELY = (PRESENT, PROGRESSIVE, PAST), (PAST, PAST_PROGRESSIVE)
REPORTED_TENSES = frozenset(REPORTED)
MODAL_TENSES = frozenset([PRESENT, PAST, PAST_PROGRESSIVE, CONDITION])
RELATIVE_TENSES = {
    PRESENT: PRESENTLY, PROGRESSIVE: PRESENTLY, FUTURE: PRESENTLY, TIME: PRESENTLY,
    PAST: (PAST, PAST_PROGRESSIVE, PERFECT),
}  # fmt: skip
# What may follow a clause of this tense: the conjunction in both languages and the tenses behind it.
BEHIND: dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    PRESENT: (("because", "parce que", PRESENTLY), ("when", "quand", (PRESENT,)), ("and", "et", MAIN),
              ("but", "mais", MAIN), ("since", "puisque", PRESENTLY)),
    PROGRESSIVE: (("because", "parce que", PRESENTLY), ("while", "pendant que", (PROGRESSIVE,)), ("and", "et", MAIN),
                  ("but", "mais", MAIN)),
    PAST: (("because", "parce que", LATELY), ("when", "quand", LATELY), ("and", "et", MAIN), ("but", "mais", MAIN)),
    PAST_PROGRESSIVE: (("when", "quand", (PAST,)), ("while", "pendant que", (PAST_PROGRESSIVE,)),
                       ("because", "parce que", LATELY)),
    FUTURE: (("when", "quand", (TIME,)), ("as soon as", "dès que", (TIME,)), ("if", "si", (PRESENT,)),
             ("because", "parce que", (PRESENT, FUTURE)), ("and", "et", (FUTURE,))),
}  # fmt: skip
BEHIND_REPORTED = (("because", "parce que", BACKGROUND), ("since", "puisque", BACKGROUND))
