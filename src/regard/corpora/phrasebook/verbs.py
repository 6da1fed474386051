"""What stands around a verb: auxiliaries, negation, adverbs and object pronouns, in English and in French order.

he did not give it to her          subject  did  not  give  it  to her
il ne le lui a pas donné           subject  ne  le lui  a  pas  donné
"""

from __future__ import annotations

from dataclasses import dataclass, field

from regard.corpora.phrasebook import french
from regard.corpora.phrasebook.lexicon import BE, CAN, MUST, SHOULD, Verb
from regard.corpora.phrasebook.pair import Word

# English tense: how it is said in French. A clause of time in the future (when she comes) and a condition (if she
# came) are present and past in English, future and imperfect in French.
PRESENT, PROGRESSIVE, PAST, PAST_PROGRESSIVE, FUTURE, PERFECT, CONDITIONAL, TIME, CONDITION = (
    "present", "progressive", "past", "past progressive", "future", "perfect", "conditional", "time", "condition",
)  # fmt: skip
IMPERFECT_TENSES = (PAST_PROGRESSIVE, CONDITION)
NOW = (PRESENT, PROGRESSIVE, TIME)
REFLEXIVE = ("me", "te", "se", "nous", "vous", "se")
FIRST, THIRD, WE, YOU, THEY = 0, 2, 3, 4, 5  # persons, as indices into a conjugation
MODALS = (CAN.english.base, MUST.english.base, SHOULD.english.base)


@dataclass(frozen=True)
class Agreement:
    """Of a subject, or of an object before its participle. *You* is one person, said politely."""

    person: int = THIRD
    feminine: bool = False
    plural: bool = False


@dataclass
class Head:
    """A verb about to be said: its tense, its keys and what goes between its parts."""

    verb: Verb
    tense: str
    subject: Agreement
    auxiliary: int  # key of what carries the tense
    main: int  # key of the meaning
    between: list[Word] = field(default_factory=list)  # not, never, often
    negation: list[Word] = field(default_factory=list)  # ne, pas
    adverb: list[Word] = field(default_factory=list)  # souvent
    question: list[int] = field(default_factory=list)  # key of est-ce que, if it is one


def english_parts(head: Head) -> tuple[list[Word], list[Word]]:
    """The auxiliary, which a question puts before the subject, and the rest of the verb."""
    auxiliary, rest = _english_forms(head)
    verb = head.verb.english
    aux_keys: tuple[int, ...] = (head.auxiliary, *head.question)
    main_keys: tuple[int, ...] = (head.main,)
    if not auxiliary:
        main_keys = (head.auxiliary, head.main)
    elif not rest:
        aux_keys = (*aux_keys, head.main)
    between = head.between
    if auxiliary == "can" and between and between[0][0] == "not":
        auxiliary, aux_keys, between = "cannot", (*aux_keys, *between[0][1]), between[1:]
    spoken: list[Word] = [(auxiliary, aux_keys)] if auxiliary else []
    after: list[Word] = [*between, *([(rest, main_keys)] if rest else [])]
    return spoken, after + ([(verb.particle, (head.main,))] if verb.particle else [])


def _english_forms(head: Head) -> tuple[str, str]:
    verb, tense, subject = head.verb.english, head.tense, head.subject
    third = subject.person == THIRD
    be = "am" if subject.person == FIRST else "is" if third else "are"
    was = "was" if subject.person == FIRST or third else "were"
    if verb.base in MODALS:
        return (verb.past if tense == PAST else verb.base), ""
    if tense in (FUTURE, CONDITIONAL):
        return ("will" if tense == FUTURE else "would"), verb.base
    if tense in (PROGRESSIVE, PAST_PROGRESSIVE):
        return (be if tense == PROGRESSIVE else was), verb.gerund
    if tense == PERFECT:
        return "had", verb.participle
    is_past = tense in (PAST, CONDITION)
    if verb.base == BE.english.base:
        return (was if is_past else be), ""
    if head.question or (head.between and head.between[0][0] == "not"):
        return ("did" if is_past else "does" if third else "do"), verb.base
    return "", (verb.past if is_past else verb.third if third else verb.base)


def french_words(head: Head, pronouns: list[Word], preceding: Agreement | None = None) -> list[Word]:
    """The whole verb. The participle agrees with the subject after être, after avoir with an object before it."""
    verb, person = head.verb, head.subject.person
    both = (head.auxiliary, head.main)
    ne, pas = head.negation[:1], head.negation[1:]
    if verb.reflexive:
        pronouns = [(REFLEXIVE[person], (head.main,)), *pronouns]
    tail: list[Word] = [(verb.tail, (head.main,))] if verb.tail else []
    compound = head.tense == PERFECT or (head.tense == PAST and not verb.stative)
    if not compound:
        form = simple_form(verb, head.tense, person)
        return [*ne, *pronouns, (form, both), *pas, *head.adverb, *tail]
    auxiliary = french.conjugate("être" if verb.etre else "avoir")
    finite = (auxiliary.present if head.tense == PAST else auxiliary.imperfect)[person]
    agreeing = head.subject if verb.etre and not verb.silent else preceding
    participle = verb.french.participle
    if agreeing is not None:
        participle = french.agree(participle, agreeing.feminine, agreeing.plural)
    return [*ne, *pronouns, (finite, (head.auxiliary,)), *pas, *head.adverb, (participle, (head.main,)), *tail]


def simple_form(verb: Verb, tense: str, person: int) -> str:
    forms = verb.french
    if verb is SHOULD or tense == CONDITIONAL:
        return forms.conditional[person]
    if tense in (FUTURE, TIME):
        return forms.future[person]
    if tense in IMPERFECT_TENSES or tense == PAST:
        return forms.imperfect[person]
    return forms.present[person]


def infinitive(verb: Verb, person: int, key: int, pronouns: list[Word]) -> list[Word]:
    reflexive: list[Word] = [(REFLEXIVE[person], (key,))] if verb.reflexive else []
    tail: list[Word] = [(verb.tail, (key,))] if verb.tail else []
    return [*reflexive, *pronouns, (verb.french.infinitive, (key,)), *tail]


def imperative(verb: Verb, keys: tuple[int, ...], pronouns: list[Word], negation: list[Word]) -> list[Word]:
    """Donnez-le-moi, but: ne me le donnez pas."""
    form: Word = (verb.french.present[YOU], keys)
    tail: list[Word] = [(verb.tail, keys)] if verb.tail else []
    if negation:
        reflexive: list[Word] = [("vous", keys)] if verb.reflexive else []
        return [negation[0], *reflexive, *pronouns, form, *negation[1:], *tail]
    direct = [word for word in pronouns if word[0] in ("le", "la", "les")]
    others = [("moi" if text == "me" else text, keys) for text, keys in pronouns if text not in ("le", "la", "les")]
    reflexive = [("-vous", keys)] if verb.reflexive else []
    return [form, *reflexive, *(("-" + text, keys) for text, keys in [*direct, *others]), *tail]


def in_order(direct: list[Word], indirect: list[Word]) -> list[Word]:
    """Il me le donne, but: il le lui donne."""
    if indirect and indirect[0][0] in ("lui", "leur"):
        return [*direct, *indirect]
    return [*indirect, *direct]
