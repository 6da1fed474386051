"""The commands of the cheat sheet and the lectures' pages, made quick enough for a test, and the files they use."""

import re

from regard.claims.all_claims import get_claim
from regard.corpora.phrasebook import make_pairs

QUICK = ["--training.steps", "6", "--training.batch-tokens", "512"]  # minutes for a reader, moments here
SMALLER = {
    "small": "tiny", "medium": "tiny", "60s": "1s", "120s": "1s", "2M": "2k", "3": "1",
    "phrasebook": "pairs.tsv", "pyref": "my.txt",
}  # fmt: skip


def commands_in(markdown):
    """The lines of its shell blocks that call regard."""
    shell = "".join(re.findall(r"```bash\n(.*?)```", markdown, flags=re.S))
    lines = [line.split("  #")[0].strip() for line in shell.splitlines()]
    return [line for line in lines if line.startswith("regard ")]


def shortened(words):
    if words[0] == "demo":
        return [*words, "--budget", "1s"]
    if words[0] == "claims" and "--list" not in words:  # the cheapest stand for all and for one that learns
        named = [get_claim(word).name for word in words[1:] if not word.startswith("-")]
        return ["claims", "softmax-gradient" if named else "same-answer", "--quick"]
    words = [SMALLER.get(word, word) for word in words]
    if words[0] == "evaluate" and words[1].startswith("gallery/"):  # test_gallery.py scores them on their own texts
        return [*words, "--data", "few.tsv"]
    if words[0] == "compare":  # of the whole ladder a rung, of three translators one
        words = [word for word in words if word not in ("bahdanau", "transformer")]
        words += ["rnn"] if words[1] == "--data" else []
        words += [] if "--seeds" in words else ["--seeds", "1"]
        return [*words, "--size", "tiny", "--training.batch-tokens", "512"]
    return [*words, *QUICK] if words[:1] == ["train"] and words[1] != "ngram" else words


def folder_of_examples(folder, text_file):
    """my.txt, new.txt, lines.txt, pairs.tsv, few.tsv, in.txt and labels.tsv, as a reader would have them."""
    (folder / "my.txt").write_text(text_file.read_text())
    (folder / "new.txt").write_text(text_file.read_text().replace("cat", "fish"))
    (folder / "lines.txt").write_text("The cat sees the house.\nA bird likes bread.\n")
    pairs = list(make_pairs(400, seed=2, longest=8))
    (folder / "pairs.tsv").write_text("".join(f"{p.source}\t{p.target}\n" for p in pairs), "utf-8")
    (folder / "few.tsv").write_text("".join(f"{p.source}\t{p.target}\n" for p in pairs[:40]), "utf-8")
    (folder / "in.txt").write_text("".join(f"{p.source}\n" for p in pairs[:3]), "utf-8")
    labels = [f"{p.source}\ten\n{p.target}\tfr\n" for p in pairs]
    (folder / "labels.tsv").write_text("".join(labels), "utf-8")
    return folder
