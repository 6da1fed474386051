"""`doctor`: report on this machine, and clean the cache."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.base.numbers import format_bytes, pluralize
from regard.base.settings import check_choice, check_range
from regard.cli.completion import choices
from regard.cli.options import Device, Json
from regard.cli.printing import agreed, print_facts, print_prose

PARTS = {  # of the cache folder
    "tokens": "tokenized texts and pairs, vocabularies, splits, overlaps and digests; rebuilt when needed",
    "data": "corpora downloaded by `regard data fetch`",
    "phrasebook": "pairs from the built-in grammar; rebuilt when needed",
    "kernels": "code compiled and tuned for this GPU; rebuilt when needed",
    "lists": "data that Python programs passed as lists; their runs need it to resume",
    "back-translation": "back-translated sentences; rebuilt when needed",
    "ctranslate2": "models converted for `translate --engine ctranslate2`; rebuilt when needed",
    "claims": "models and results of `regard claims`; rebuilt when needed",
    "own-code.txt": "approvals of your own code; if you delete this file, name that code again to approve it",
}
CLEARED = tuple(name for name in PARTS if "." not in name)
PRUNED = (".npy", ".pairs", ".tokenizer", ".overlap", ".split", ".unseen", ".digest")  # of the tokens
PACKAGES = [  # that Regard can do without: package, what it is for, how it is installed
    ("pyarrow", "corpora in Parquet and Arrow", 'pip install "regard[data]"'),
    ("backports.zstd", "files that end in .zst", 'pip install "regard[data]"'),
    ("mecab-python3", "word-level BLEU for Japanese", 'pip install "regard[ja]"'),
    ("mecab-ko", "word-level BLEU for Korean", 'pip install "regard[ko]"'),
    ("tensorboard", "`train --track tensorboard`", 'pip install "regard[tensorboard]"'),
    ("onnxruntime", "`export --to onnx`", 'pip install "regard[onnx]"'),
    (
        "ctranslate2",
        "`export --to ctranslate2` and `translate --engine ctranslate2`",
        'pip install "regard[ctranslate2]"',
    ),
    ("submitit", "`compare --on slurm`", 'pip install "regard[slurm]"'),
    ("ray", "`compare --on ray`", 'pip install "regard[ray]"'),
    ("matplotlib", "run.history.plot()", "pip install matplotlib"),
    ("triton", "optimized implementations on an NVIDIA GPU", "comes with the CUDA build of PyTorch on Linux"),
    ("gguf", "`export --to gguf`", 'pip install "regard[gguf]"'),
    ("llguidance", "`generate --regex`, `--json-schema`, `--choice`", 'pip install "regard[constrain]"'),
    ("mlflow", "`train --track mlflow`", 'pip install "regard[mlflow]"'),
    ("transformers", "`export --to huggingface --check`; a peer in `regard bench`", "pip install transformers"),
    ("xllamacpp", "`export --to gguf --check`", "pip install xllamacpp"),
    ("kenlm", "`export --to arpa --check`; a peer in `regard bench`", "pip install kenlm"),
]


def doctor(
    *,
    device: Annotated[Device, Parameter(help="list the optimized implementations for this device")] = "auto",
    prune: Annotated[int | None, Parameter(metavar="DAYS")] = None,
    clear: Annotated[str, Parameter(metavar="PART", completer=choices(*CLEARED))] = "",
    yes: bool = False,
    json: Json = False,
) -> None:
    """Report on this machine: versions, memory, GPUs, the cache, optional packages and optimized implementations.

        regard doctor
        regard doctor --prune 30
        regard doctor --clear claims

    Parameters
    ----------
    prune
        first delete cached tokens and vocabularies older than this many days; Regard rebuilds them when needed
    clear
        first delete this part of the cache, after confirmation: tokens, data, phrasebook, kernels, lists,
        back-translation, ctranslate2 or claims
    yes
        with --clear: do not ask for confirmation
    """
    from regard.base.cache import cache_folder
    from regard.report.progress import say
    from regard.report.table import print_json

    if prune is not None:
        check_range("--prune", prune, 0)
        say(_prune(cache_folder() / "tokens", prune))
    if clear:
        check_choice("--clear", clear, CLEARED)
        say(_clear(cache_folder() / clear, yes))
    facts = {
        "machine": _machine(),
        "cache": {"folder": str(cache_folder()), "parts": list(_cache(cache_folder()))},
        "packages": list(_packages()),
        "device": device,
        "faster_code": [],
    }
    if "threads" in facts["machine"]:  # torch can be loaded
        facts |= _faster_code(device)
    if json:
        print_json(facts)
    else:
        _print(facts)


def _machine() -> dict[str, Any]:
    from regard import __version__

    facts: dict[str, Any] = {
        "regard": __version__,
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "platform": platform.platform(),
    }
    try:
        import torch

        from regard.base.device import cores, device_memory
    except (ImportError, OSError) as error:  # what a doctor is called for
        return facts | {"torch": f"cannot be loaded: {error}"}
    facts |= {
        "torch": torch.__version__,
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "memory_bytes": device_memory(torch.device("cpu")),
        "gpus": [],
    }
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        capability = ".".join(map(str, torch.cuda.get_device_capability(number)))
        found = {"name": torch.cuda.get_device_name(number), "capability": capability}
        facts["gpus"].append(found | {"memory_bytes": total, "free_bytes": free})
    return facts


def _cache(folder: Path) -> Iterator[dict[str, Any]]:
    """The contents of the cache, with their sizes."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        files = [path] if path.is_file() else [found for found in path.rglob("*") if found.is_file()]
        size = sum(_size(file) for file in files)
        yield {"part": path.name, "files": len(files), "bytes": size, "about": PARTS.get(path.name, "")}


def _size(file: Path) -> int:
    with suppress(OSError):  # it is gone by now
        return file.stat().st_size
    return 0


def _own_names(part: str) -> re.Pattern[str]:
    """The paths of the files that Regard writes into a part of the cache; $REGARD_CACHE may hold other files, too."""
    from regard.corpora.downloads import CATALOGUE
    from regard.runs.store.remove import OWN_FILES, OWN_FOLDERS

    fetched = [rf"\.{name}\.lock" for name in map(re.escape, CATALOGUE)]
    for name, download in CATALOGUE.items():
        fetched += [rf"{re.escape(f'{name}/{file.name}')}(\.sha256)?" for file in download.files]
    run = [*map(re.escape, (*OWN_FILES, "run.json", "report.html", "done.json"))]
    run += [f"{folder}/{name}" for folder, name in OWN_FOLDERS.items()]
    patterns = {
        "tokens": [
            r"[0-9a-f]{32}\.(npy|json|lock|part|part\.json)",
            r"[0-9a-f]{32}\.(pairs|tokenizer|overlap|split|unseen|digest)",
            r"\.[0-9a-f]{32}\.(pairs|tokenizer|overlap|split|unseen|digest)\.lock",
        ],
        "data": fetched,
        "phrasebook": [r"\d+-\d+-[0-9a-f]{16}\.json", r"\.\d+-\d+-[0-9a-f]{16}\.json\.lock"],
        "kernels": [r"[0-9a-f]{32}\.(cubin|json)", r"\.[0-9a-f]{32}\.(cubin|json)\.lock"],
        "lists": [r"lines-[0-9a-f]{12}\.txt", r"pairs-[0-9a-f]{12}\.jsonl"],
        "back-translation": [r"[0-9a-f]{32}\.tsv"],
        "ctranslate2": [r"\.lock", r"[0-9a-f]{32}/(config\.json|model\.bin|\w+_vocabulary\.(json|txt))"],
        "claims": [
            r"results/[\w.-]+-[0-9a-f]{16}\.json",
            r"data/[\w.-]+-[0-9a-f]{12}/\w+\.(tsv|txt)",
            r"models/\.[\w-]+-[0-9a-f]{16}\.lock",
            rf"models/[\w-]+-[0-9a-f]{{16}}/({'|'.join(run)})",
        ],
    }
    return re.compile("|".join(patterns[part]))


def _own_and_other(folder: Path) -> tuple[list[Path], list[Path]]:
    """Files of a part of the cache: Regard's, and all others with every link, which is not followed."""
    from regard.base.writing import is_partial

    names = _own_names(folder.name)
    own: list[Path] = []
    other: list[Path] = []
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in sorted([*folders, *files])):
            parts = path.relative_to(folder).parts
            whole = "/".join(part[1 : -len(".01234567.part")] if is_partial(part) else part for part in parts)
            if path.is_symlink():
                other.append(path)
            elif not path.is_dir():
                (own if path.is_file() and names.fullmatch(whole) else other).append(path)
    return own, other


def _left(other: list[Path]) -> str:
    if not other:
        return ""
    named = ", ".join(map(str, other[:5])) + (", …" if len(other) > 5 else "")
    return f" Kept files that Regard did not write: {named}."


def _prune(folder: Path, days: int) -> str:
    """Delete old token files; a training that reads one keeps what it has open."""
    texts = size = 0
    own, other = _own_and_other(folder)
    for tokens in own:
        with suppress(OSError):  # gone already, or open on a system that does not delete such files
            if tokens.suffix not in PRUNED or tokens.stat().st_mtime > time.time() - days * 86_400:
                continue
            bytes_here = tokens.stat().st_size
            tokens.unlink()
            if tokens.suffix == ".npy":
                tokens.with_suffix(".json").unlink(missing_ok=True)
            texts, size = texts + (tokens.suffix in (".npy", ".pairs")), size + bytes_here
    said = (
        f"Deleted the tokens of {pluralize(texts, 'text')} older than {pluralize(days, 'day')}, {format_bytes(size)}."
    )
    return said + _left(other)


def _clear(folder: Path, yes: bool) -> str:
    """Delete the files Regard wrote to one part of the cache; symbolic links are left in place."""
    if not os.path.lexists(folder):
        return f"{folder} does not exist, so there is nothing to delete."
    if folder.is_symlink():
        raise RegardError(f"{folder} is a symbolic link, which Regard does not follow: delete its target yourself.")
    own, other = _own_and_other(folder)
    size = f"{pluralize(len(own), 'file')}, {format_bytes(sum(map(_size, own)))}"
    if not agreed(f"Delete {folder} ({size}: {PARTS[folder.name]})?", yes):
        return "Nothing was deleted."
    for file in own:
        file.unlink(missing_ok=True)
    made = {parent for file in own for parent in file.parents if parent.is_relative_to(folder)}
    for path in sorted({folder, *made}, reverse=True):  # the inner ones first
        with suppress(OSError):  # something is left in it
            path.rmdir()
    return f"Deleted {folder}: {size}.{_left(other)}"


def _packages() -> Iterator[dict[str, Any]]:
    for name, use, install in PACKAGES:
        if name == "backports.zstd" and sys.version_info >= (3, 14):
            continue  # Python has it
        try:
            here: str | None = metadata.version(name)
        except metadata.PackageNotFoundError:
            here = None
        yield {"package": name, "for": use, "version": here, "install": None if here else install}


def _faster_code(device: str) -> dict[str, Any]:
    from regard.base.device import pick_device
    from regard.runs.speed import on_this_machine

    where = pick_device(device)
    rows = [
        {"name": row.name, "instead_of": row.stands_in_for.replace(":", "."), "runs": why is None, "why_not": why}
        for row, why in on_this_machine(where)
    ]
    return {"device": str(where), "faster_code": rows}


def _print(facts: dict[str, Any]) -> None:
    from regard.report.table import print_table

    machine = dict(facts["machine"])
    gpus = machine.pop("gpus", [])
    if "memory_bytes" in machine:
        machine["memory"] = format_bytes(machine.pop("memory_bytes"))
        machine["threads"] = f"{machine['threads']} ({_threads_from()})"
        machine["gpu"] = "none that PyTorch can use" if not gpus else ""
    for number, gpu in enumerate(gpus):
        memory = f"{format_bytes(gpu['memory_bytes'])}, {format_bytes(gpu['free_bytes'])} free"
        machine["gpu" if len(gpus) == 1 else f"gpu {number}"] = f"{gpu['name']} ({gpu['capability']}): {memory}"
    print_facts({name: value for name, value in machine.items() if value != ""}, False)

    cache = facts["cache"]
    print()
    rows = [part | {"bytes": format_bytes(part["bytes"])} for part in cache["parts"]]
    if rows:
        print_table(rows, {"part": "in the cache", "files": "files", "bytes": "size", "about": "contents"})
    print_prose(
        f"The cache folder is {cache['folder']}; set REGARD_CACHE to use another. `regard doctor --prune 30` deletes "
        "tokens and vocabularies older than 30 days; `regard doctor --clear claims` deletes a whole part, "
        "after confirmation."
    )

    print()
    headings = {"package": "optional package", "version": "version", "for": "for", "install": "how to install it"}
    print_table(facts["packages"], headings)

    if "threads" not in facts["machine"]:
        return
    print()
    if not facts["faster_code"]:
        print_prose("The package regard.fast is missing, so everything runs on the reference implementation.")
        return
    rows = [{**row, "runs": "yes" if row["runs"] else "no"} for row in facts["faster_code"]]
    headings = {"name": f"optimized on {facts['device']}", "runs": "runs", "instead_of": "instead of"}
    print_table(rows, headings | {"why_not": "why not"})
    print_prose("Everything else runs on the reference implementation.")


def _threads_from() -> str:
    chosen = os.environ.get("OMP_NUM_THREADS")
    return (
        f"OMP_NUM_THREADS is {chosen}" if chosen else "PyTorch's choice; training.threads or OMP_NUM_THREADS changes it"
    )
