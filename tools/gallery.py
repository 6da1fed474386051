"""Trains the models that come with Regard again, each from the recipe in its folder, and writes them into the package.

    python tools/gallery.py                   all of them
    python tools/gallery.py gpt lstm          these
    python tools/gallery.py gpt --made DIR    pack DIR/gpt, which was trained before

A model keeps its recipe, its tokenizer, its best weights in half precision (n-grams: log P in steps of 1/32) and
run.json, which records under "gallery" the command, the score on the test split and, for a translator, ten test
sentences with their translation.
"""

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import regard
from regard.base.digests import with_digest
from regard.runs.store.facts import read_facts
from regard.runs.store.folder import TOKENIZER_FILES
from regard.runs.store.gallery import GALLERY
from regard.training.checkpoint import load_tensors, save_tensors

SENTENCES = 10


def command(*words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "regard", *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def pack(made: Path, folder: Path) -> None:
    """Write the trained run `made` as the gallery's model `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("recipe.toml", *TOKENIZER_FILES):
        if (made / name).exists() and made != folder:
            shutil.copyfile(made / name, folder / name)
    tensors, note = load_tensors(made / "model.safetensors")
    if "orders.0.keys" in tensors:  # log-probabilities of n-grams: with fewer digits they compress better
        tensors = {name: (one * 32).round() / 32 if one.is_floating_point() else one for name, one in tensors.items()}
    half = {name: one.half() if one.is_floating_point() else one for name, one in tensors.items()}
    save_tensors(folder / "model.safetensors", half, note)
    facts = read_facts(made) | {"platform": f"{platform.system()} {platform.machine()}"}
    write_facts(folder, facts)
    score = json.loads(command("evaluate", str(folder), "--json"))
    score = {key: value for key, value in score.items() if key not in ("seconds", "sentences_per_second")}
    about = {"command": f"python tools/gallery.py {folder.name}", "score": score}
    run = regard.load(folder)
    if isinstance(run, regard.TranslationRun):
        sources = [source for source, _ in run.pairs(None, "test")][:SENTENCES]
        about["translations"] = [[source, run.translate(source)] for source in sources]
    write_facts(folder, facts | {"gallery": about})


def write_facts(folder: Path, facts: dict) -> None:
    text = json.dumps(with_digest(facts), indent=2, ensure_ascii=False) + "\n"
    (folder / "run.json").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--made", type=Path, metavar="DIR")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.names or sorted(path.name for path in GALLERY.iterdir() if path.is_dir()):
        with tempfile.TemporaryDirectory() as scratch:
            made = (given.made or Path(scratch)) / name
            if given.made is None:
                command("train", str(GALLERY / name / "recipe.toml"), "--run", str(made))
            pack(made, GALLERY / name)
        print(name, read_facts(GALLERY / name)["gallery"]["score"])


if __name__ == "__main__":
    main()
