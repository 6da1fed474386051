"""TransformerLens and captum compute the same lens, ablation, patch and integrated gradients."""

import os

import pytest
import torch
from torch import Tensor

import regard
from regard.exchange.formats import export
from regard.insight.interventions.changing import Place
from regard.insight.interventions.contrast import POINTS, contrast
from regard.insight.interventions.lens import output_map, residuals
from regard.insight.interventions.reading import read_text

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported
LINES = ["the ship left the harbour", "the captain saw the sea", "a ship saw the captain"] * 8
TEXT, OTHER = "the ship saw the sea", "the captain saw the sea"
SETTINGS = {
    "data": {"tokenizer": "word"},
    "model": {"width": 32, "layers": 3, "heads": 4},
    "training": {"steps": 20, "evaluate_every": 20},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oracle") / "run"
    return regard.train("gpt", data=LINES, run=folder, size="tiny", settings=SETTINGS)


@pytest.fixture(scope="module")
def bridge(run, tmp_path_factory):
    lens = pytest.importorskip(
        "transformer_lens.model_bridge", reason="TransformerLens is the oracle of lens, ablation and patching"
    )
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("hf") / "out"
    export(run.folder, "huggingface", folder, options={"scores": "no"})
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return lens.TransformerBridge.boot_transformers(str(folder), hf_model=model, tokenizer=tokenizer, device="cpu")


@pytest.fixture(scope="module")
def first(run):
    return read_text(run.model, run.tokenizer, TEXT)


def test_logits_agree(bridge, first):
    with torch.no_grad():
        theirs = bridge(first.tokens, return_type="logits")
        torch.testing.assert_close(first.logits(), theirs, atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_lens_agrees_with_transformer_lens(bridge, first):
    _, cache = bridge.run_with_cache(first.tokens)
    read_off = output_map(first.model)
    found = residuals(first.model, first.parts())
    for number in range(3):
        for ours, theirs in ((f"layer/{number}/attention", "hook_resid_mid"), (f"layer/{number}", "hook_resid_post")):
            vectors = cache[f"blocks.{number}.{theirs}"]
            torch.testing.assert_close(found[ours], vectors, atol=1e-5, rtol=0)
            expected = bridge.unembed(bridge.ln_final(vectors))
            torch.testing.assert_close(read_off(found[ours]), expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_ablation_agrees_with_transformer_lens(bridge, first):
    for layer in range(3):
        for head in range(4):

            def remove(heads: Tensor, hook: object, head: int = head) -> Tensor:
                heads[:, :, head] = 0
                return heads

            theirs = bridge.run_with_hooks(first.tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", remove)])
            ours = first.logits([(Place(f"self/{layer}", index=head), 0.0)])
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@torch.no_grad()
def test_patching_agrees_with_transformer_lens(bridge, first, run):
    second = read_text(run.model, run.tokenizer, OTHER)
    assert second.tokens.shape == first.tokens.shape
    parts, (_, cache) = second.parts(), bridge.run_with_cache(second.tokens)
    for layer in range(3):
        for column in range(first.tokens.size(1)):
            name = f"blocks.{layer}.hook_resid_post"

            def replace(vectors: Tensor, hook: object, name: str = name, column: int = column) -> Tensor:
                vectors[:, column] = cache[name][:, column]
                return vectors

            theirs = bridge.run_with_hooks(first.tokens, fwd_hooks=[(name, replace)])
            place = Place(f"layer/{layer}", column=column)
            ours = first.logits([(place, parts[f"layer/{layer}"][0, column])])
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("system", ["gpt", "lstm"])
def test_integrated_gradients_agree_with_captum(system, run, tmp_path):
    captum = pytest.importorskip("captum.attr", reason="captum is the oracle of integrated gradients")
    trained = (
        run
        if system == "gpt"
        else regard.train("lstm", data=LINES, run=tmp_path / "run", size="tiny", settings={**SETTINGS, "model": {}})
    )
    reading = read_text(trained.model, trained.tokenizer, TEXT)
    a, b = 3, 4  # any two words
    found = contrast(reading, a, b)
    vectors = reading.parts()["embedding"]

    def measure(entered: Tensor) -> Tensor:
        logits = reading.logits([(Place("embedding"), entered)], len(entered))[:, -1]
        return logits[:, a] - logits[:, b]

    baseline = vectors.mean(1, keepdim=True).expand_as(vectors)
    theirs = captum.IntegratedGradients(measure).attribute(vectors, baseline, n_steps=POINTS, method="riemann_middle")
    ours = torch.as_tensor(found.methods["integrated gradients"])
    torch.testing.assert_close(ours, theirs.sum(-1)[0].double(), atol=1e-4, rtol=0)
