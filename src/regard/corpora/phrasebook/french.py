"""French inflection: conjugation, the forms of nouns and adjectives, elision and contraction.

le + eau → l'eau     de + le → du     ce + homme → cet homme     un nouveau + ami → un nouvel ami
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

VOWELS = frozenset("aeiouâàéèêëîïôœæûAEIOUÉÈÊÎÔŒh")
ASPIRATED = ("haricot", "hibou", "hamster", "hérisson", "héros", "huit", "homard", "honteu", "haut")
CONSONANTS = "[bcdfghjklmnpqrstvwxz]+"
ELIDES = frozenset(["je", "ne", "me", "se", "le", "la", "de", "que"])
CONTRACTIONS = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}

GRAVE = ("acheter", "lever", "promener", "emmener", "peser")  # e becomes è before a mute ending: il achète
DOUBLE = ("appeler", "rappeler", "jeter")  # il appelle
IRREGULAR = """
être     suis es est sommes êtes sont                                 été ser ét
avoir    ai as a avons avez ont                                       eu aur
aller    vais vas va allons allez vont                                allé ir
faire    fais fais fait faisons faites font                           fait fer
dire     dis dis dit disons dites disent                              dit dir
lire     lis lis lit lisons lisez lisent                              lu lir
écrire   écris écris écrit écrivons écrivez écrivent                  écrit écrir
voir     vois vois voit voyons voyez voient                           vu verr
croire   crois crois croit croyons croyez croient                     cru croir
boire    bois bois boit buvons buvez boivent                          bu boir
prendre  prends prends prend prenons prenez prennent                  pris prendr
mettre   mets mets met mettons mettez mettent                         mis mettr
venir    viens viens vient venons venez viennent                      venu viendr
pouvoir  peux peux peut pouvons pouvez peuvent                        pu pourr
vouloir  veux veux veut voulons voulez veulent                        voulu voudr
devoir   dois dois doit devons devez doivent                          dû devr
savoir   sais sais sait savons savez savent                           su saur
connaître connais connais connaît connaissons connaissez connaissent  connu connaîtr
paraître parais parais paraît paraissons paraissez paraissent         paru paraîtr
partir   pars pars part partons partez partent                        parti partir
sortir   sors sors sort sortons sortez sortent                        sorti sortir
dormir   dors dors dort dormons dormez dorment                        dormi dormir
sentir   sens sens sent sentons sentez sentent                        senti sentir
mentir   mens mens ment mentons mentez mentent                        menti mentir
ouvrir   ouvre ouvres ouvre ouvrons ouvrez ouvrent                    ouvert ouvrir
couvrir  couvre couvres couvre couvrons couvrez couvrent              couvert couvrir
offrir   offre offres offre offrons offrez offrent                    offert offrir
courir   cours cours court courons courez courent                     couru courr
suivre   suis suis suit suivons suivez suivent                        suivi suivr
rire     ris ris rit rions riez rient                                 ri rir
recevoir reçois reçois reçoit recevons recevez reçoivent              reçu recevr
conduire conduis conduis conduit conduisons conduisez conduisent      conduit conduir
construire construis construis construit construisons construisez construisent  construit construir
traduire traduis traduis traduit traduisons traduisez traduisent      traduit traduir
peindre  peins peins peint peignons peignez peignent                  peint peindr
pleuvoir pleus pleus pleut pleuvons pleuvez pleuvent                  plu pleuvr
envoyer  envoie envoies envoie envoyons envoyez envoient              envoyé enverr
"""
IRREGULARS = {row.split()[0]: row.split()[1:] for row in IRREGULAR.strip().splitlines()}
PREFIXES = (
    "re",
    "de",
    "ap",
    "com",
    "pro",
    "per",
    "ad",
    "sou",
    "dé",
    "dis",
    "pour",
    "pré",
    "sur",
    "d",
)  # re-venir, com-prendre
FUTURE = ("ai", "as", "a", "ons", "ez", "ont")
IMPERFECT = ("ais", "ais", "ait", "ions", "iez", "aient")


@dataclass(frozen=True)
class Conjugation:
    """Six persons of each simple tense; of these *tu* is never spoken here."""

    infinitive: str
    present: tuple[str, ...]
    imperfect: tuple[str, ...]
    future: tuple[str, ...]
    conditional: tuple[str, ...]
    participle: str


@cache
def conjugate(infinitive: str) -> Conjugation:
    present, participle, future, imperfect = _principal_parts(infinitive)
    return Conjugation(
        infinitive,
        tuple(present),
        tuple(_soft(imperfect, ending) for ending in IMPERFECT),
        tuple(future + ending for ending in FUTURE),
        tuple(future + ending for ending in IMPERFECT),
        participle,
    )


def _principal_parts(infinitive: str) -> tuple[list[str], str, str, str]:
    """The present, the past participle, and the stems of future and imperfect."""
    for prefix in ("", *PREFIXES):
        root = infinitive[len(prefix) :]
        if infinitive.startswith(prefix) and root in IRREGULARS:
            forms = [prefix + form for form in IRREGULARS[root]]
            return forms[:6], forms[6], forms[7], forms[8] if len(forms) > 8 else forms[3][:-3]
    stem = infinitive[:-2]
    if infinitive.endswith("ir"):
        present = [stem + ending for ending in ("is", "is", "it", "issons", "issez", "issent")]
        return present, stem + "i", infinitive, stem + "iss"
    if infinitive.endswith("re"):
        return [stem + ending for ending in ("s", "s", "", "ons", "ez", "ent")], stem + "u", infinitive[:-1], stem
    mute = _before_mute_ending(infinitive)
    future = stem if re.search(f"é{CONSONANTS}$", stem) else mute  # il préfère, but il préférera
    present = [mute + "e", mute + "es", mute + "e", _soft(stem, "ons"), stem + "ez", mute + "ent"]
    return present, stem + "é", future + "er", stem


def _before_mute_ending(infinitive: str) -> str:
    stem = infinitive[:-2]
    if infinitive in DOUBLE:
        return stem + stem[-1]
    if infinitive in GRAVE:
        return re.sub("e([^e]+)$", r"è\1", stem)
    if stem.endswith("y"):
        return stem[:-1] + "i"
    return re.sub(f"é({CONSONANTS})$", r"è\1", stem)


def _soft(stem: str, ending: str) -> str:
    """g and c keep their sound before a and o: nous mangeons, il commençait."""
    if ending[0] in "ao" and stem.endswith("g"):
        return stem + "e" + ending
    if ending[0] in "ao" and stem.endswith("c"):
        return stem[:-1] + "ç" + ending
    return stem + ending


def feminine(word: str) -> str:
    for ending, replacement in (
        ("e", "e"),
        ("eux", "euse"),
        ("er", "ère"),
        ("f", "ve"),
        ("en", "enne"),
        ("on", "onne"),
        ("el", "elle"),
    ):
        if word.endswith(ending):
            return word[: -len(ending)] + replacement
    return word + "e"


def plural(word: str) -> str:
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith(("eau", "eu")) and word not in ("bleu",):
        return word + "x"
    if word.endswith("al"):
        return word[:-2] + "aux"
    return word + "s"


def agree(participle: str, is_feminine: bool, is_plural: bool) -> str:
    if is_feminine:
        participle = participle.replace("û", "u") + "e"
    return participle + "s" if is_plural and not participle.endswith("s") else participle


@cache
def begins_with_vowel(word: str) -> bool:
    """A mute h counts as a vowel, an aspirated one does not: l'homme, le haricot."""
    return word == "y" or (word[0] in VOWELS and not word.startswith(ASPIRATED))


def elide(word: str, following: str) -> str:
    if word in ELIDES:
        return word[:-1] + "'" if begins_with_vowel(following) else word
    if word in ("puisque", "lorsque") and following in ("il", "ils", "elle", "elles", "un", "une"):
        return word[:-1] + "'"
    return "s'" if word == "si" and following in ("il", "ils") else word
