"""Which parts of a model each setting reaches: a setting that one of several places ignores is noticed.

Of every setting another value is tried. What changes is compared with tests/golden/setting_reach.json: modules that
are another class, have other plain attributes, shapes or first weights; and with the same weights, the logits and the
training loss. `python tests/unit/systems/test_notices_settings.py` writes the file anew.
"""

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest
import torch

from regard.base.errors import RegardError
from regard.systems.catalogue import SYSTEMS, load_class, load_module
from regard.systems.sizes import sizes_of

GOLDEN = Path(__file__).parents[2] / "golden" / "setting_reach.json"
V, COLUMNS = 13, 6
BASE = {  # small, and with everything at work that a setting may change
    "rnn": {"layers": 2, "width": 8},
    "lstm": {"layers": 2, "width": 8, "dropout": 0.1},
    "gru": {"layers": 2, "width": 8},
    "nnlm": {"order": 4, "width": 8, "embedding": 6},
    "dan": {"layers": 2, "width": 8},
    "self-attention": {"width": 8, "context": 12},
    "gpt": {"layers": 2, "width": 8, "heads": 2, "context": 12},
    "linear-attention": {"layers": 2, "width": 8, "heads": 2, "context": 12},
    "mingru": {"layers": 2, "width": 8},
    "llama": {"layers": 2, "width": 16, "heads": 4, "key_value_heads": 2, "context": 12},
    "seq2seq": {"layers": 2, "width": 8, "embedding": 6},
    "bahdanau": {"layers": 2, "width": 8, "embedding": 6},
    "transformer": {"layers": 2, "width": 8, "heads": 2, "feedforward": 12, "context": 12},
    "classifier": {"layers": 2, "width": 8, "heads": 2, "encoder": "transformer"},
}
ALSO = {  # settings that show themselves only beside others
    "self-attention": [{"score": "gaussian"}, {"position": "learned"}],
    "lstm": [{"variational": True}],
    "nnlm": [{"embedding": 8}],
    "gpt": [{"position": "learned", "tied": False}, {"norm": "post"}],
    "linear-attention": [{"feature": "gaussian"}, {"position": "learned", "tied": False}],
    "bahdanau": [{"feed": False}, {"score": "gaussian"}],
    "classifier": [{"encoder": "lstm"}, {"encoder": "dan"}, {"encoder": "self-attention"}],
    "llama": [{"stretch": "linear"}],
    "transformer": [{"position": "learned", "tied": False}, {"norm": "post"}],
}
NAMES = [system.name for system in SYSTEMS if system.trained == "gradient"]


def others(field, value):
    """Other values of a setting, within its bounds."""
    if field.metadata.get("choices"):
        return [choice for choice in field.metadata["choices"] if choice != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [2 * value] if value > 1 else [value + 1, value + 2]
    return [2 * value] if value >= 1 else [value / 2 + 0.25] if value >= 0 else [0.25]


def made(system, settings):
    torch.manual_seed(0)
    return load_class(system)(V, load_module(system).Settings(**settings))


def parts(model):
    """{path: its class, plain attributes and shapes}."""
    found = {}
    for path, module in model.named_modules():
        plain = {
            name: _plain(value)
            for name, value in vars(module).items()
            if not name.startswith("_") and name not in ("training", "settings")
        }
        own = {name: tuple(weight.shape) for name, weight in module.named_parameters(recurse=False)}
        found[path or "model"] = (type(module).__name__, plain, own)
    return found


def _plain(value):
    if isinstance(value, int | float | str | bool | type(None)):
        return value
    if hasattr(value, "__dict__") and not callable(value):
        return type(value).__name__, {name: _plain(part) for name, part in vars(value).items()}
    inside = {name: _plain(part) for name, part in getattr(value, "__dict__", {}).items() if name[0] != "_"}
    return getattr(value, "__name__", type(value).__name__), inside


def passes(model):
    """Logits in eval(), and the loss in training with the same random numbers."""
    torch.manual_seed(1)
    tokens, targets, source = (torch.randint(1, V, (3, COLUMNS)) for _ in range(3))
    columns = 1 if type(model).__name__ == "Classifier" else COLUMNS
    tokens, targets = tokens[:, :columns], targets[:, :columns]
    start = model.begin(source) if hasattr(model, "encode") else None
    with torch.no_grad():
        logits = model.eval()(tokens, start)[0]
        model.train()
        start = model.begin(source) if hasattr(model, "encode") else None
        return logits, model.loss(tokens, targets, start)[0]


def reach(system, settings, name, value):
    """What another value of one setting changes."""
    try:
        before, after = made(system, settings), made(system, {**settings, name: value})
    except RegardError:
        return ["refused"]
    one, other = parts(before), parts(after)
    changed = [path for path in {**one, **other} if one.get(path) != other.get(path)]
    if [weight.shape for weight in before.parameters()] == [weight.shape for weight in after.parameters()]:
        pairs = zip(before.named_parameters(), after.parameters(), strict=True)
        changed += [f"first {path}" for (path, a), b in pairs if not torch.equal(a, b)]
        one, other = ({name: held.shape for name, held in model.state_dict().items()} for model in (before, after))
        if one == other:
            after.load_state_dict(before.state_dict())
            names = ("logits", "training loss")
            found = zip(names, passes(before), passes(after), strict=True)
            changed += [name for name, a, b in found if a.shape != b.shape or not torch.equal(a, b)]
    return folded(changed)


def folded(paths):
    """layers.0.attention and layers.1.attention become layers.*.attention; one of them alone stays."""
    both = {path for path in paths if path.replace("s.0", "s.1", 1) in paths and path.replace("s.1", "s.0", 1) in paths}
    short = [re.sub(r"s\.[01]\b", "s.*", path, count=1) if path in both else path for path in paths]
    return list(dict.fromkeys(short))


def reached(system):
    """{setting=value: what changes}, of every setting."""
    found = {}
    for more in ({}, *ALSO.get(system, [])):
        settings = {**sizes_of(system).of("tiny"), **BASE[system], **more}
        chosen = load_module(system).Settings(**settings)
        where = "".join(f" with {key}={value}" for key, value in more.items())
        for field in dataclasses.fields(chosen):
            for value in others(field, getattr(chosen, field.name)):
                found[f"{field.name}={value}{where}"] = reach(system, settings, field.name, value)
    return found


@pytest.mark.parametrize("system", NAMES)
def test_each_setting_reaches_what_it_names(system):
    found, known = reached(system), json.loads(GOLDEN.read_text(encoding="utf-8"))[system]
    assert found.keys() == known.keys()
    for setting, changed in found.items():
        assert changed == known[setting], setting


@pytest.mark.parametrize("system", NAMES)
def test_each_setting_does_something(system):
    """Whatever the file says."""
    by_name = {}
    for setting, changed in json.loads(GOLDEN.read_text(encoding="utf-8"))[system].items():
        by_name.setdefault(setting.partition("=")[0], []).append(changed)
    for name, found in by_name.items():
        if (system, name) == ("llama", "context"):  # rotations need no table: it only cuts the text for training
            continue
        assert any(changed not in ([], ["refused"]) for changed in found), name


@pytest.mark.parametrize("system", [system.name for system in SYSTEMS])
def test_the_default_of_every_setting_is_within_its_bounds(system):
    """Sizes set most of them, so that a wrong default shows itself to nobody but who leaves the size out."""
    module = load_module(system)
    assert module.Settings() == module.Settings(**dataclasses.asdict(module.Settings()))


if __name__ == "__main__":
    written = {system: reached(system) for system in NAMES}
    lines = [
        f' "{system}": {{\n' + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()) + "\n }"
        for system, found in written.items()
    ]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    sys.exit(0)
