"""`import`: turn another program's model into a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.cli.options import ARGUMENTS, OutputFolder, one_of_these


def import_run(
    file: Annotated[Path, Parameter(group=ARGUMENTS)],
    *,
    run: OutputFolder = None,
    tokenizer: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    precision: Annotated[str, one_of_these("fp32", "bf16")] = "fp32",
) -> None:
    """Import a model as a run: an archive, a Hugging Face folder (GPT-2, Llama, Mistral, Qwen2, Marian, Pegasus), a
    GGUF file (Llama, Qwen2, GPT-2), llama2.c's .bin file, or an .arpa file.

        regard import model.zip --run runs/from-a-colleague
        regard import gpt2/ --run runs/gpt2
        regard import SmolLM2-135M-Instruct.Q4_1.gguf --run runs/smollm2
        regard import stories260K.bin --tokenizer tok512.bin
        regard import news.arpa

    Parameters
    ----------
    file
        the model: a file or a folder
    run
        output folder [default: runs/NAME, named after the file]
    tokenizer
        for a model without a tokenizer: tokenizer.json of a run, a SentencePiece .model, or llama2.c's tok.bin
        [default for .arpa: words separated by spaces]
    precision
        precision of the weights and of the computation
    """
    from regard.exchange.formats import import_file

    print(import_file(file, run, tokenizer, precision))
