"""Library calls that are themselves the answer to an exercise.

They are found in the file's text, before it runs. The check reminds a learner of the task; a deliberately hidden call
is not found.
"""

from __future__ import annotations

import ast
from pathlib import Path

from regard.base.reading import read_whole
from regard.learn.exercises.exercise_list import MAX_ANSWER_BYTES, Exercise

# Packages that hold whole answers to several exercises.
PACKAGES = ("regard", "transformers", "sacrebleu", "nltk", "evaluate", "torchmetrics", "torcheval", "torchtext")
ATTENTION = ("scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward", "flex_attention")
# Names of PyTorch that are the answer to one exercise.
ANSWERS: dict[str, tuple[str, ...]] = {
    "rnn-step": ("RNN", "RNNCell", "rnn_tanh", "rnn_tanh_cell"),
    "lstm-gates": ("LSTM", "LSTMCell", "lstm", "lstm_cell"),
    "gru-gates": ("GRU", "GRUCell", "gru", "gru_cell"),
    "gradient-clipping": ("clip_grad_norm_", "clip_grad_norm", "clip_grads_with_norm_"),
    "causal-mask": ("generate_square_subsequent_mask", "causal_lower_right", "causal_upper_left"),
    "scaled-dot-product": ATTENTION,
    "multi-head": ("MultiheadAttention", "multi_head_attention_forward"),
    "cached-attention": ATTENTION,
    "layer-norm": ("layer_norm", "LayerNorm", "native_layer_norm", "group_norm", "GroupNorm", "native_group_norm"),
    "label-smoothing": ("label_smoothing",),  # an argument of cross_entropy
}


def library_call(path: Path, exercise: Exercise) -> str:
    """A sentence about the first such call in the file; empty if it has none."""
    nodes = list(ast.walk(ast.parse(read_whole(path, MAX_ANSWER_BYTES, foreign=True))))
    starred = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in nodes)
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in nodes:
        match node:
            case ast.Import(names=names):
                modules, reached = [alias.name for alias in names], []
            case ast.ImportFrom(module=module, names=names):
                modules, reached = [module or ""], [alias.name for alias in names]
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                modules, reached = [], [name]
            case ast.Name(id=name, ctx=ast.Load()) if starred and name not in own:
                modules, reached = [], [name]  # of `from torch.nn.functional import *`
            case ast.Call(func=ast.Attribute(attr="cross_entropy"), args=arguments) if len(arguments) > 7:
                modules, reached = [], ["label_smoothing"]  # the eighth
            case _:
                continue
        if libraries := [module for module in modules if module.split(".")[0] in PACKAGES]:
            return f"line {node.lineno} imports {libraries[0]}, which contains the answer: write it yourself"
        if answers := [name for name in reached if name in ANSWERS.get(exercise.name, ())]:
            return f"line {node.lineno} uses {answers[0]}, which is the answer: write it yourself"
    return ""
