"""`regard.export` and `regard.import_model`: the Python versions of `regard export` and `regard import`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from regard.base.arguments import checked
from regard.exchange import formats
from regard.exchange.parity import Parity
from regard.runs.load import AnyRun, load
from regard.runs.run import Run


@checked
def export(
    run: str | Path | Run, to: str, out: str | Path, *, options: Mapping[str, str] | None = None, check: bool = False
) -> Parity | None:
    """Export the model of a run to a format that other programs read.

    An error leaves no partial output behind, and no file is overwritten.

    Example:
        regard.export("runs/gpt", "gguf", "gpt.gguf", options={"quantization": "q8_0"}, check=True)

    Args:
        run: The folder of the run, or the run itself. The export uses the files in the folder, so it contains the best
            weights.
        to: The format: "huggingface", "ctranslate2", "onnx", "page", "gguf", "archive" or "arpa".
        out: The file or folder to write; it must not exist.
        options: Options of the format, such as {"quantization": "int8"} for ctranslate2.
        check: Also open the output in the target program and compare its results with Regard's.

    Returns:
        With `check`, a Parity: the program, the quantity compared, and the largest difference. Otherwise None.

    Raises:
        RegardError: If the format does not support this system or option, a package is missing, or `out` exists.
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    return formats.export(folder, to, Path(out), options=options, check=check)


@checked
def import_model(
    file: str | Path,
    *,
    run: str | Path | None = None,
    tokenizer: str | Path | None = None,
    precision: str = "fp32",
) -> AnyRun:
    """Convert another program's model into a run, and open it.

    Example:
        run = regard.import_model("gpt2", run="runs/gpt2")

    Args:
        file: An archive of a run, a Hugging Face folder (GPT-2, Llama, Mistral, Qwen2, Marian, Pegasus), a GGUF file
            (Llama, Qwen2, GPT-2), llama2.c's .bin file, or an .arpa file.
        run: The folder of the new run, which must not exist. Default: a folder in runs/ named after the file.
        tokenizer: For a model without a tokenizer: the tokenizer.json of a run, a SentencePiece .model, or the tok.bin
            of llama2.c. By default, the words of an .arpa file are separated by spaces.
        precision: "fp32", or "bf16" to store the weights and compute in 16 bits, which halves the memory.

    Returns:
        A LanguageRun, a TranslationRun or a ClassificationRun, depending on the model.

    Raises:
        RegardError: If Regard cannot read the file, or the run's folder exists.
    """
    folder, given = (None if path is None else Path(path) for path in (run, tokenizer))
    return load(formats.import_file(Path(file), folder, given, precision))
