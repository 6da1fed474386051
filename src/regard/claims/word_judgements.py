"""How similar people find two words, from 0 to 10: means of the 13 to 16 judges of WordSim-353.

Finkelstein et al. 2002, Placing search in context. Of its 353 pairs these are the ones whose two words both occur at
least 100 times in the training text of WikiText-2, lower-cased, except four that also do and are missing (love sex,
media gain, governor interview, Japanese American). They mean relatedness as well as
similarity: judges put *planet* and *star* together, and *game* and *victory*.
"""

from __future__ import annotations

_WRITTEN = """
book paper 7.46; television radio 6.77; media radio 7.42; bank money 8.12; wood forest 7.73; king queen 8.58;
movie star 7.38; movie critic 6.73; baby mother 7.85; food fruit 7.52; journey car 5.85; coast hill 4.38; coast
forest 3.15; money property 7.57; money operation 3.31; planet star 8.45; planet sun 8.02; planet space 7.92;
planet people 5.75; cup food 5.00; energy secretary 1.81; news report 8.16; image surface 4.56; computer news
4.47; territory surface 5.34; war troops 8.13; record number 6.31; century year 7.59; century nation 3.16;
minister party 6.63; peace plan 4.75; attempt peace 4.25; school center 3.44; hundred percent 7.38; life death
7.88; life term 4.50; travel activity 5.00; problem airport 2.38; car flight 4.94; month hotel 1.81; type kind
8.97; street place 6.44; street children 4.94; five month 3.38; report gain 3.63; baseball season 5.97; game
victory 7.03; game team 7.69; game series 6.19; game defeat 6.97; game round 5.97; seven series 3.56; start year
4.06; start match 4.47; championship tournament 8.36; day summer 3.94; summer nature 5.63; nature man 6.25; man
woman 8.30; man governor 5.25; opera performance 6.88; focus life 4.06; production crew 6.25; television film
7.72; population development 3.75; family planning 6.25; opera industry 2.63; development issue 3.97; experience
music 3.47; music project 3.63; glass metal 5.56; space world 6.53; governor office 6.34
"""
JUDGED: dict[tuple[str, str], float] = {
    (one, other): float(judged) for one, other, judged in map(str.split, _WRITTEN.split(";"))
}
