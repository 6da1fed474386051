"""Sentences: statements, questions, commands, weather, and clauses before the main clause."""

from __future__ import annotations

from regard.corpora.phrasebook import french
from regard.corpora.phrasebook.clauses import Clauses
from regard.corpora.phrasebook.frames import ACTIONS, MAIN, PLACE, TIME_OF, Clause, SentencePlan
from regard.corpora.phrasebook.lexicon import BE, GREETINGS, HAVE, Noun
from regard.corpora.phrasebook.nouns import BARE, NUMBER_WORDS, YOU_ALL, Nominal, article_words, nouns_with
from regard.corpora.phrasebook.pair import Draft, Pair, Word, length
from regard.corpora.phrasebook.verbs import (
    CONDITION,
    CONDITIONAL,
    FUTURE,
    PAST,
    PAST_PROGRESSIVE,
    PRESENT,
    PROGRESSIVE,
    THEY,
    THIRD,
    TIME,
    Agreement,
    Head,
    english_parts,
    imperative,
    simple_form,
)

# a clause that comes first: its conjunction and tenses, and the tenses of the main clause
FRONTED = (
    ("when", "quand", (TIME,), (FUTURE,)),
    ("as soon as", "dès que", (TIME,), (FUTURE,)),
    ("if", "si", (PRESENT,), (FUTURE,)),
    ("if", "si", (CONDITION,), (CONDITIONAL,)),
    ("when", "quand", (PRESENT,), (PRESENT,)),
    ("when", "quand", (PAST_PROGRESSIVE,), (PAST,)),
    ("while", "pendant que", (PAST_PROGRESSIVE,), (PAST, PAST_PROGRESSIVE)),
    ("while", "pendant que", (PROGRESSIVE,), (PROGRESSIVE,)),
    ("since", "puisque", (PRESENT,), (PRESENT, FUTURE)),
)
COMMANDED = ACTIONS - {"staying"}


class SentenceMaker(Clauses):
    """Sentences of at most `room` English words, and as close to it as possible."""

    def sentence(self, room: int) -> Pair:
        """The best of a few attempts: not every frame can be filled."""
        best = self.attempt(room)
        for _ in range(4):
            if room - room // 10 <= best.size <= room:
                break
            other = self.attempt(room)
            if abs(other.size - room) < abs(best.size - room):
                best = other
        return best.written()

    def attempt(self, room: int) -> Draft:
        self.named.clear()
        self.agreeing.clear()
        self.conjunctions.clear()
        self.names.clear()
        self.keys = self.depth = self.its = 0
        draw = self.uniform()
        if room == 1 or (draw < 0.04 and room < 7):
            return self.command(min(room, 6)) if room > 3 or self.chance(0.75) else self.greeting()
        if draw < 0.12 and room < 10:
            return self.command(room)
        if draw < 0.26 and room >= 3:
            return self.question(room)
        if draw < 0.30 and 3 <= room < 12:
            clause = self.existence(room)
        elif draw < 0.34 and room >= 3:
            clause = self.answer(room)
        elif draw < 0.55 and room >= 8:
            clause = self.fronted(room)
        else:
            clause = self.clause(room, MAIN)
        return Draft(clause.english, clause.french, agreeing=tuple(self.agreeing))

    def greeting(self) -> Draft:
        english, words = self.pick(GREETINGS)
        return Draft([(english, (0,))], [(words, (0,))])

    def answer(self, room: int) -> Clause:
        key, clause = (self.key(),), self.clause(room - 1, MAIN)
        denied = any(text in ("not", "never", "no longer", "cannot") for text, _ in clause.english)
        english, word = ("no", "non") if denied or self.chance(0.3) else ("yes", "oui")
        return Clause([(english, key), (",", ()), *clause.english], [(word, key), (",", ()), *clause.french])

    def fronted(self, room: int) -> Clause:
        """When she comes, he will sing: quand elle viendra, il chantera."""
        english, words, inner, outer = self.pick(FRONTED)
        self.conjunctions.append(english)
        key = (self.key(),)
        first = self.clause(self.between(3, room - 5), inner)
        main = self.clause(room - length(first.english) - len(english.split()), outer)
        links: list[Word] = [(word, key) for word in words.split()]
        return Clause(
            [(english, key), *first.english, (",", ()), *main.english], [*links, *first.french, (",", ()), *main.french]
        )

    # ---- commands ----

    def command(self, room: int) -> Draft:
        """To one person, politely. Give it to me: donnez-le-moi."""
        you = Nominal([], [], YOU_ALL.agreement, "p", 0, YOU_ALL)
        please = room >= 3 and self.chance(0.2)
        room -= please
        negated = room >= 3 and self.chance(0.25)
        frame, verb = self.choose(you, room - 2 * negated, COMMANDED)
        if not verb.progressive:  # nobody is told to need or to find
            return self.command(room + please)
        plan = SentencePlan(frame, verb, you, PRESENT, self.key(), negated)
        english: list[Word] = [(verb.english.base, (plan.key,))]
        if verb.english.particle:
            english.append((verb.english.particle, (plan.key,)))
        left = room - 2 * negated - length(english)
        complement = self.complement(plan, left, frozenset([TIME_OF]))
        if any(text == "y" for text, _ in complement.pronouns):
            return self.command(room + please)  # allez-y says something else
        negation: list[Word] = []
        if negated:
            key = (self.key(),)
            english = [("do", (plan.key,)), ("not", key), *english]
            negation = [("ne", key), ("pas", key)]
        english += complement.english
        words = imperative(verb, (plan.key,), complement.pronouns, negation) + complement.french
        if please:
            key = (self.key(),)
            english += [(",", ()), ("please", key)]
            words += [(",", ()), ("s'il vous plaît", key)]
        return Draft(english, words)

    # ---- questions ----

    def question(self, room: int) -> Draft:
        """Always with est-ce que, which stands for the English auxiliary; who asks without."""
        draw = self.uniform()
        if draw < 0.35 or room < 4:
            clause = self.asked(room, MAIN)
        elif draw < 0.5:
            clause = self.who(room)
        elif draw < 0.7 and room < 14:
            clause = self.what(room)
        elif draw < 0.8 and 5 <= room < 14:
            clause = self.which(room)
        else:
            clause = self.why(room)
        return Draft(clause.english, clause.french, "?", tuple(self.agreeing))

    def asked(self, room: int, tenses: tuple[str, ...], without: frozenset[str] = frozenset()) -> Clause:
        """Does she sing?: est-ce qu'elle chante ?"""
        key = self.key()
        subject = self.subject(1 if room < 5 else self.between(1, 3))
        allowed = ACTIONS - {"going", "staying"} if without else None
        left = room - length(subject.english)
        said = self.predicate(subject, left, tenses, question=(key,), without=without, allowed=allowed)
        return Clause(
            [*said.auxiliary, *subject.english, *said.rest],
            [("est-ce", (key,)), ("que", (key,)), *subject.french, *said.french],
        )

    def who(self, room: int) -> Clause:
        key = (self.key(),)
        someone = Nominal([("who", key)], [("qui", key)], Agreement(), "p", 0)
        said = self.predicate(someone, room - 1, MAIN)
        return Clause([("who", key), *said.auxiliary, *said.rest], [("qui", key), *said.french])

    def what(self, room: int) -> Clause:
        """What did she eat?: qu'est-ce qu'elle a mangé ?"""
        key, of_question = (self.key(),), self.key()
        person = self.chance(0.3)
        tags = "p" if person else "tfmdxcv"
        clause = self.gap(tags, Agreement(), room - 1, MAIN, agrees=False, question=(of_question,))
        est_ce: list[Word] = [("est-ce", (of_question,)), ("que", (of_question,))]
        english, word = ("whom", "qui") if person else ("what", "que")
        return Clause([(english, key), *clause.english], [(word, key), *est_ce, *clause.french])

    def which(self, room: int) -> Clause:
        """Which car did he buy?: quelle voiture est-ce qu'il a achetée ?"""
        noun, key, of_noun, of_question = self.pick(nouns_with("tcxv")), (self.key(),), (self.key(),), self.key()
        plural = self.chance(0.5)
        agreement = Agreement(THEY if plural else THIRD, noun.feminine, plural)
        self.named.append((noun.tags, agreement))
        many = plural and self.chance(0.5)
        if many:
            english, words = "how many", ["combien", "de"]
        else:
            english, words = (
                "which",
                [french.plural(quel) if plural else quel for quel in [("quel", "quelle")[noun.feminine]]],
            )
        left = room - len(english.split()) - 1
        clause = self.gap(noun.tags, agreement, left, MAIN, question=(of_question,))
        return Clause(
            [(english, key), (noun.english[plural], of_noun), *clause.english],
            [
                *((word, key) for word in words),
                (noun.french[plural], of_noun),
                ("est-ce", (of_question,)),
                ("que", (of_question,)),
                *clause.french,
            ],
        )

    def why(self, room: int) -> Clause:
        english, word, without = self.pick(
            (
                ("why", "pourquoi", frozenset()),
                ("where", "où", frozenset([PLACE])),
                ("when", "quand", frozenset([TIME_OF])),
            )
        )
        key, clause = (self.key(),), self.asked(room - 1, MAIN, without)
        return Clause([(english, key), *clause.english], [(word, key), *clause.french])

    # ---- there is, it rains ----

    def existence(self, room: int) -> Clause:
        """There is no milk: il n'y a pas de lait."""
        there, negated = self.key(), self.chance(0.25)
        tense = self.pick((PRESENT, PRESENT, PAST, FUTURE))
        tags = self.pick("pafmdtcx")
        noun = self.pick(nouns_with(tags))
        plural = not noun.mass and self.chance(0.5)
        agreement = Agreement(THEY if plural else THIRD, noun.feminine, plural)
        head = Head(BE, tense, agreement, self.key(), self.key())
        auxiliary, rest = english_parts(head)
        of_noun, of_article = self.key(), self.key()
        article, words = self.some(noun, agreement, negated)
        self.named.append((noun.tags, agreement))
        english: list[Word] = [("there", (there,)), *auxiliary, *rest]
        english += [(article, (of_article,))] if article else []
        english.append((noun.english[plural], (of_noun,)))
        both = (head.auxiliary, head.main)
        keyed = of_article if article else of_noun
        ne: list[Word] = [("ne", (of_article,))] if negated else []
        pas: list[Word] = [("pas", (of_article,))] if negated else []
        target = [("il", (there,)), *ne, ("y", (there,)), (simple_form(HAVE, tense, THIRD), both), *pas]
        target += [*((word, (keyed,)) for word in words), (noun.french[plural], (of_noun,))]
        left = room - length(english)
        if left < 3:
            return Clause(english, target)
        where = self.near(left) if self.chance(0.5) else self.place(left, names=False)
        return Clause(english + where[0], target + where[1])

    def some(self, noun: Noun, agreement: Agreement, negated: bool) -> tuple[str, list[str]]:
        name = noun.french[agreement.plural]
        if negated:
            return "no", ["de"]
        if noun.mass:
            determiner = self.pick((BARE, "some"))
        elif agreement.plural:
            determiner = self.pick((BARE, "some", "many", *NUMBER_WORDS))
        else:
            determiner = "a"
        return determiner, article_words(determiner, agreement, noun.mass, name, False)
