"""The README of exported ONNX graphs: a program that uses them with only `onnxruntime` and `tokenizers`."""

from __future__ import annotations

from regard.base.numbers import with_article
from regard.runs.load import AnyRun
from regard.systems.classifier import Classifier

OPEN = """\
import json

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

facts = json.load(open("model.json"))
tokenizer = Tokenizer.from_file("tokenizer.json")
{source_tokenizer}
model = onnxruntime.InferenceSession("model.onnx")
"""

READ_SOURCE = """\
source = [*source_tokenizer.encode("{text}").ids, facts["eos"]]
source = {{"source": np.array([source]), "lengths": np.array([len(source)])}}
"""

LABEL = """\
(logits,) = model.run(None, source)
print(tokenizer.id_to_token(int(logits[0].argmax())))
"""

BEGIN_WITH_SOURCE = """\
begin = onnxruntime.InferenceSession("begin.onnx")
state = dict(zip([output.name for output in begin.get_outputs()], begin.run(None, source)))
tokens = [facts["eos"]]
"""

BEGIN = """\
shapes = facts["graphs"]["model"]["inputs"]
sizes = {"rows": 1, "past": 0}  # one text, not read yet
state = {
    name: np.zeros([sizes.get(size, size) for size in leaf["shape"]], leaf["type"])
    for name, leaf in shapes.items()
    if name not in ("tokens", "lengths")
}
tokens = [facts["eos"], *tokenizer.encode("The").ids]
"""

WRITE = """\
written = []
while len(written) < 30:
    given = {"tokens": np.array([tokens]), "lengths": np.array([len(tokens)]), **state}
    found = dict(zip([output.name for output in model.get_outputs()], model.run(None, given)))
    state |= {name.removeprefix("new."): leaf for name, leaf in found.items() if name != "logits"}
    logits = found["logits"][0, -1]
    logits[facts["never_written"]] = -np.inf
    tokens = [int(logits.argmax())]  # the most probable token, read alone by the next call
    if tokens == [facts["eos"]]:
        break
    written += tokens
print(tokenizer.decode(written))
"""


def example(run: AnyRun) -> str:
    """The example program: a translation, a label, or the rest of a line, by greedy decoding."""
    if run.source_tokenizer is None:
        return OPEN.replace("{source_tokenizer}\n", "") + BEGIN + WRITE
    same = run.source_tokenizer is run.tokenizer
    own = "source_tokenizer = " + ("tokenizer" if same else 'Tokenizer.from_file("tokenizer.source.json")')
    start = OPEN.replace("{source_tokenizer}", own)
    if isinstance(run.model, Classifier):
        return start + READ_SOURCE.format(text="A sentence to label.") + LABEL
    return start + READ_SOURCE.format(text="A sentence to translate.") + BEGIN_WITH_SOURCE + WRITE


def readme(run: AnyRun) -> str:
    begin = "- `begin.onnx`: a source in, the state before the first word out\n" if "begin.onnx" in example(run) else ""
    call = (
        "a source in, logits of the labels out"
        if isinstance(run.model, Classifier)
        else "tokens and a state in, logits and the new state out; one token at a time, or many"
    )
    return f"""# {with_article(run.recipe.system).capitalize()} as ONNX

Written by Regard. It needs `pip install onnxruntime tokenizers`, but neither Regard nor PyTorch.

{begin}- `model.onnx`: {call}
- `weights.bin`: the weights, which the graphs read from the same folder
- `model.json`: the inputs and outputs by name, with types and shapes. A size that is a word is free; `past` is the
  number of tokens that were read before, `rows` the number of texts at once
- `tokenizer.json`: from text to tokens and back

Padding is on the right: of each row the first `lengths` columns are real. The state `past.0.…` goes in under its
path and comes out as `new.past.0.…`.

```python
{example(run)}```
"""
