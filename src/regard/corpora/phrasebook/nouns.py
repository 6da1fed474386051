"""Noun phrases: determiners, adjectives and pronouns, which agree in gender and number, and what they refer to.

*It*, *they* and *them* take the gender of what the sentence has named. They are used only where everything that they
could stand for has one gender, so that the French follows from the English; with nothing named they are masculine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import TypeVar

from regard.corpora.phrasebook import french
from regard.corpora.phrasebook.lexicon import (
    ADJECTIVES,
    ANIMALS,
    DRINKS,
    FOOD,
    GRADED,
    INSTRUMENTS,
    KIN,
    MEN,
    NUMBERS,
    ONLY_ATTRIBUTE,
    ONLY_PREDICATE,
    PEOPLE,
    PLACES,
    THINGS,
    WOMEN,
    Adjective,
    Noun,
)
from regard.corpora.phrasebook.pair import Word, length
from regard.corpora.phrasebook.verbs import FIRST, THEY, THIRD, WE, YOU, Agreement

T = TypeVar("T")
NOUNS = PEOPLE + KIN + ANIMALS + FOOD + DRINKS + THINGS + INSTRUMENTS + PLACES
BARE, OWNER = "", "'s"  # determiners: none, and that of Jack's car
NUMBER_WORDS = dict(NUMBERS)
POSSESSIVES = {
    "my": ("mon", "ma", "mes"),
    "your": ("votre", "votre", "vos"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
    "their": ("leur", "leur", "leurs"),
}


@dataclass(frozen=True)
class Nominal:
    """A noun phrase or pronoun in both languages, with what agrees with it."""

    english: list[Word]
    french: list[Word]
    agreement: Agreement
    tags: str
    mark: int = 0  # how many things had been named before it
    pronoun: Pronoun | None = None
    noun: tuple[int, ...] = ()  # key of the word that a verb agrees with; none if there are two

    @property
    def human(self) -> bool:
        return "p" in self.tags


@dataclass(frozen=True)
class Pronoun:
    english: tuple[str, str]  # subject, object
    french: tuple[str, str, str, str]  # subject, direct object, indirect object, after a preposition
    agreement: Agreement


ME, YOU_ALL, HE, SHE, US, THEY_HE, THEY_SHE, IT_HE, IT_SHE = (
    Pronoun(("I", "me"), ("je", "me", "me", "moi"), Agreement(FIRST)),
    Pronoun(("you", "you"), ("vous", "vous", "vous", "vous"), Agreement(YOU)),
    Pronoun(("he", "him"), ("il", "le", "lui", "lui"), Agreement(THIRD)),
    Pronoun(("she", "her"), ("elle", "la", "lui", "elle"), Agreement(THIRD, feminine=True)),
    Pronoun(("we", "us"), ("nous", "nous", "nous", "nous"), Agreement(WE, plural=True)),
    Pronoun(("they", "them"), ("ils", "les", "leur", "eux"), Agreement(THEY, plural=True)),
    Pronoun(("they", "them"), ("elles", "les", "leur", "elles"), Agreement(THEY, feminine=True, plural=True)),
    Pronoun(("it", "it"), ("il", "le", "lui", "lui"), Agreement(THIRD)),
    Pronoun(("it", "it"), ("elle", "la", "lui", "elle"), Agreement(THIRD, feminine=True)),
)
PERSONAL = (ME, YOU_ALL, HE, SHE, HE, SHE, US, THEY_HE)


@cache
def nouns_with(tags: str) -> tuple[Noun, ...]:
    return tuple(noun for noun in NOUNS if set(noun.tags) & set(tags))


@cache
def adjectives_for(tags: str, attribute: bool = True) -> tuple[Adjective, ...]:
    """Those that fit every kind that the noun is, or else the first."""
    left_out = ONLY_PREDICATE if attribute else ONLY_ATTRIBUTE
    return tuple(
        one
        for one in ADJECTIVES
        if tags[0] in one.tags and one.english not in left_out and not (one.english == "new" and "k" in tags)
    )


class NounPhrases:
    """Noun phrases of at most so many English words, drawn at random."""

    def __init__(self, random: Random):
        self.uniform = random.random  # of Random's methods only this one promises never to change
        self.keys = 0
        self.names: set[str] = set()
        self.agreeing: list[tuple[int, int]] = []  # keys of each subject and its finite verb
        self.its = 0  # how many times the sentence has said it as a subject
        self.depth = 0  # how many clauses the sentence has so far inside others
        self.named: list[tuple[str, Agreement]] = []  # tags and gender of what the sentence has named so far

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.uniform() * len(choices))]

    def chance(self, probability: float) -> bool:
        return self.uniform() < probability

    def between(self, least: int, most: int) -> int:
        return least + int(self.uniform() * (most - least + 1)) if most > least else least

    def key(self) -> int:
        self.keys += 1
        return self.keys

    # ---- who ----

    def subject(self, room: int) -> Nominal:
        """A person most often, sometimes an animal; in one word a name or a pronoun."""
        if room == 1 or self.chance(0.4):
            return self.name() if self.chance(0.3) else self.pronoun_subject()
        if room >= 3 and self.chance(0.06):
            return self.couple()
        tags = "p" if self.chance(0.62) else "k" if self.chance(0.6) else "a"
        return self.noun_phrase(room, tags, subject=True)

    def pronoun_subject(self) -> Nominal:
        pronoun = self.pick(PERSONAL)
        mark = len(self.named)
        if pronoun is THEY_HE:
            genders = {agreement.feminine for _, agreement in self.named if agreement.plural}
            pronoun = THEY_SHE if genders == {True} else THEY_HE if len(genders) < 2 else HE
            if pronoun.agreement.plural:
                self.named.append(("p", pronoun.agreement))
        return self.said(pronoun, "p", mark)

    def said(self, pronoun: Pronoun, tags: str, mark: int) -> Nominal:
        key: tuple[int, ...] = (self.key(),)
        english, french_words = [(pronoun.english[0], key)], [(pronoun.french[0], key)]
        return Nominal(english, french_words, pronoun.agreement, tags, mark, pronoun, key)

    def name(self) -> Nominal:
        woman = self.chance(0.5)
        names = WOMEN if woman else MEN
        name, key = self.pick(names), (self.key(),)
        while name in self.names and len(self.names) < len(names):  # Anna does not thank Anna
            name = self.pick(names)
        self.names.add(name)
        agreement = Agreement(THIRD, feminine=woman)
        return Nominal([(name, key)], [(name, key)], agreement, "p", len(self.named), noun=key)

    def couple(self) -> Nominal:
        """Two people and their gender: feminine only if both are."""
        first, second, mark, key = self.name(), self.name(), len(self.named), (self.key(),)
        agreement = Agreement(THEY, first.agreement.feminine and second.agreement.feminine, plural=True)
        self.named.append(("p", agreement))
        return Nominal(
            [*first.english, ("and", key), *second.english],
            [*first.french, ("et", key), *second.french],
            agreement,
            "p",
            mark,
        )

    def it(self) -> Nominal | None:
        """A subject pronoun for the last thing named, if it is singular and no other gender could be meant."""
        if self.its:
            return None
        things = [(tags, agreement) for tags, agreement in self.named if "p" not in tags and not agreement.plural]
        if not things or len({agreement.feminine for _, agreement in things}) > 1:
            return None
        tags, agreement = things[-1]
        self.its += 1
        return self.said(IT_SHE if agreement.feminine else IT_HE, tags, len(self.named))

    def object_pronoun(self, wanted: str, subject: Nominal) -> Pronoun | None:
        """A pronoun that the verb can take as its object and that is not the subject itself."""
        if "p" in wanted and self.chance(0.75):
            person = subject.agreement.person
            near = {FIRST: (ME, US), WE: (ME, US), YOU: (YOU_ALL,)}.get(person, ())
            return self.pick([one for one in (ME, YOU_ALL, HE, SHE, HE, SHE, US) if one not in near])
        plural = self.chance(0.4)
        if not plural and set(wanted) <= {"p", "k"}:
            return None
        fitting = [a for tags, a in self.named[: subject.mark] if a.plural == plural and set(tags) & set(wanted)]
        genders = {agreement.feminine for agreement in fitting}
        if len(genders) > 1 or (not fitting and any(a.plural == plural for _, a in self.named)):
            return None
        pronoun = ((IT_HE, IT_SHE), (THEY_HE, THEY_SHE))[plural][genders == {True}]
        if not fitting:
            self.named.append((wanted if plural else wanted.replace("p", "").replace("k", ""), pronoun.agreement))
        return pronoun

    # ---- what ----

    def noun_phrase(
        self, room: int, tags: str, *, subject: bool = False, known: bool = False, article: str = "plain"
    ) -> Nominal:
        """At most `room` English words; `article` is for `article_words`."""
        noun = self.pick(nouns_with(tags))
        mark, plural = len(self.named), not noun.mass and "s" not in noun.tags and self.chance(0.1 if known else 0.3)
        determiner = self.known(plural) if known else self.determiner(noun, plural, room, subject, article)
        plural = plural or (determiner == BARE and not noun.mass)
        agreement = Agreement(THEY if plural else THIRD, noun.feminine, plural)
        of_noun = self.key()
        of_determiner = of_noun if determiner == BARE else self.key()
        english: list[Word] = [] if determiner == BARE else [(determiner, (of_determiner,))]
        owner = self.owner(room) if determiner == OWNER else None
        if owner:
            english = owner.english + english
        adjectives = self.adjectives(noun, room - length(english) - length([(noun.english[plural], ())]))
        if plural or "p" not in noun.tags:
            self.named.append((noun.tags, agreement))

        for adjective, degree, key in adjectives:
            english += [("very", (degree,)), (adjective.english, (key,))] if degree else [(adjective.english, (key,))]
        english.append((noun.english[plural], (of_noun,)))
        words = french_noun(noun, agreement, adjectives, of_noun)
        before = any(adjective.before_noun for adjective, _, _ in adjectives)
        articles = article_words(determiner, agreement, noun.mass, words[0][0], before, article)
        words = [*((text, (of_determiner,)) for text in articles), *words]
        if owner:
            words += after("de", of_determiner, owner.french)
        phrase = Nominal(english, words, agreement, noun.tags, mark, noun=(of_noun,))
        return phrase if owner or determiner in POSSESSIVES else self.modified(phrase, room - length(english))

    def known(self, plural: bool) -> str:
        if self.chance(0.75):
            return "the"
        return self.pick(tuple(POSSESSIVES)) if self.chance(0.6) else "those" if plural else "this"

    def determiner(self, noun: Noun, plural: bool, room: int, subject: bool, article: str) -> str:
        if room < 1 + length([(noun.english[plural], ())]):
            return BARE
        kin, draw = "k" in noun.tags, self.uniform()
        if room > 4 and not kin:  # room for a relative clause, which goes with the and a
            draw *= 0.7
        if draw < (0.1 if kin else 0.36):
            return "the"
        if draw < (0.2 if kin else 0.6):
            return self.indefinite(noun, plural, subject, article)
        if draw < 0.78:
            return self.pick(tuple(POSSESSIVES)) if kin or "p" not in noun.tags else "the"
        if draw < 0.88 or room < 3:
            return self.pick(("these", "those") if plural else ("this", "that"))
        return OWNER

    def indefinite(self, noun: Noun, plural: bool, subject: bool, article: str) -> str:
        if article != "plain":  # some apples, many apples: not after not, and not in general
            if article == "bare" and "p" in noun.tags:
                return "the"
            return BARE if plural or noun.mass else "the" if article == "generic" else "a"
        if noun.mass:
            return self.pick(("some", BARE))
        if not plural:
            return "every" if subject and self.chance(0.2) else "a"
        some = self.pick(
            ("number", "several", "many") if subject else ("some", BARE, BARE, "number", "several", "many")
        )
        return self.pick(tuple(NUMBER_WORDS)) if some == "number" else some

    def owner(self, room: int) -> Nominal:
        """Jack's, my sister's."""
        if room < 4 or self.chance(0.5):
            return self.name()
        kin, key, owner = self.pick(KIN), self.key(), self.pick(tuple(POSSESSIVES))
        agreement = Agreement(THIRD, kin.feminine)
        articles = article_words(owner, agreement, False, kin.french[0], False)
        of_kin = (self.key(),)
        return Nominal(
            [(owner, (key,)), (kin.english[0], of_kin)],
            [*((text, (key,)) for text in articles), (kin.french[0], of_kin)],
            agreement,
            kin.tags,
        )

    def adjectives(self, noun: Noun, room: int) -> list[tuple[Adjective, int, int]]:
        """One, or two of which one goes before the French noun and one behind; with the keys of *very* and its own."""
        if room < 1 or not self.chance(0.75 if room < 3 else 0.45):
            return []
        known = adjectives_for(noun.tags)  # for every noun there are some
        first = self.pick(known)
        if room >= 2 and first.english in GRADED and self.chance(0.3):
            return [(first, self.key(), self.key())]
        chosen = [(first, 0, self.key())]
        if room >= 2 and first.before_noun and self.chance(0.5):
            second = self.pick(known)
            if not second.before_noun:
                chosen.append((second, 0, self.key()))
        return chosen

    def modified(self, phrase: Nominal, room: int) -> Nominal:
        """The man with the red hat, the book on the table, the door of the house, the girl who sings."""
        if room < 2 or (room > 2 and self.chance(0.15)):
            return phrase
        kind = phrase.tags[0]
        if 3 <= room <= 5 and self.chance(0.5):
            if kind == "p":
                return self.followed(phrase, "with", "à", self.definite(room - 1, "c"))
            if kind in "tx":
                english, french_one = self.pick((("on", "sur"), ("under", "sous"), ("behind", "derrière")))
                return self.followed(phrase, english, french_one, self.definite(room - 1, "u"))
            if kind == "o":
                return self.followed(phrase, "of", "de", self.definite(room - 1, "h"))
        self.depth += 1
        clause = self.relative(phrase, room)
        if clause is None:
            return phrase
        english_clause, french_clause = clause
        return replace(phrase, english=phrase.english + english_clause, french=phrase.french + french_clause)

    def definite(self, room: int, tags: str) -> Nominal:
        """The red hat: a noun that is known, in the singular."""
        noun, of_noun, of_article = self.pick(nouns_with(tags)), self.key(), self.key()
        agreement = Agreement(THIRD, noun.feminine)
        adjectives = self.adjectives(noun, min(1, room - 2))
        self.named.append((noun.tags, agreement))
        mark = len(self.named)
        words = french_noun(noun, agreement, adjectives, of_noun)
        english: list[Word] = [("the", (of_article,)), *((one.english, (key,)) for one, _, key in adjectives)]
        french_words: list[Word] = [("la" if noun.feminine else "le", (of_article,)), *words]
        return Nominal([*english, (noun.english[0], (of_noun,))], french_words, agreement, noun.tags, mark)

    def followed(self, phrase: Nominal, english: str, preposition: str, other: Nominal) -> Nominal:
        key = self.key()
        behind = after(preposition, key, other.french)
        return replace(
            phrase,
            english=[*phrase.english, (english, (key,)), *other.english],
            french=[*phrase.french, *behind],
        )

    def relative(self, head: Nominal, room: int) -> tuple[list[Word], list[Word]] | None:
        raise NotImplementedError  # a clause: see clauses.py


def french_noun(
    noun: Noun, agreement: Agreement, adjectives: list[tuple[Adjective, int, int]], of_noun: int
) -> list[Word]:
    """Une belle voiture rouge: some adjectives go before the noun, most behind."""
    name = noun.french[agreement.plural]
    before: list[Word] = []
    behind: list[Word] = []
    for adjective, degree, key in adjectives:
        vowel = adjective.before_noun and french.begins_with_vowel(name)
        words: list[Word] = [("très", (degree,))] if degree else []
        words.append((adjective_form(adjective, agreement, vowel), (key,)))
        (before if adjective.before_noun else behind).extend(words)
    return [*before, (name, (of_noun,)), *behind]


def adjective_form(adjective: Adjective, agreement: Agreement, before_vowel: bool = False) -> str:
    if before_vowel and not agreement.feminine and not agreement.plural:
        return adjective.before_vowel
    return adjective.french[2 * agreement.plural + agreement.feminine]


def article_words(
    determiner: str, agreement: Agreement, mass: bool, first: str, adjective_first: bool, article: str = "plain"
) -> list[str]:
    """The French determiner before the word `first`.

    An article that English leaves out, or says as *a* or *some*, depends on what it follows: after a negation it is
    *de* (pas de pain), after *de* the partitive is dropped (besoin de pain), and after verbs of liking it is definite
    (j'aime le pain).
    """
    feminine, plural = agreement.feminine, agreement.plural
    vowel = french.begins_with_vowel(first)
    if determiner in POSSESSIVES:
        return [POSSESSIVES[determiner][2 if plural else feminine and not vowel]]
    if determiner in ("this", "that", "these", "those"):
        return ["ces" if plural else "cette" if feminine else "cet" if vowel else "ce"]
    if determiner in NUMBER_WORDS:
        return [NUMBER_WORDS[determiner]]
    if determiner in ("several", "every"):
        return ["plusieurs" if plural else "chaque"]
    if determiner == "many":
        return ["beaucoup", "de"]
    definite = "les" if plural else "la" if feminine else "le"
    if determiner in ("the", OWNER) or article == "generic":
        return [definite]
    if article == "negated":
        return ["de"]
    if determiner == "a":
        return ["une" if feminine else "un"]
    if article == "bare":
        return []
    if plural:
        return ["de" if adjective_first else "des"]
    return ["du"] if definite == "le" and not vowel else ["de", definite]


def after(preposition: str, key: int, phrase: list[Word]) -> list[Word]:
    """au, aux, du, des: à and de melt into an article that is not itself elided."""
    text, keys = phrase[0]
    melted = french.CONTRACTIONS.get((preposition, text))
    if melted is None or (text == "le" and french.begins_with_vowel(phrase[1][0])):
        return [(preposition, (key,)), *phrase]
    return [(melted, (key, *keys)), *phrase[1:]]
