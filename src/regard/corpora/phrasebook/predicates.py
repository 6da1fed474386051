"""Predicates: a verb with its complements, of which some are clauses again (`clauses.py`)."""

from __future__ import annotations

from regard.corpora.phrasebook import french
from regard.corpora.phrasebook.circumstances import Circumstances
from regard.corpora.phrasebook.frames import (
    ACTIONS,
    AFFIRMED,
    BACKGROUND,
    FRAMES,
    MAIN,
    MANNER_OF,
    MODAL_TENSES,
    PLACE,
    RELATIVE_TENSES,
    REPORTED,
    SHORT,
    TIME_OF,
    VERBS,
    Clause,
    Complement,
    Said,
    SentencePlan,
    frames_for,
    verbs_of,
)
from regard.corpora.phrasebook.lexicon import (
    BE,
    BECOME,
    BECOMING,
    CAN,
    DEGREES,
    FEELINGS,
    FELT,
    GRADED,
    JOBS,
    LANGUAGES,
    LEARN,
    MUST,
    OFTEN,
    SHOULD,
    SPORTS,
    WILLING,
    Verb,
)
from regard.corpora.phrasebook.nouns import Nominal, Pronoun, adjective_form, adjectives_for, after, nouns_with
from regard.corpora.phrasebook.pair import Word, length
from regard.corpora.phrasebook.verbs import (
    CONDITION,
    FUTURE,
    PAST,
    PAST_PROGRESSIVE,
    PERFECT,
    PRESENT,
    PROGRESSIVE,
    THIRD,
    TIME,
    Agreement,
    Head,
    english_parts,
    french_words,
    in_order,
    infinitive,
)


class Predicates(Circumstances):
    """A verb with its complements, of at most `room` English words."""

    # ---- the verb and its subject ----

    def subject_room(self, room: int) -> int:
        if room < 4 or self.chance(0.3):
            return 1
        return self.between(2, 3) if room < 12 or self.chance(0.7) else self.between(4, min(room // 3, 10))

    def predicate(
        self,
        subject: Nominal,
        room: int,
        tenses: tuple[str, ...],
        *,
        question: tuple[int, ...] = (),
        without: frozenset[str] = frozenset(),
        allowed: frozenset[str] | None = None,
    ) -> Said:
        frame, verb = self.choose(subject, room - bool(question), allowed)
        while (
            len(tenses) == 1 and tenses[0] in (PROGRESSIVE, PAST_PROGRESSIVE) and not (verb.progressive or verb.stative)
        ):
            frame, verb = self.choose(subject, room - bool(question), allowed)  # while he forgets: not here
        if frame == "modal" and not MODAL_TENSES.intersection(tenses):
            frame, verb = "willing", self.pick(WILLING)
        head = self.head(frame, verb, subject, room - FRAMES[frame][0], tenses, question)
        auxiliary, rest = english_parts(head)
        self.relative_tenses = RELATIVE_TENSES.get(head.tense, BACKGROUND)
        plan = SentencePlan(frame, head.verb, subject, head.tense, head.main, bool(head.negation))
        complement = self.complement(plan, room - length(auxiliary) - length(rest), without)
        words = french_words(head, complement.pronouns, complement.preceding)
        return Said(auxiliary, rest + complement.english, words + complement.french, head.tense)

    def choose(self, subject: Nominal, room: int, allowed: frozenset[str] | None = None) -> tuple[str, Verb]:
        kind = subject.tags[0]
        if kind not in "pa":
            verbs = verbs_of("intransitive", kind)
            if verbs and self.chance(0.4) and allowed is None:
                return "intransitive", self.pick(verbs)
            return "being", BE
        frames = frames_for(kind, max(room, 1), allowed)
        draw = self.uniform() * frames[-1][1]
        frame = next(frame for frame, total in frames if draw < total)
        return frame, self.pick(verbs_of(frame, kind)) if frame not in ("being", "job") else self.pick(VERBS[frame])

    def head(
        self,
        frame: str,
        verb: Verb,
        subject: Nominal,
        spare: int,
        tenses: tuple[str, ...],
        question: tuple[int, ...] = (),
    ) -> Head:
        """Draws the tense, and a negation or an adverb if there is room."""
        spare -= bool(question)
        tense = self.tense(verb, tenses, spare, subject.agreement.person)
        if frame == "modal":
            verb, tense = self.modal(verb, tenses)
        head = Head(verb, tense, subject.agreement, self.key(), self.key(), question=list(question))
        self.agreeing += [(key, head.auxiliary) for key in subject.noun]
        spare -= tense not in SHORT
        may_negate = not question and frame not in AFFIRMED and (frame != "wondering" or verb.stative)
        if may_negate and spare >= 1 and self.chance(0.2):
            self.negate(head, spare)
        elif spare >= 1 and tense == PRESENT and (verb is BE or not verb.stative) and self.chance(0.12):
            adverb, key = self.pick(OFTEN), (self.key(),)
            head.between, head.adverb = [(adverb[0], key)], [(adverb[1], key)]
        return head

    def negate(self, head: Head, spare: int) -> None:
        key = (self.key(),)
        english, pas = "not", "pas"
        progressive = head.tense in (PROGRESSIVE, PAST_PROGRESSIVE)
        if (spare == 1 and head.tense in SHORT and head.verb is not BE) or self.chance(0.15):
            english, pas = "never", "jamais"
            if progressive or head.verb in (CAN, MUST, SHOULD):
                return
        elif self.chance(0.12) and head.tense in (PRESENT, FUTURE) and head.verb not in (CAN, MUST, SHOULD):
            english, pas = "no longer", "plus"
        head.between, head.negation = [(english, key)], [("ne", key), (pas, key)]

    def tense(self, verb: Verb, tenses: tuple[str, ...], spare: int, person: int) -> str:
        tense = self.pick(tenses)
        if spare < 1 and tense not in SHORT:
            short = [one for one in tenses if one in SHORT]
            tense = self.pick(short) if short else tense
        if not verb.progressive:
            if tense == PROGRESSIVE:
                tense = PRESENT
            elif tense == PAST_PROGRESSIVE:
                tense = PAST if verb.stative or PERFECT not in tenses else PERFECT
            if tense == PERFECT and verb.stative:
                tense = PAST
        if tense in (PAST, CONDITION) and verb.english.past == verb.english.base and person != THIRD:
            return PRESENT if PRESENT in tenses else FUTURE if FUTURE in tenses else tenses[-1]  # they read: which?
        return tense

    def modal(self, verb: Verb, tenses: tuple[str, ...]) -> tuple[Verb, str]:
        """They have a present, and *can* has a past."""
        if tenses == (PRESENT,):
            return (CAN if verb is SHOULD else verb), PRESENT  # if she should come: not here
        if PRESENT in tenses and (PAST not in tenses or self.chance(0.75)):
            return verb, PRESENT
        return CAN, PAST

    # ---- what follows the verb ----

    def complement(self, plan: SentencePlan, room: int, without: frozenset[str] = frozenset()) -> Complement:
        depth = self.depth
        complement: Complement = getattr(self, "_" + plan.frame)(plan, room)
        if plan.frame in ACTIONS and self.depth == depth:  # behind an inner clause they would be a part of it
            if plan.frame in ("going", "staying"):
                without = without | {PLACE}
            if plan.frame != "intransitive" or not plan.verb.progressive:
                without = without | {MANNER_OF}
            if plan.verb.stative:
                without = without | {PLACE, TIME_OF}
            self.adjuncts(complement, plan.subject, room - length(complement.english), plan.tense, without)
        return complement

    def _intransitive(self, plan: SentencePlan, room: int) -> Complement:
        return Complement()

    def _transitive(self, plan: SentencePlan, room: int) -> Complement:
        verb = plan.verb
        if self.chance(0.3) and verb.preposition != "de":
            pronoun = self.object_pronoun(verb.objects, plan.subject)
            if pronoun is not None:
                return self.with_pronoun(pronoun, indirect=bool(verb.preposition))
        article = plan.article
        if verb.preposition and not verb.generic:  # il n'obéit pas à des rois, il n'a pas besoin de pain
            article = "bare" if verb.preposition == "de" else "plain"
        thing = self.object(room, self.pick(verb.objects), article)
        words = after(verb.preposition, plan.key, thing.french) if verb.preposition else thing.french
        return Complement(thing.english, words)

    def with_pronoun(self, pronoun: Pronoun, indirect: bool = False) -> Complement:
        key = (self.key(),)
        english: list[Word] = [(pronoun.english[1], key)]
        preceding = None if indirect else pronoun.agreement
        return Complement(english, [], [(pronoun.french[1 + indirect], key)], preceding)

    def object(self, room: int, wanted: str, article: str) -> Nominal:
        if wanted == "p" and (room == 1 or self.chance(0.25)):
            return self.name()
        if room > 4 and self.chance(0.4):
            room = self.between(2, 4)
        return self.noun_phrase(room, wanted, article=article)

    def _giving(self, plan: SentencePlan, room: int) -> Complement:
        """He gave it to her: il le lui a donné."""
        wanted = self.pick(plan.verb.objects)
        complement = Complement()
        pronoun = self.object_pronoun(wanted, plan.subject) if self.chance(0.25) else None
        if pronoun is not None:
            complement = self.with_pronoun(pronoun)
        else:
            thing = self.noun_phrase(max(1, min(room - 2, 3)), wanted, article=plan.article)
            complement.add(thing.english, thing.french)
        receiver = self.object_pronoun("p", plan.subject) if self.chance(0.35) else None
        to = self.key()
        if receiver is not None:
            key = (to, self.key())
            complement.add([("to", key[:1]), (receiver.english[1], key[1:])], [])
            complement.pronouns = in_order(complement.pronouns, [(receiver.french[2], key)])
        else:
            person = self.person(room - 1 - length(complement.english))
            complement.add([("to", (to,)), *person.english], after("à", to, person.french))
        return complement

    def _being(self, plan: SentencePlan, room: int) -> Complement:
        """The adjective agrees with the subject."""
        subject, choices = plan.subject, adjectives_for(plan.subject.tags, attribute=False)
        if plan.verb is not BE:
            sensible = BECOMING if plan.verb is BECOME else FELT
            choices = tuple(one for one in choices if one.english in sensible)
        adjective, key = self.pick(choices), (self.key(),)
        complement = Complement()
        if room > 1 and adjective.english in GRADED and self.chance(0.4):
            degree, degree_key = self.pick(DEGREES[:2] if plan.negated else DEGREES), (self.key(),)
            complement.add([(degree[0], degree_key)], [(degree[1], degree_key)])
        complement.add([(adjective.english, key)], [(adjective_form(adjective, subject.agreement), key)])
        return complement

    def _comparison(self, plan: SentencePlan, room: int) -> Complement:
        """As tall as her brother: aussi grand que son frère."""
        first, then, aussi = self.pick((("as", "as", "aussi"), ("less", "than", "moins")))
        adjective, key, as_key = self.pick(adjectives_for("p", attribute=False)), (self.key(),), (self.key(),)
        than_key = (self.key(),)
        other = self.person(room - 3)
        return Complement(
            [(first, as_key), (adjective.english, key), (then, than_key), *other.english],
            [
                (aussi, as_key),
                (adjective_form(adjective, plan.subject.agreement), key),
                ("que", than_key),
                *other.french,
            ],
        )

    def _feeling(self, plan: SentencePlan, room: int) -> Complement:
        english, french_one = self.pick(FEELINGS)
        key = (self.key(),)
        return Complement([(english, key)], [(french_one, key)])

    def _job(self, plan: SentencePlan, room: int) -> Complement:
        """He is a doctor: il est médecin, without an article."""
        plural, singular, *forms = self.pick(JOBS)
        key = (self.key(),)
        name = forms[plan.subject.agreement.feminine]
        if plan.subject.agreement.plural:
            return Complement([(plural, key)], [(french.plural(name), key)])
        return Complement([("a", key), (singular, key)], [(name, key)])

    def _language(self, plan: SentencePlan, room: int) -> Complement:
        language, key = self.pick(tuple(LANGUAGES)), (self.key(),)
        definite: list[Word] = [("le", key)] if plan.verb is LEARN else []
        return Complement([(language, key)], [*definite, (LANGUAGES[language], key)])

    def _sport(self, plan: SentencePlan, room: int) -> Complement:
        english, definite, french_one = self.pick(SPORTS)
        key = self.key()
        return Complement([(english, (key,))], after("à", key, [(definite, (key,)), (french_one, (key,))]))

    def _instrument(self, plan: SentencePlan, room: int) -> Complement:
        instrument, key, of_article = self.pick(nouns_with("i")), self.key(), self.key()
        definite = "la" if instrument.feminine else "le"
        words = after("de", of_article, [(definite, (of_article,)), (instrument.french[0], (key,))])
        return Complement([("the", (of_article,)), (instrument.english[0], (key,))], words)

    def _afraid(self, plan: SentencePlan, room: int) -> Complement:
        return self._transitive(plan, room)

    def _going(self, plan: SentencePlan, room: int) -> Complement:
        if room < 2 or self.chance(0.1):
            key = (self.key(),)
            return Complement([("there", key)], [], [("y", key)])
        complement = Complement()
        long = room > 6 and self.chance(0.5)
        complement.add(*self.place(room if long else min(room, 4), moving=True))
        left = room - length(complement.english)
        if left >= 3 and self.chance(0.5):
            complement.add(*self.to(plan, left, "pour", plan.subject, negated=False))
        return complement

    def _staying(self, plan: SentencePlan, room: int) -> Complement:
        if plan.verb.french is BE.french and room >= 3 and self.chance(0.4):
            return Complement(*self.near(room))
        return Complement(*self.place(room))

    # ---- infinitives ----

    def infinitive(
        self, plan: SentencePlan, room: int, subject: Nominal, negated: bool
    ) -> tuple[list[Word], list[Word]]:
        """Eat the apple: manger la pomme. The tense is that of the verb it depends on."""
        allowed = ACTIONS | {"saying", "willing", "wondering", "asking"} if room > 6 and subject.human else ACTIONS
        frame, verb = self.choose(subject, room, allowed)
        while verb.stative or (frame not in ACTIONS and not verb.progressive):
            frame, verb = self.choose(subject, room, allowed)
        inner = SentencePlan(frame, verb, subject, plan.tense, self.key(), negated)
        english: list[Word] = [(verb.english.base, (inner.key,))]
        if verb.english.particle:
            english.append((verb.english.particle, (inner.key,)))
        complement = self.complement(inner, room - length(english), frozenset([TIME_OF]))
        words = infinitive(verb, subject.agreement.person, inner.key, complement.pronouns)
        return english + complement.english, words + complement.french

    def to(
        self, plan: SentencePlan, room: int, preposition: str, subject: Nominal, negated: bool
    ) -> tuple[list[Word], list[Word]]:
        """To and an infinitive; *to* is the French preposition, or else a part of the infinitive."""
        english, words = self.infinitive(plan, room - 1, subject, negated)
        if preposition:
            key = (self.key(),)
            return [("to", key), *english], [(preposition, key), *words]
        return [("to", english[0][1]), *english], words

    def _willing(self, plan: SentencePlan, room: int) -> Complement:
        return Complement(
            *self.to(plan, room, plan.verb.preposition, plan.subject, plan.negated and plan.verb is WILLING[0])
        )

    def _modal(self, plan: SentencePlan, room: int) -> Complement:
        return Complement(*self.infinitive(plan, room, plan.subject, plan.negated))

    def _asking(self, plan: SentencePlan, room: int) -> Complement:
        """She asked him to come: elle lui a demandé de venir."""
        complement, asked = self.addressed(plan, min(room - 3, self.between(1, 4)), indirect=bool(plan.verb.objects))
        left = room - length(complement.english)
        complement.add(*self.to(plan, left, plan.verb.preposition, asked, negated=False))
        return complement

    def addressed(self, plan: SentencePlan, room: int, indirect: bool) -> tuple[Complement, Nominal]:
        """Someone spoken to, as an object and as the subject of what follows."""
        pronoun = self.object_pronoun("p", plan.subject) if self.chance(0.45) else None
        if pronoun is not None:
            return self.with_pronoun(pronoun, indirect), Nominal([], [], pronoun.agreement, "p", len(self.named))
        person = self.person(room)
        words = after("à", plan.key, person.french) if indirect else person.french
        return Complement(person.english, words), person

    # ---- clauses as objects ----

    def _saying(self, plan: SentencePlan, room: int) -> Complement:
        """That …, or at length: that … and that …"""
        complement, tenses = Complement(), self.inner(plan.tense)
        if room > 11 and self.chance(0.25):
            self.add_that(complement, self.between(4, room - 6), tenses)
            key = (self.key(),)
            complement.add([("and", key)], [("et", key)])
        self.add_that(complement, room - length(complement.english), tenses)
        return complement

    def add_that(self, complement: Complement, room: int, tenses: tuple[str, ...]) -> None:
        self.depth += 1
        key, clause = (self.key(),), self.clause(room - 1, tenses)
        complement.add([("that", key), *clause.english], [("que", key), *clause.french])

    def _telling(self, plan: SentencePlan, room: int) -> Complement:
        complement, _ = self.addressed(plan, min(room - 4, self.between(1, 3)), indirect=bool(plan.verb.preposition))
        said = self._saying(plan, room - length(complement.english))
        complement.add(said.english, said.french)
        return complement

    def _wondering(self, plan: SentencePlan, room: int) -> Complement:
        """Whether, who, what, where, when and why."""
        self.depth += 1
        key, tenses = (self.key(),), self.inner(plan.tense)
        doubtful = plan.verb.english.base in ("know", "wonder", "ask")
        kind = self.pick(
            ("whether", "who", "what", "where", "when", "why") if doubtful else ("who", "what", "where", "why")
        )
        if kind == "who":
            someone = Nominal([("who", key)], [("qui", key)], Agreement(), "p", len(self.named))
            said = self.predicate(someone, room - 1, tenses)
            return Complement([("who", key), *said.auxiliary, *said.rest], [("qui", key), *said.french])
        if kind == "what":
            clause = self.gap("tfxc", Agreement(), room - 1, tenses, agrees=False)
            return Complement([("what", key), *clause.english], [("ce", key), ("que", key), *clause.french])
        if kind in ("where", "when"):
            clause = self.event(room - 1, tenses, frozenset([PLACE if kind == "where" else TIME_OF]))
        else:
            clause = self.clause(room - 1, tenses)
        asked = {"whether": "si", "where": "où", "when": "quand", "why": "pourquoi"}[kind]
        return Complement([(kind, key), *clause.english], [(asked, key), *clause.french])

    def inner(self, tense: str) -> tuple[str, ...]:
        """The tenses of a clause inside one of this tense."""
        return MAIN if tense in (PRESENT, PROGRESSIVE, FUTURE, TIME) else REPORTED

    # ---- in `clauses.py` ----

    relative_tenses: tuple[str, ...] = (PRESENT, PROGRESSIVE, PAST)  # of the current clause

    def event(self, room: int, tenses: tuple[str, ...], without: frozenset[str]) -> Clause:
        raise NotImplementedError

    def gap(
        self, tags: str, missing: Agreement, room: int, tenses: tuple[str, ...], *, agrees: bool = True,
        question: tuple[int, ...] = (),
    ) -> Clause:  # fmt: skip
        raise NotImplementedError

    def clause(self, room: int, tenses: tuple[str, ...]) -> Clause:
        raise NotImplementedError
