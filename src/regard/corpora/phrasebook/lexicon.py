"""The words of the phrasebook and what they go with.

A noun's tags are its meaning, one letter each; a verb or an adjective lists the tags it goes with, so that bread is
eaten and letters are read.

    p person  k kin or friend  a animal  f food that is counted  m food that is not  d drink
    t thing  u furniture  c clothing  v vehicle  x text  y what one writes  o what opens  r container  w device
    q matter of the mind  n plant  i instrument  h building  s single  l place: 1 one is at it, 2 one is in it
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.corpora.phrasebook import english, french


@dataclass(frozen=True)
class Noun:
    english: tuple[str, str]  # singular, plural
    french: tuple[str, str]
    feminine: bool
    tags: str
    mass: bool = False


@dataclass(frozen=True)
class Adjective:
    english: str
    french: tuple[str, str, str, str]  # masculine, feminine, masculine plural, feminine plural
    before_vowel: str  # of the masculine singular: bel, nouvel, vieil
    before_noun: bool
    tags: str


@dataclass(frozen=True)
class Verb:
    english: english.EnglishVerb
    french: french.Conjugation
    subjects: str = "p"
    objects: str = ""
    reflexive: bool = False
    etre: bool = False  # its compound tenses are made with être
    tail: str = ""  # besoin, in avoir besoin de
    preposition: str = ""  # before the object, or before the infinitive
    stative: bool = False  # no progressive, and its past is the imperfect
    progressive: bool = True
    generic: bool = False  # she likes apples: elle aime les pommes
    silent: bool = False  # its reflexive pronoun is an indirect object: elle s'est demandé


def _spaced(text: str) -> str:
    return text.replace("_", " ")


def _both(text: str, plural) -> tuple[str, str]:
    singular, _, given = _spaced(text).partition("/")
    return singular, given or plural(singular)


def _nouns(tags: str, entries: str, *, mass: bool = False) -> list[Noun]:
    """Entries like `man/men homme m`, with further tags behind the gender."""
    nouns = []
    for entry in entries.split(","):
        english_forms, french_forms, gender, *more = entry.split()
        nouns.append(
            Noun(
                _both(english_forms, english.plural),
                _both(french_forms, french.plural),
                gender == "f",
                tags + "".join(more),
                mass,
            )
        )
    return nouns


PEOPLE = _nouns(
    "p",
    """man/men homme m, woman/women femme f, child/children enfant m, boy garçon m, girl fille f, baby bébé m,
    teacher professeur m, student étudiant m, doctor médecin m, nurse infirmière f, farmer fermier m, baker
    boulanger m, butcher boucher m, cook cuisinier m, waiter serveur m, waitress serveuse f, singer chanteur m,
    actress actrice f, actor acteur m, writer écrivain m, painter peintre m, journalist journaliste m, lawyer
    avocat m, judge juge m, policeman/policemen policier m, soldier soldat m, sailor marin m, pilot pilote m,
    engineer ingénieur m, king roi m, queen reine f, prince prince m, princess princesse f, lady dame f, guest
    invité m, customer client m, tourist touriste m, musician musicien m, dancer danseur m, gardener jardinier m,
    mayor maire m, thief/thieves voleur m, witch sorcière f, pupil élève m, dentist dentiste m, hairdresser
    coiffeur m, traveller voyageur m, hero/heroes héros m, fisherman/fishermen pêcheur m, shepherdess bergère f""",
)
KIN = _nouns(
    "pk",
    """mother mère f s, father père m s, brother frère m, sister sœur f, son fils m, daughter fille f, aunt tante f,
    uncle oncle m, cousin cousin m, grandmother grand-mère/grands-mères f, grandfather grand-père/grands-pères m,
    friend ami m, neighbour voisin m, colleague collègue m, nephew neveu m, niece nièce f""",
)
ANIMALS = _nouns(
    "a",
    """dog chien m, cat chat m, horse cheval m, cow vache f, bird oiseau m, rabbit lapin m, mouse/mice souris f, goat
    chèvre f, duck canard m, hen poule f, pig cochon m, wolf/wolves loup m, fox renard m, bear ours m, lion lion
    m, elephant éléphant m, monkey singe m, donkey âne m, owl hibou/hiboux m, hamster hamster m, tortoise tortue
    f, parrot perroquet m, bee abeille f, butterfly papillon m, snake serpent m, squirrel écureuil m, frog
    grenouille f, hedgehog hérisson m, swan cygne m, puppy chiot m""",
)
FOOD = _nouns(
    "f",
    """apple pomme f, orange orange f, banana banane f, pear poire f, peach pêche f, cherry cerise f, strawberry
    fraise f, lemon citron m, melon melon m, potato/potatoes pomme_de_terre/pommes_de_terre f, tomato/tomatoes
    tomate f, carrot carotte f, onion oignon m, mushroom champignon m, egg œuf m, cake gâteau m, biscuit biscuit
    m, sandwich sandwich/sandwichs m, pancake crêpe f, pie tarte f, bean haricot m, omelette omelette f, sausage
    saucisse f, croissant croissant m""",
) + _nouns(
    "m",
    """bread pain m, cheese fromage m, meat viande f, rice riz m, soup soupe f, butter beurre m, jam confiture f,
    honey miel m, chocolate chocolat m, ham jambon m, salad salade f, chicken poulet m""",
    mass=True,
)
DRINKS = _nouns(
    "d",
    """water eau f, milk lait m, coffee café m, tea thé m, wine vin m, beer bière f, lemonade limonade f, cider cidre
    m, juice jus m""",
    mass=True,
)
THINGS = (
    _nouns(
        "t",
        """mirror miroir m, clock horloge f w, watch montre f w, painting tableau m, photograph photo f, key clé f, bag
    sac m r, suitcase valise f ro, box boîte f ro, basket panier m r, bottle bouteille f ro, cup tasse f r, plate
    assiette f, knife/knives couteau m, spoon cuillère f, fork fourchette f, umbrella parapluie m o, gift cadeau
    m, ball balle f, doll poupée f, toy jouet m, computer ordinateur m w, phone téléphone m w, radio radio f w,
    camera appareil_photo/appareils_photo m w, bicycle vélo m w, pen stylo m, pencil crayon m, ring bague f,
    candle bougie f, blanket couverture f, carpet tapis m, ticket billet m, map carte f, flag drapeau m, ladder
    échelle f, hammer marteau m, rope corde f, coin pièce f, vase vase m r, pillow oreiller m, lamp lampe f w""",
    )
    + _nouns(
        "u",
        """table table f, chair chaise f, bed lit m, sofa canapé m, shelf/shelves étagère f, desk bureau m,
    bench banc m, armchair fauteuil m, cupboard placard m o, drawer tiroir m o, wall mur m""",
    )
    + _nouns("o", "door porte f, window fenêtre f, gate portail m")
    + _nouns(
        "c",
        """shirt chemise f, coat manteau m, dress robe f, hat chapeau m, skirt jupe f, shoe chaussure f, jacket veste f,
    scarf/scarves écharpe f, sock chaussette f, tie cravate f, jumper pull m, glove gant m, boot botte f, belt
    ceinture f""",
    )
    + _nouns(
        "v",
        """car voiture f w, train train m, bus bus m, boat bateau m, lorry camion m w, plane avion m, tractor tracteur m
    w, motorbike moto f w, taxi taxi m, van camionnette f w""",
    )
    + _nouns(
        "x",
        """book livre m, letter lettre f y, newspaper journal m, novel roman m, poem poème m y, story histoire f,
    message message m y, article article m, report rapport m, dictionary dictionnaire m, magazine magazine m,
    recipe recette f, postcard carte_postale/cartes_postales f y, song chanson f y, speech discours m""",
    )
    + _nouns(
        "q",
        """question question f, answer réponse f, problem problème m, secret secret m, idea idée f, lesson leçon f, plan
    plan m, dream rêve m, mistake erreur f, rule règle f, exercise exercice m""",
    )
    + _nouns(
        "n", "flower fleur f, tree arbre m, rose rose f, tulip tulipe f, oak chêne m, bush buisson m, plant plante f"
    )
)
INSTRUMENTS = _nouns(
    "i", "piano piano m, guitar guitare f, violin violon m, flute flûte f, trumpet trompette f, cello violoncelle m"
)
PLACES = _nouns(
    "l1",
    """market marché m, station gare f h, school école f h, beach plage f, restaurant restaurant m h, cinema cinéma m
    h, library bibliothèque f h, museum musée m h, theatre théâtre m h, airport aéroport m, hospital hôpital m h,
    office bureau m, farm ferme f, castle château m h, church église f h, bakery boulangerie f, bank banque f,
    hotel hôtel m h, university université f, zoo zoo m, town_hall mairie f, pharmacy pharmacie f, bookshop
    librairie f, supermarket supermarché m, swimming_pool piscine f""",
) + _nouns(
    "l2",
    """garden jardin m, kitchen cuisine f, forest forêt f, street rue f, park parc m, house maison f h, bedroom
    chambre f, living_room salon m, village village m, city ville f, valley vallée f, field champ m, cellar cave
    f, attic grenier m, courtyard cour f, shop magasin m h, classroom salle_de_classe/salles_de_classe f, desert
    désert m, tower tour f h, bathroom salle_de_bains/salles_de_bains f""",
)
CITIES = dict(
    pair.split("/")
    for pair in [
        "Paris/Paris",
        "London/Londres",
        "Rome/Rome",
        "Berlin/Berlin",
        "Lyon/Lyon",
        "Geneva/Genève",
        "Brussels/Bruxelles",
        "Lisbon/Lisbonne",
        "Vienna/Vienne",
        "Venice/Venise",
        "Madrid/Madrid",
        "Athens/Athènes",
    ]
)
COUNTRIES = dict(
    pair.split("/")
    for pair in [
        "France/France",
        "Italy/Italie",
        "Spain/Espagne",
        "Germany/Allemagne",
        "Japan/Japon",
        "Canada/Canada",
        "Portugal/Portugal",
        "Brazil/Brésil",
        "Switzerland/Suisse",
        "Morocco/Maroc",
        "England/Angleterre",
        "Greece/Grèce",
    ]
)
MASCULINE_COUNTRIES = frozenset(["Japon", "Canada", "Portugal", "Brésil", "Maroc"])
MEN = [
    "Jack",
    "Paul",
    "Pierre",
    "Tom",
    "Marc",
    "Louis",
    "Lucas",
    "David",
    "Thomas",
    "Antoine",
    "Olivier",
    "Simon",
    "Arthur",
    "Daniel",
]
WOMEN = [
    "Jill",
    "Marie",
    "Anna",
    "Julie",
    "Claire",
    "Emma",
    "Alice",
    "Sophie",
    "Sarah",
    "Nina",
    "Laura",
    "Isabelle",
    "Charlotte",
]
LANGUAGES = dict(
    pair.split("/")
    for pair in [
        "French/français",
        "English/anglais",
        "Italian/italien",
        "Spanish/espagnol",
        "German/allemand",
        "Japanese/japonais",
        "Chinese/chinois",
        "Russian/russe",
        "Greek/grec",
        "Portuguese/portugais",
    ]
)
SPORTS = [("football", "le", "football"), ("tennis", "le", "tennis"), ("rugby", "le", "rugby"),
          ("chess", "les", "échecs"), ("cards", "les", "cartes"), ("basketball", "le", "basket")]  # fmt: skip
JOBS = [
    (english.plural(name), name, man, woman or man)
    for name, man, woman in [
        ("doctor", "médecin", ""), ("teacher", "professeur", ""), ("student", "étudiant", "étudiante"),
        ("farmer", "fermier", "fermière"), ("baker", "boulanger", "boulangère"), ("cook", "cuisinier", "cuisinière"),
        ("singer", "chanteur", "chanteuse"), ("painter", "peintre", ""), ("journalist", "journaliste", ""),
        ("lawyer", "avocat", "avocate"), ("pilot", "pilote", ""), ("dentist", "dentiste", ""),
        ("musician", "musicien", "musicienne"), ("dancer", "danseur", "danseuse"),
        ("gardener", "jardinier", "jardinière"), ("hairdresser", "coiffeur", "coiffeuse"),
    ]
]  # fmt: skip


def _adjectives(entries: str, *, before_noun: bool) -> list[Adjective]:
    """Entries like `white blanc/blanche tcv`; a third form is that of the masculine before a vowel."""
    adjectives = []
    for entry in entries.split(","):
        name, forms, tags = entry.split()
        masculine, *more = _spaced(forms).split("/")
        feminine = more[0] if more else french.feminine(masculine)
        plural = (masculine, feminine) if masculine == "bon marché" else (french.plural(masculine), feminine + "s")
        before_vowel = more[1] if len(more) > 1 else masculine
        adjectives.append(Adjective(name, (masculine, feminine, *plural), before_vowel, before_noun, tags))
    return adjectives


ADJECTIVES = _adjectives(
    """big grand tlavunrh, small petit tlavunrcpxf, little petit paf, beautiful beau/belle/bel plavtcnxih, young
    jeune pa, old vieux/vieille/vieil platuvcxoih, new nouveau/nouvelle/nouvel ptuvcxlwi, good bon/bonne pfmdx,
    bad mauvais fmdx, pretty joli tcnplo, long long/longue xy, fat gros/grosse a, large grand lvurh, excellent
    excellent fmdx""",
    before_noun=True,
) + _adjectives(
    """red rouge tcvonu, blue bleu tcvou, green vert tcvou, white blanc/blanche tcvonua, black noir tcvoua, yellow
    jaune tcvon, grey gris tcvua, brown brun tcua, pink rose tcn, happy heureux p, sad triste pxy, tired fatigué
    pa, rich riche p, poor pauvre p, famous célèbre pxlh, intelligent intelligent pa, kind gentil/gentille p,
    patient patient pa, curious curieux pa, nervous nerveux pa, shy timide pa, brave courageux pa, lazy paresseux
    pa, polite poli p, serious sérieux pq, strong fort pa, weak faible pa, sick malade pa, proud fier/fière p,
    calm calme pal, jealous jaloux/jalouse p, careful prudent p, generous généreux p, honest honnête p, funny
    drôle pxy, worried inquiet/inquiète p, surprised surpris p, tall grand p, loyal fidèle p, wild sauvage a,
    dangerous dangereux avq, quiet tranquille pal, gentle doux/douce pa, hungry affamé a, elegant élégant pc,
    interesting intéressant xyql, boring ennuyeux xy, difficult difficile qx, easy facile q, important important
    qxy, strange étrange xqtl, simple simple q, dirty sale tcvul, clean propre tcvul, empty vide rl, heavy lourd
    t, light léger/légère tc, expensive cher/chère tcvwim, cheap bon_marché/bon_marché tcv, useful utile txwq,
    fragile fragile ti, modern moderne lvwh, round rond u, hot chaud d, cold froid md, fresh frais/fraîche mdf,
    delicious délicieux fmd, sweet sucré d, ripe mûr f, warm chaud c, comfortable confortable ucv, fast rapide va,
    slow lent va, noisy bruyant vapl, dark sombre l, bright clair l, distant lointain l, crowded bondé l,
    practical pratique tvw, mysterious mystérieux plxt, splendid splendide lcthn, wonderful merveilleux xlpfn,
    magnificent magnifique lthanci, precious précieux ti, valuable précieux ti, healthy sain m, solid solide uv,
    rare rare nx, stubborn têtu pa, clumsy maladroit p, ambitious ambitieux p, modest modeste p, discreet
    discret/discrète p, charming charmant pl, pale pâle p, busy occupé p, ready prêt p, angry fâché p, satisfied
    satisfait p, impatient impatient p""",
    before_noun=False,
)
ONLY_PREDICATE = frozenset(["ready", "busy", "angry", "tall", "surprised", "satisfied"])
ONLY_ATTRIBUTE = frozenset(["hungry", "little", "large", "wild"])  # one is hungry as one has hunger: see FEELINGS
BECOMING = frozenset(
    [
        "happy",
        "sad",
        "rich",
        "poor",
        "famous",
        "strong",
        "calm",
        "jealous",
        "nervous",
        "proud",
        "patient",
        "serious",
        "generous",
    ]
)
FELT = frozenset(["happy", "sad", "tired", "proud", "calm", "strong", "weak", "sick", "worried", "nervous"])
GRADED = frozenset(one.english for one in ADJECTIVES) - frozenset(  # those that can be very so
    [
        "red",
        "blue",
        "green",
        "white",
        "black",
        "yellow",
        "grey",
        "brown",
        "pink",
        "new",
        "excellent",
        "magnificent",
        "splendid",
        "delicious",
        "wonderful",
        "empty",
        "ready",
        "square",
        "round",
    ]
)
FEELINGS = [("hungry", "faim"), ("thirsty", "soif"), ("sleepy", "sommeil"), ("right", "raison"), ("wrong", "tort")]


def _verbs(entries: str, subjects: str = "p") -> list[Verb]:
    """Lines like `see saw seen | voir | objects | n`: s stative, n no progressive, e être, g generic, @xy subjects."""
    verbs = []
    for line in entries.strip().splitlines():
        forms, infinitive, objects, flags = (*(part.strip() for part in line.split("|")), "", "")[:4]
        infinitive, _, preposition = infinitive.partition(":")
        infinitive, _, tail = infinitive.partition("+")
        reflexive = infinitive.startswith("se ")
        flags, _, given = flags.partition("@")
        verbs.append(
            Verb(
                english.verb(forms),
                french.conjugate(infinitive.removeprefix("se ")),
                given or subjects,
                objects,
                reflexive,
                "e" in flags or reflexive,
                tail,
                preposition,
                "s" in flags,
                not ("s" in flags or "n" in flags),
                "g" in flags,
                "i" in flags,
            )
        )
    return verbs


INTRANSITIVE = _verbs(
    """sleep slept | dormir | | @pa
sing sang sung | chanter
dance | danser
work | travailler
swim swam swum swimming | nager | | @pa
run ran run running | courir | | @pa
walk | marcher | | @pa
laugh | rire
smile | sourire
cry | pleurer
dream | rêver
cook | cuisiner
travel travelled | voyager
wait | attendre | | @pa
watch | regarder | | @pa
study | étudier
listen | écouter | | @pa
speak spoke spoken | parler
shout | crier
jump | sauter | | @pa
play | jouer | | @pa
rest | se reposer | | @pa
hurry | se dépêcher
wake+up woke woken waking | se réveiller | | @pa
get+up got got getting | se lever
go+out went gone | sortir | | e
leave left | partir | | e@pv
arrive | arriver | | e@pav
come+back came come | revenir | | e@pav
fall fell fallen | tomber | | en@pat
stop stopped | se arrêter | | @pv
win won won winning | gagner
disappear | disparaître | | n@pat
lie lied lied lying | mentir
pray | prier
breathe | respirer | | @pa
whisper | chuchoter"""
)
TRANSITIVE = _verbs(
    """see saw seen | voir | pktavnhucx | n@pa
watch | regarder | pavk | @pa
look+at | regarder | patcvnuh
look+for | chercher | pkatcvx | @pa
find found | trouver | tcfax | n
hear heard | entendre | pav | n@pa
listen+to | écouter | pk
love | aimer | pkafmdxn | sg
like | aimer | fmdxacn | sg
hate | détester | fmdapx | sg
prefer preferred | préférer | fmdcx | sg
admire | admirer | pkhn | s
eat ate eaten | manger | fm | @pa
drink drank drunk | boire | d | @pa
taste | goûter | fmd
prepare | préparer | m
cut cut cut cutting | couper | fmn
buy bought | acheter | tcfmdxvun
sell sold | vendre | tcfvu
want | vouloir | tfmdc | s
need | avoir+besoin:de | tfmdcx | s
have had | avoir | kacvtxi | s
own | posséder | vhti | s
carry | porter | trx
wear wore worn | porter | c
wash | laver | cvrf
clean | nettoyer | uov
break broke broken | casser | rw
repair | réparer | wvu
use | utiliser | w
lose lost | perdre | tcx | n
hide hid hidden hiding | cacher | tqx
steal stole stolen | voler | tvac
draw drew drawn | dessiner | anhvp
paint | peindre | hnou
build built | construire | h
photograph | photographier | pahn
open | ouvrir | o
close | fermer | o
read read read | lire | x
write wrote written writing | écrire | y
finish | finir | xq
translate | traduire | x
understand understood | comprendre | qpx | n
know knew known | connaître | pkh | s
recognise | reconnaître | pkc | n
meet met met meeting | rencontrer | pk | n
help | aider | pk
invite | inviter | pk
follow | suivre | pav | @pa
visit | visiter | h
kiss | embrasser | pk
call | appeler | pk
thank | remercier | pk
wait+for | attendre | pkv
greet | saluer | pk
forget forgot forgotten forgetting | oublier | xtqp | n
protect | protéger | pkan | @pa
feed fed | nourrir | a
catch caught | attraper | a | @pa
drive drove driven driving | conduire | v
take took taken taking | prendre | tv
plant | planter | n
water | arroser | n
choose chose chosen choosing | choisir | cxftv
receive | recevoir | y
explain | expliquer | q
discover | découvrir | qhn
answer | répondre:à | pk
phone | téléphoner:à | pk
obey | obéir:à | pk
talk+to | parler:à | pk
smile+at | sourire:à | pk
talk+about | parler:de | xqpk
laugh+at | se moquer:de | pk | g
take+care+of took taken taking | se occuper:de | pkan | g
punish | punir | p
fill | remplir | r
push | pousser | vu
touch | toucher | cat
count | compter | ac
accept | accepter | q
defend | défendre | pkq
trust | faire+confiance:à | pk | s
remember | se souvenir:de | xqpk | n
chase | poursuivre | av | @pa
bite bit bitten biting | mordre | p | @a
examine | examiner | taxq
correct | corriger | qx
describe | décrire | phnt
imagine | imaginer | q
observe | observer | panv | @pa
avoid | éviter | pka | @pa
surprise | surprendre | pk | n
congratulate | féliciter | pk
rent | louer | vh
move | déplacer | ur
decorate | décorer | hu"""
)
GIVING = _verbs(
    """give gave given giving | donner | tfmdxcan
send sent | envoyer | xt
show showed shown | montrer | txchn
sell sold | vendre | tcvf
lend lent | prêter | tvcx
offer | offrir | tfmdxc
bring brought | apporter | tfmdx
read read read | lire | x
write wrote written writing | écrire | y
explain | expliquer | q
return | rendre | tcx
promise | promettre | tf
throw threw thrown | lancer | t"""
)
GOING = _verbs(
    """go went gone | aller | | e@pa
come came come coming | venir | | e@pa
return | retourner | | e
hurry | se précipiter
go+back went gone | retourner | | e"""
)
STAYING = _verbs(
    """live | habiter | | s
work | travailler
sleep slept | dormir | | @pa
wait | attendre
stay | rester | | e@pa
play | jouer | | @pa
rest | se reposer | | @pa
sing sang sung | chanter
arrive | arriver | | e
eat ate eaten | manger | | @pa
hide hid hidden hiding | se cacher | | @pa
be was been | être | | s@pavt"""
)
SAYING = _verbs(  # … that …
    """say said | dire
think thought | penser | | s
believe | croire | | s
know knew known | savoir | | s
explain | expliquer
announce | annoncer
repeat | répéter
claim | affirmer
admit admitted | admettre | | n
understand understood | comprendre | | n
learn | apprendre | | n
notice | remarquer | | n
add | ajouter
see saw seen | voir | | n
imagine | imaginer
forget forgot forgotten forgetting | oublier | | n
discover | découvrir | | n"""
)
TELLING = _verbs(  # … someone that …
    """tell told | dire:à
remind | rappeler:à
promise | promettre:à
inform | informer
warn | prévenir
assure | assurer:à"""
)
WONDERING = _verbs(  # … whether, why, where, when …
    """know knew known | savoir | | s
wonder | se demander | | i
ask | demander
understand understood | comprendre | | n
explain | expliquer
forget forgot forgotten forgetting | oublier | | n
discover | découvrir | | n"""
)
WILLING = _verbs(  # … to do
    """want | vouloir | | s
hope | espérer | | s
like | aimer | | s
love | adorer | | s
prefer preferred | préférer | | s
try | essayer:de
decide | décider:de | | n
refuse | refuser:de
forget forgot forgotten forgetting | oublier:de | | n
promise | promettre:de
start | commencer:à
learn | apprendre:à
manage | réussir:à | | n
continue | continuer:à
need | avoir+besoin:de | | s
dare | oser | | n
hesitate | hésiter:à
agree | accepter:de | | n
know+how knew known | savoir | | s"""
)
ASKING = _verbs(  # … someone to do; objects is the French preposition before the person
    """ask | demander:de | à
tell told | dire:de | à
help | aider:à
invite | inviter:à
allow | permettre:de | à | n
force | obliger:à
advise | conseiller:de | à
encourage | encourager:à
order | ordonner:de | à
teach taught | apprendre:à | à"""
)
BE, HAVE, SEEM, BECOME, FEEL = _verbs(
    """be was been | être | | s
have had | avoir | | s
seem | sembler | | s
become became become becoming | devenir | | e
feel felt | se sentir | | s"""
)
BE_HUNGRY = Verb(BE.english, HAVE.french, stative=True, progressive=False)
BE_AFRAID = Verb(
    english.verb("be+afraid+of was been"),
    HAVE.french,
    "p",
    "apk",
    tail="peur",
    preposition="de",
    stative=True,
    progressive=False,
    generic=True,
)
CAN, MUST, SHOULD = _verbs("can could | pouvoir | | s\nmust | devoir | | s\nshould | devoir | | s")
SPEAK, LEARN, PLAY = _verbs("speak spoke spoken | parler\nlearn | apprendre\nplay | jouer")
RAIN, SNOW = _verbs("rain | pleuvoir\nsnow | neiger")

OFTEN = [("often", "souvent"), ("always", "toujours"), ("sometimes", "parfois"), ("rarely", "rarement")]
MANNER = [
    ("slowly", "lentement"), ("quickly", "rapidement"), ("quietly", "doucement"), ("patiently", "patiemment"),
    ("calmly", "calmement"), ("happily", "joyeusement"), ("sadly", "tristement"), ("here", "ici"),
    ("outside", "dehors"), ("everywhere", "partout"), ("carefully", "prudemment"), ("silently", "silencieusement"),
]  # fmt: skip
PAST_TIMES = [("yesterday", "hier"), ("last week", "la semaine dernière"), ("last night", "hier soir"),
              ("last year", "l'année dernière"), ("this morning", "ce matin"), ("last month", "le mois dernier"),
              ("last Monday", "lundi dernier"), ("last summer", "l'été dernier")]  # fmt: skip
PRESENT_TIMES = [("now", "maintenant"), ("today", "aujourd'hui")]
HABITS = [("every day", "tous les jours"), ("every morning", "chaque matin"), ("on Sundays", "le dimanche"),
          ("in the evening", "le soir"), ("every week", "chaque semaine"), ("at night", "la nuit"),
          ("in summer", "en été"), ("in winter", "en hiver"), ("on Mondays", "le lundi")]  # fmt: skip
FUTURE_TIMES = [("tomorrow", "demain"), ("next week", "la semaine prochaine"), ("soon", "bientôt"),
                ("tonight", "ce soir"), ("next year", "l'année prochaine"), ("next month", "le mois prochain"),
                ("later", "plus tard"), ("next Friday", "vendredi prochain")]  # fmt: skip
DEGREES = [("very", "très"), ("really", "vraiment"), ("too", "trop"), ("quite", "assez")]
NUMBERS = [("two", "deux"), ("three", "trois"), ("four", "quatre"), ("five", "cinq"), ("six", "six"), ("seven", "sept"),
           ("eight", "huit"), ("ten", "dix"), ("twelve", "douze"), ("twenty", "vingt")]  # fmt: skip
WHERE_ABOUTS = [
    ("on", "sur"),
    ("under", "sous"),
    ("behind", "derrière"),
    ("near", "près de"),
    ("in front of", "devant"),
]
GREETINGS = [("Hello", "Bonjour"), ("Goodbye", "Au revoir"), ("Thanks", "Merci"), ("Good evening", "Bonsoir"),
             ("Good night", "Bonne nuit"), ("See you tomorrow", "À demain"), ("Welcome", "Bienvenue"),
             ("Happy birthday", "Bon anniversaire"), ("Good luck", "Bonne chance"), ("Yes", "Oui"), ("No", "Non"),
             ("Perhaps", "Peut-être"), ("Of course", "Bien sûr")]  # fmt: skip
