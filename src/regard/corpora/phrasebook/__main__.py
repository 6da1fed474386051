"""`python -m regard.corpora.phrasebook 6000 > pairs.tsv` writes English⇥French sentence pairs, always the same ones."""

import sys

from regard.corpora.phrasebook import make_pairs

if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    for pair in make_pairs(number, seed=1):
        print(f"{pair.source}\t{pair.target}")
