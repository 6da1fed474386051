"""A run as a folder that Hugging Face's `transformers` loads, and such folders as runs.

    gpt            GPT2LMHeadModel
    llama          LlamaForCausalLM; Qwen2ForCausalLM (model.bias qkv); also reads MistralForCausalLM
    transformer    MarianMTModel (model.norm post), PegasusForConditionalGeneration (model.norm pre)

config.json, generation_config.json, model.safetensors, the tokenizer and a model card. Writing needs no other package;
only the check imports `transformers`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.writing import write_text
from regard.decoding.beam import BEAM
from regard.decoding.translate import longest_translation
from regard.exchange import hf_gpt2, hf_llama, hf_seq2seq
from regard.exchange.foreign_folder import Config, ForeignWeights
from regard.exchange.hf_tokenizer import read_template, template_of, tokenizer_files, tokenizer_of
from regard.exchange.imported_run import recipe_of, write_run
from regard.exchange.marian_tokenizers import NO_ROW, Side, has_pair, read_pair
from regard.exchange.model_card import model_card
from regard.exchange.parity import Parity, texts, token_rows, without_parts
from regard.runs.load import AnyRun
from regard.runs.store.lock import check_free
from regard.runs.tasks.task import task_of
from regard.text.chat_template import FILE as CHAT_TEMPLATE
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.checkpoint import write_safetensors

SYSTEMS: dict[str, Any] = {module.SYSTEM: module for module in (hf_gpt2, hf_llama, hf_seq2seq)}
KINDS = {  # by config.json's model_type
    "gpt2": hf_gpt2,
    "llama": hf_llama,
    "mistral": hf_llama,
    "qwen2": hf_llama,
    "marian": hf_seq2seq,
    "pegasus": hf_seq2seq,
}
LACKING = {  # what another kind would need, by model_type
    "t5": "T5 adds learned relative-position biases to its attention scores, which Regard's transformer does not.",
    "mt5": "mT5 adds learned relative-position biases to its attention scores, which Regard's transformer does not.",
    "bart": "BART has learned positions and a layer norm on word vectors, which Regard's transformer does not.",
    "mbart": "mBART has learned positions and a layer norm on word vectors, which Regard's transformer does not.",
    "mixtral": "Mixtral routes each token to some of several feed-forwards; Regard's llama has only one.",
    "qwen3": "Qwen3 normalizes queries and keys, which Regard's llama does not.",
    "gemma": "Gemma scales its word vectors and norms differently from Regard's llama.",
    "gemma2": "Gemma 2 caps scores and uses a sliding window, which Regard's llama does not.",
    "phi3": "Phi-3 scales its rotary positions by a table of factors, which Regard's llama does not.",
}
WRITTEN = 32  # tokens of a text that is compared

# -- out ---------------------------------------------------------------------------------------------------------------


def write(run: AnyRun, out: Path, *, license: str = "unknown", scores: str = "yes") -> None:
    if scores not in ("yes", "no"):
        raise RegardError(f"--scores must be yes or no, not {scores!r}.")
    module, longest = SYSTEMS[run.recipe.system], _longest(run)
    config = module.config_of(run)
    tensors = module.as_huggingface(run.model, config)
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    write_safetensors(out / "model.safetensors", contiguous, {"format": "pt"})
    _write_json(out / "config.json", config)
    _write_json(out / "generation_config.json", _generation(run, longest))
    files = tokenizer_files(run.tokenizer, source=task_of(run).has_source, longest=longest)
    for name, content in files.items():
        write_text(out / name, content)
    if (run.folder / CHAT_TEMPLATE).exists():
        write_text(out / CHAT_TEMPLATE, read_template(run.folder / CHAT_TEMPLATE))
    write_text(out / "README.md", model_card(run, config["architectures"][0], license=license, scored=scores == "yes"))


def _longest(run: AnyRun) -> int:
    """The context length that the model was trained with."""
    return int(run.recipe.data.longest if task_of(run).has_source else run.recipe.model.context)


def _write_json(path: Path, values: dict[str, Any]) -> None:
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def _generation(run: AnyRun, longest: int) -> dict[str, Any]:
    """Regard's decoding settings that `transformers` also has: suppressed tokens, and the beam of a translator."""
    boundary = run.tokenizer.eos
    common: dict[str, Any] = dict.fromkeys(("eos_token_id", "pad_token_id"), boundary)
    common["bos_token_id"] = run.tokenizer.begin
    if run.forbidden:
        common["suppress_tokens"] = run.forbidden
    if not task_of(run).has_source:
        return common
    search = {"num_beams": BEAM.width, "length_penalty": BEAM.length_penalty, "early_stopping": False}
    return {**common, "decoder_start_token_id": boundary, "max_new_tokens": longest, **search}


# -- their program's opinion -------------------------------------------------------------------------------------------


@torch.no_grad()
def check(run: AnyRun, out: Path, **_: str) -> Parity:
    """Load the folder with `transformers`; compare logits on the same tokens, and greedy texts."""
    try:
        import transformers
    except ImportError:
        raise RegardError(f"{out} was written; to check it, install Transformers: pip install transformers.") from None
    translates = task_of(run).has_source
    kind = transformers.AutoModelForSeq2SeqLM if translates else transformers.AutoModelForCausalLM
    model, tokenizer = kind.from_pretrained(out).eval(), transformers.AutoTokenizer.from_pretrained(out)
    difference = _translator_difference(run, model) if translates else _language_difference(run, model)
    same = _greedy_texts(run, model, tokenizer)
    return Parity(
        system=run.recipe.system,
        format="huggingface",
        program=f"transformers {transformers.__version__} ({type(model).__name__})",
        compared="logits of 4 rows of 24 tokens",
        largest_difference=difference,
        same_text=f"{sum(same)} of {len(same)} greedy texts",
    )


def _language_difference(run: AnyRun, model: Any) -> float:
    tokens = torch.tensor([[run.tokenizer.begin, *row][: run.model.context] for row in token_rows(run)])
    return float((model(tokens).logits - run.model(tokens)[0]).abs().max())


def _translator_difference(run: Any, model: Any) -> float:
    """The difference over sources of different lengths, which includes padding."""
    sources, targets = token_rows(run, source=True), token_rows(run)
    lengths = torch.tensor([len(row) - number + 1 for number, row in enumerate(sources)])
    eos = run.tokenizer.eos
    source = torch.tensor([[*row[: n - 1], eos, *[eos] * (len(row) + 1 - n)] for row, n in zip(sources, lengths)])
    target = torch.tensor([[eos, *row] for row in targets])
    mask = (torch.arange(source.size(1)) < lengths[:, None]).long()
    theirs = model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    return float((theirs - run.model(target, run.model.begin(source, lengths))[0]).abs().max())


def _theirs(model: Any, tokenizer: Any, text: str, most: int) -> str:
    ids = model.generate(**tokenizer(text, return_tensors="pt"), do_sample=False, num_beams=1, max_new_tokens=most)
    return without_parts(str(tokenizer.decode(ids[0], skip_special_tokens=True)))


def _greedy_texts(run: Any, model: Any, tokenizer: Any) -> list[bool]:
    """For each text, whether both generate the same translation, or the same continuation of its first half."""
    same = []
    for line in filter(str.strip, texts(run)):
        if task_of(run).has_source:
            most = longest_translation(len(run.source_tokenizer.encode(line)))
            (hypotheses,) = run.translations([line], beam=1, length_penalty=0.0)
            same.append(_theirs(model, tokenizer, line, most) == hypotheses[0].text)
            continue
        prompt = line[: max(1, len(line) // 2)].rstrip()
        most = min(WRITTEN, run.recipe.model.context - 1 - len(run.tokenizer.encode(prompt)))
        if most > 0:
            ours = run.generate(prompt, max_tokens=most, temperature=0, lines=1).removesuffix("\n")
            same.append(_theirs(model, tokenizer, prompt, most) == ours)
    return same


# -- in ----------------------------------------------------------------------------------------------------------------


BY_TOKEN = ("embedding.table.weight", "output.weight", "output.bias")  # a row for each token of the target
BY_SOURCE_TOKEN = "source_embedding.table.weight"
UNWRITTEN = -1e9  # the logit of a token that has no row in their table


def read(folder: Path, run: Path, tokenizer_file: Path | None = None, *, precision: str = "fp32") -> Path:
    """Make a run from a folder that `transformers` wrote."""
    check_free(run)
    if not (folder / "config.json").exists():
        what = "already a run" if (folder / "run.json").exists() else "a folder without config.json"
        raise RegardError(f"{folder} is {what}: Regard imports Hugging Face folders, archives and .arpa files.")
    config = Config.of_folder(folder)
    kind = config.values.get("model_type")
    if not isinstance(kind, str) or kind not in KINDS:
        what = f"a {kind} folder" if isinstance(kind, str) else "not the folder of a language model or translator"
        lacks = f" {LACKING[kind]}" if isinstance(kind, str) and kind in LACKING else ""
        raise RegardError(f"{folder} is {what!s:.60}; Regard imports {', '.join(KINDS)}.{lacks}")
    module: Any = KINDS[kind]
    settings, vocabulary = module.settings_in(config), config.number("vocab_size")
    source: Side | None = None
    tokenizer: Tokenizer
    if module is hf_seq2seq and tokenizer_file is None and has_pair(folder):
        source, target = read_pair(folder, config, vocabulary)
        tokenizer, order = target.tokenizer, target.rows
        settings |= {"shared": False, "tied": False, "output_bias": True}
    else:
        tokenizer, order = tokenizer_of(folder, config, tokenizer_file, vocabulary)
        if len(order) != vocabulary or sorted(order) != list(range(vocabulary)):
            raise RegardError(
                f"The tokenizer of {folder} has {len(order)} tokens, but the model has {vocabulary}; they must match."
            )
    recipe = recipe_of(module.SYSTEM, settings, tokenizer, joint=source is None)
    state = module.state_in(config, ForeignWeights.of_folder(folder, module.PREFIX), recipe.model, vocabulary)
    unknown = order[tokenizer.unk] if tokenizer.unk is not None else 0
    for name in BY_TOKEN:
        if name in state:
            state[name] = _rows(state[name], order, unknown)
    if source is not None:
        state["output.bias"][[row == NO_ROW for row in order]] = UNWRITTEN
    if BY_SOURCE_TOKEN in state:
        rows = order if source is None else source.rows
        state[BY_SOURCE_TOKEN] = _rows(state[BY_SOURCE_TOKEN], rows, unknown)
    return write_run(
        run,
        recipe,
        tokenizer,
        state,
        folder,
        source_tokenizer=None if source is None else source.tokenizer,
        template=template_of(folder),
        precision=precision,
        what=f"a {kind} model",
    )


def _rows(table: Tensor, rows: list[int], unknown: int) -> Tensor:
    return table[torch.tensor([unknown if row == NO_ROW else row for row in rows])]
