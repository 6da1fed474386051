"""Circumstances: how, with whom, where and when something happens, and the weather."""

from __future__ import annotations

from regard.corpora.phrasebook.frames import MANNER_OF, PLACE, TIME_OF, Clause, Complement
from regard.corpora.phrasebook.lexicon import (
    CITIES,
    COUNTRIES,
    FUTURE_TIMES,
    HABITS,
    MANNER,
    MASCULINE_COUNTRIES,
    PAST_TIMES,
    PRESENT_TIMES,
    RAIN,
    SNOW,
    WHERE_ABOUTS,
)
from regard.corpora.phrasebook.nouns import Nominal, NounPhrases, after
from regard.corpora.phrasebook.pair import Word, length
from regard.corpora.phrasebook.verbs import (
    FUTURE,
    PAST,
    PRESENT,
    PROGRESSIVE,
    Agreement,
    Head,
    english_parts,
    french_words,
)


class Circumstances(NounPhrases):
    """What a clause may add as long as there is room."""

    def person(self, room: int) -> Nominal:
        if room < 2 or self.chance(0.3):
            return self.name()
        return self.noun_phrase(room, self.pick("pk"), known=True)

    def place(self, room: int, moving: bool = False, names: bool = True) -> tuple[list[Word], list[Word]]:
        """At the market, in France, to the garden."""
        key = self.key()
        if room < 3 or (names and self.chance(0.12)):
            name = (self.key(),)
            if self.chance(0.5):
                city = self.pick(tuple(CITIES))
                return [("to" if moving else "in", (key,)), (city, name)], [("à", (key,)), (CITIES[city], name)]
            country = self.pick(tuple(COUNTRIES))
            preposition = "au" if COUNTRIES[country] in MASCULINE_COUNTRIES else "en"
            return [("to" if moving else "in", (key,)), (country, name)], [
                (preposition, (key,)),
                (COUNTRIES[country], name),
            ]
        inside = self.chance(0.5)
        where = self.noun_phrase(room - 1, "2" if inside else "1", known=True)
        english = "to" if moving else "in" if inside else "at"
        return [(english, (key,)), *where.english], after("dans" if inside else "à", key, where.french)

    def near(self, room: int) -> tuple[list[Word], list[Word]]:
        """Under the table, near the house."""
        key = self.key()
        english, preposition = self.pick(WHERE_ABOUTS)
        room -= len(english.split())
        if english in ("on", "under"):
            thing = self.definite(room, "u")
        else:
            thing = self.noun_phrase(max(room, 2), self.pick("hu"), known=True)
        if preposition == "près de":
            return [(english, (key,)), *thing.english], [("près", (key,)), *after("de", key, thing.french)]
        return [(english, (key,)), *thing.english], [(preposition, (key,)), *thing.french]

    def adjuncts(
        self, complement: Complement, subject: Nominal, room: int, tense: str, without: frozenset[str]
    ) -> None:
        """How, with whom, where and when, as long as there is room."""
        if room >= 1 and MANNER_OF not in without and self.chance(0.35 if room > 1 else 0.7):
            manner, french_one = self.pick(MANNER)
            if manner not in ("here", "outside", "everywhere") or PLACE not in without:
                key = (self.key(),)
                complement.add([(manner, key)], [(french_one, key)])
                room -= 1
        if room >= 2 and PLACE not in without and subject.human and self.chance(0.25):
            key, companion = (self.key(),), self.companion(room - 1, subject)
            complement.add([("with", key), *companion.english], [("avec", key), *companion.french])
            room -= 1 + length(companion.english)
        depth = self.depth
        if room >= 2 and PLACE not in without and self.chance(0.5 if room < 8 else 0.8):
            english, words = self.place(room if self.chance(0.5) else min(room, 4))
            complement.add(english, words)
            room -= length(english)
        times = self.times(tense, room)
        if times and self.depth == depth and TIME_OF not in without and self.chance(0.6):
            time, french_one = self.pick(times)
            key = (self.key(),)
            complement.add([(time, key)], [(french_one, key)])

    def companion(self, room: int, subject: Nominal) -> Nominal:
        if room == 1 and self.chance(0.5):
            pronoun = self.object_pronoun("p", subject)
            if pronoun is not None:
                key = (self.key(),)
                return Nominal([(pronoun.english[1], key)], [(pronoun.french[3], key)], pronoun.agreement, "p")
        return self.person(min(room, 4))

    def times(self, tense: str, room: int) -> list[tuple[str, str]]:
        known = {PAST: PAST_TIMES, PROGRESSIVE: PRESENT_TIMES, PRESENT: HABITS, FUTURE: FUTURE_TIMES}.get(tense, [])
        return [pair for pair in known if len(pair[0].split()) <= room]

    def weather(self, room: int, tenses: tuple[str, ...]) -> Clause:
        """It is raining: il pleut."""
        key, verb = (self.key(),), self.pick((RAIN, SNOW))
        head = Head(verb, self.pick(tenses), Agreement(), self.key(), self.key())
        auxiliary, rest = english_parts(head)
        complement = Complement([("it", key), *auxiliary, *rest], [("il", key), *french_words(head, [])])
        nobody = Nominal([], [], Agreement(), "t")
        self.adjuncts(complement, nobody, room - length(complement.english), head.tense, frozenset([MANNER_OF]))
        return Clause(complement.english, complement.french, head.tense)
