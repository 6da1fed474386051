"""Clauses: statements, relative clauses, and clauses joined to long sentences."""

from __future__ import annotations

from random import Random

from regard.corpora.phrasebook.frames import (
    BACKGROUND,
    BEHIND,
    BEHIND_REPORTED,
    MAIN,
    MANNER_OF,
    PLACE,
    RELATIVE_TENSES,
    REPORTED_TENSES,
    TIME_OF,
    Clause,
    Complement,
    transitive_for,
)
from regard.corpora.phrasebook.lexicon import GIVING
from regard.corpora.phrasebook.nouns import Nominal, adjectives_for, after, nouns_with
from regard.corpora.phrasebook.pair import Word, length
from regard.corpora.phrasebook.predicates import Predicates
from regard.corpora.phrasebook.verbs import PRESENT, THIRD, Agreement, english_parts, french_words


class Clauses(Predicates):
    """Clauses of at most `room` English words, as close to it as possible."""

    def __init__(self, random: Random):
        super().__init__(random)
        self.conjunctions: list[str] = []  # of the sentence so far: none comes again at once

    def statement(self, room: int, tenses: tuple[str, ...], without: frozenset[str] = frozenset()) -> Clause:
        if room < 6 and self.chance(0.03):
            return self.weather(room, tenses)
        subject = self.it() if self.named and room >= 3 and self.chance(0.2) else None
        subject = subject or self.subject(self.subject_room(room))
        said = self.predicate(subject, room - length(subject.english), tenses, without=without)
        english = [*subject.english, *said.auxiliary, *said.rest]
        return Clause(english, [*subject.french, *said.french], said.tense)

    def event(self, room: int, tenses: tuple[str, ...], without: frozenset[str]) -> Clause:
        """Something that is done, so that one can ask where and when."""
        subject = self.subject(self.subject_room(room))
        allowed = frozenset(["intransitive", "transitive", "giving"])
        said = self.predicate(subject, room - length(subject.english), tenses, without=without, allowed=allowed)
        return Clause([*subject.english, *said.auxiliary, *said.rest], [*subject.french, *said.french], said.tense)

    # ---- relative clauses ----

    def relative(self, head: Nominal, room: int) -> tuple[list[Word], list[Word]] | None:
        """Who sings, whom she saw, where he lives, whose car is red."""
        kind, key = head.tags[0], (self.key(),)
        tenses = self.relative_tenses
        draw = self.uniform()
        if "l" in head.tags and room >= 3 and draw < 0.6:
            clause = self.event(room - 1, tenses, frozenset([PLACE]))
            return [("where", key), *clause.english], [("où", key), *clause.french]
        if kind == "p" and room >= 4 and draw < 0.12:
            return self.whose(room, tenses)
        if room >= 3 and draw < 0.55 and transitive_for(head.tags, "p"):
            clause = self.gap(head.tags, head.agreement, room - 1, tenses)
            return [("whom" if kind == "p" else "that", key), *clause.english], [("que", key), *clause.french]
        if kind == "a" or kind == "p":
            said = self.predicate(head, room - 1, tenses)
        elif adjectives_for(head.tags, attribute=False) and room >= 3:
            said = self.predicate(head, min(room - 1, 3), tenses)
        else:
            return None
        return [("who" if kind == "p" else "that", key), *said.auxiliary, *said.rest], [("qui", key), *said.french]

    def whose(self, room: int, tenses: tuple[str, ...]) -> tuple[list[Word], list[Word]]:
        noun, key, of_noun = self.pick(nouns_with("tcv")), (self.key(),), (self.key(),)
        agreement = Agreement(THIRD, noun.feminine)
        thing = Nominal(
            [(noun.english[0], of_noun)],
            [(noun.french[0], of_noun)],
            agreement,
            noun.tags,
            len(self.named),
            noun=of_noun,
        )
        self.named.append((noun.tags, agreement))
        said = self.predicate(thing, min(room - 2, 4), tenses)
        return (
            [("whose", key), *thing.english, *said.auxiliary, *said.rest],
            [("dont", key), ("la" if noun.feminine else "le", key), *thing.french, *said.french],
        )

    def gap(
        self, tags: str, missing: Agreement, room: int, tenses: tuple[str, ...], *, agrees: bool = True,
        question: tuple[int, ...] = (),
    ) -> Clause:  # fmt: skip
        """She saw …: a clause whose object has gone before, and with which its participle agrees."""
        subject = self.subject(1 if room < 4 else self.between(1, 3))
        left = room - length(subject.english)
        verb = self.pick(transitive_for(tags, subject.tags[0]) or transitive_for(tags, "p"))
        head = self.head("transitive", verb, subject, left - 1, tenses, question)
        auxiliary, rest = english_parts(head)
        left -= length(auxiliary) + length(rest)
        complement = Complement()
        self.relative_tenses = RELATIVE_TENSES.get(head.tense, BACKGROUND)
        if verb in GIVING and left >= 2:
            to, person = self.key(), self.person(left - 1)
            complement.add([("to", (to,)), *person.english], after("à", to, person.french))
            left -= length(complement.english)
        self.adjuncts(complement, subject, left, head.tense, frozenset([MANNER_OF] + [PLACE, TIME_OF] * verb.stative))
        words = french_words(head, [], missing if agrees else None)
        if question:
            english = [*auxiliary, *subject.english, *rest, *complement.english]
        else:
            english = [*subject.english, *auxiliary, *rest, *complement.english]
        return Clause(english, [*subject.french, *words, *complement.french], head.tense)

    # ---- clauses beside clauses ----

    def clause(self, room: int, tenses: tuple[str, ...]) -> Clause:
        """A statement, or several joined by because, when, if, and …"""
        reported = REPORTED_TENSES.issuperset(tenses)
        self.relative_tenses = BACKGROUND if reported else RELATIVE_TENSES[PRESENT]
        share = room if room < 8 or self.chance(0.35) else self.between(4, room - 4)
        depth = self.depth
        first = self.statement(share, tenses)
        left = room - length(first.english)
        if left < 4:
            return first
        choices = BEHIND_REPORTED if reported else BEHIND.get(first.tense, ())
        if tenses is not MAIN:  # il dort parce qu'elle chante et qu'il …: not here
            choices = tuple(choice for choice in choices if choice[0] not in ("and", "but"))
        if self.depth > depth:  # behind an inner clause, when and if would depend on the wrong verb
            choices = tuple(choice for choice in choices if choice[0] in ("and", "but", "because"))
        choices = tuple(choice for choice in choices if choice[0] not in self.conjunctions[-2:])
        if not choices:
            return first
        english, words, inner = self.pick(choices)
        self.conjunctions.append(english)
        key = (self.key(),)
        second = self.clause(left - len(english.split()), inner)
        links: list[Word] = [(word, key) for word in words.split()]
        return Clause(
            [*first.english, (english, key), *second.english], [*first.french, *links, *second.french], first.tense
        )
