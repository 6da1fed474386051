"""`regard export` and `regard import`: a run in another program's format, and vice versa.

A format is one entry of FORMATS and one module, imported only when it is needed. The module has

    write(run, out, **options)          `out` does not exist yet: a file or folder of another name, which becomes OUT
    check(run, out, **options)          optional: the results of the format's own program, as a `Parity`
    write_beside(run, out)              optional: other files that belong to OUT; returns what to print about them
    read(file, run, tokenizer)          optional: a new run from such a file (`regard import`)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.base.errors import RegardError
from regard.base.locks import exclusive_name
from regard.base.numbers import with_article
from regard.base.reading import reading
from regard.base.settings import check_choice
from regard.base.writing import atomic_folder, atomic_write

if TYPE_CHECKING:
    from regard.exchange.parity import Parity
    from regard.runs.load import AnyRun


@dataclass(frozen=True)
class Format:
    module: str  # in this package
    what: str  # one line
    systems: tuple[str, ...] = ()  # the systems that it supports; empty: all
    networks: bool = False  # only neural systems, not ngram
    folder: bool = False  # the output: a folder, or one file
    options: Mapping[str, str] | None = None  # of `write`, each with a line of documentation
    opened: bool = True  # whether `write` takes an open run; otherwise its folder
    package: str = ""  # the package needed to write it, as pip names it; "" = none


FORMATS: dict[str, Format] = {
    "huggingface": Format(
        "huggingface",
        "a folder that transformers, vLLM and most other programs can load",
        ("gpt", "llama", "transformer"),
        folder=True,
        options={
            "license": "license on the model card, by its name on the Hub",
            "scores": "no = leave test scores off the card",
        },
    ),
    "ctranslate2": Format(
        "ctranslate2_model",
        "a folder for CTranslate2, which is fast on a CPU and supports 8-bit weights",
        ("transformer", "gpt"),
        folder=True,
        options={"quantization": "type of the weights: int8, int16, float16, …"},
        package="'regard[ctranslate2]'",
    ),
    "onnx": Format(
        "onnx_graphs",
        "a folder of ONNX graphs, for any neural system and any ONNX runtime",
        networks=True,
        folder=True,
        package="'regard[onnx]'",
    ),
    "page": Format(
        "page_file",
        "one HTML file that runs the model in any browser, offline",
        options={
            "weights": "fp32 (default), fp16 or int8",
            "license": "license to state on the page",
            "scores": "no = do not compute test scores",
            "embed": "yes = write a fragment that another page can include",
        },
    ),
    "gguf": Format(
        "gguf_file",
        "one file for llama.cpp and the programs built on it",
        ("gpt", "llama"),
        options={"quantization": "f32 (default), f16 or q8_0"},
        package="'regard[gguf]'",
    ),
    "archive": Format(
        "archive",
        "one file with the whole run, to copy to another machine",
        opened=False,
        options={"training": "no = leave out the files that only resume and --average need"},
    ),
    "arpa": Format("arpa_runs", "one file in the back-off format that every n-gram toolkit reads", ("ngram",)),
}


def export(
    folder: Path, to: str, out: Path, *, options: Mapping[str, str] | None = None, check: bool = False
) -> Parity | None:
    """Write the run's model as `out`. An error leaves no partial output, and no file is overwritten."""
    check_choice("--to", to, tuple(FORMATS))
    form, options = FORMATS[to], dict(options or {})
    for name in options:
        if name not in (form.options or {}):
            takes = ", ".join(f"--{known}" for known in form.options or {}) or "none"
            raise RegardError(f"--to {to} has no option --{name}; its options are: {takes}.")
    from regard.report.progress import say
    from regard.runs.store.facts import read_facts

    read_facts(folder)  # this error comes first: RUN and OUT may be in the wrong order
    if out.exists() or out.is_symlink():
        raise RegardError(f"{out} already exists; remove it or choose another name.")
    run = _open(folder, to) if form.opened else folder
    module = _module(form, to)
    if check and not hasattr(module, "check"):
        raise RegardError(f"--to {to} does not support --check: leave it out.")
    with exclusive_name(out), atomic_folder(out) if form.folder else atomic_write(out, new=True) as made:
        module.write(run, made, **options)
        note = module.write_beside(run, out) if hasattr(module, "write_beside") else ""
    if note:
        say(note)
    return module.check(run, out, **options) if check else None


def _open(folder: Path, to: str) -> AnyRun:
    from regard.runs.load import load  # and with it torch, which `regard --help` does without

    run = load(folder, device="cpu")
    if FORMATS[to].systems and run.recipe.system not in FORMATS[to].systems:
        raise RegardError(_other(to, run.recipe.system, folder))
    return run


def _other(to: str, system: str, folder: Path) -> str:
    takes = {
        name: form.systems or (() if form.networks and system == "ngram" else (system,))
        for name, form in FORMATS.items()
    }
    fitting = [name for name, systems in takes.items() if system in systems]
    instead = f"; choose one of {', '.join(fitting)}" if fitting else ""
    return f"--to {to} supports only {', '.join(FORMATS[to].systems)}, but {folder} is {with_article(system)}{instead}."


def _module(form: Format, to: str) -> Any:
    try:
        return import_module(f"regard.exchange.{form.module}")
    except ModuleNotFoundError as missing:
        if not form.package or (missing.name or "").startswith("regard"):
            raise
        raise RegardError(f"--to {to} needs the package {missing.name}: pip install {form.package}.") from None


# by a file's first bytes; for llama2.c by its name; any other file is read as ARPA
READERS = {b"PK\x03\x04": "archive", b"{": "mingpt_json", b"GGUF": "gguf_reading"}
PRECISE = ("huggingface", "gguf_reading", "llama2c_file")  # have --precision


def import_file(
    file: Path, run: Path | None = None, tokenizer_file: Path | None = None, precision: str = "fp32"
) -> Path:
    """Make a run from another program's model; the first bytes determine its format."""
    check_choice("--precision", precision, ("fp32", "bf16"))
    if file.is_dir():
        module = "huggingface"
    else:
        with reading(file) as stream:
            begin = stream.read(4)
        by_name = "llama2c_file" if file.suffix == ".bin" else "arpa_runs"
        module = next((name for mark, name in READERS.items() if begin.startswith(mark)), by_name)
    if precision != "fp32" and module not in PRECISE:
        raise RegardError(
            "--precision applies only to neural networks, and this file contains none: leave --precision out."
        )
    try:
        reader = import_module(f"regard.exchange.{module}").read
    except ModuleNotFoundError as missing:
        if missing.name != "gguf":
            raise
        raise RegardError(f"To read {file}, install gguf: pip install 'regard[gguf]'.") from None
    more = {"precision": precision} if module in PRECISE else {}
    made: Path = reader(file, run or Path("runs") / file.stem, tokenizer_file, **more)
    return made
