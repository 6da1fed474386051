"""llama against Hugging Face's LlamaForCausalLM with the same weights, and the parts in which it differs from gpt."""

import pytest
import torch

from regard.base.errors import RegardError
from regard.systems import gpt, llama
from regard.systems.sizes import sizes_of

transformers = pytest.importorskip("transformers", reason="the oracle")


def make(dtype=torch.float64, **settings):
    torch.manual_seed(3)
    chosen = {"layers": 2, "width": 32, "heads": 4, "context": 24, "dropout": 0.0, "initial": 0.3, **settings}
    return llama.Llama(50, llama.Settings(**chosen)).to(dtype).eval()


def hugging_face(model):
    """The same function as Hugging Face writes it."""
    settings = model.settings
    config = transformers.LlamaConfig(
        vocab_size=model.vocabulary,
        hidden_size=settings.width,
        intermediate_size=settings.inner,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.groups,
        max_position_embeddings=settings.context,
        rms_norm_eps=1e-5,
        tie_word_embeddings=settings.tied,
        attention_bias=False,
        mlp_bias=False,
    )
    theirs = transformers.LlamaForCausalLM(config).to(model.embedding.table.weight.dtype).eval()
    table = model.embedding.table.weight
    weights = {"model.embed_tokens.weight": table, "model.norm.weight": model.finish.weight}
    weights["lm_head.weight"] = model.output.of(table)[0]
    for number, block in enumerate(model.layers):
        width = settings.width // settings.heads
        query, key, value = block.attention.project.weight.split(
            [settings.width, settings.groups * width, settings.groups * width]
        )
        named = {
            "self_attn.q_proj": query,
            "self_attn.k_proj": key,
            "self_attn.v_proj": value,
            "self_attn.o_proj": block.attention.output.weight,
            "mlp.gate_proj": block.feedforward.gate.weight,
            "mlp.up_proj": block.feedforward.expand.weight,
            "mlp.down_proj": block.feedforward.output.weight,
            "input_layernorm": block.attention_norm.weight,
            "post_attention_layernorm": block.feedforward_norm.weight,
        }
        weights |= {f"model.layers.{number}.{name}.weight": weight for name, weight in named.items()}
    theirs.load_state_dict({name: weight.detach() for name, weight in weights.items()})
    return widened(theirs) if table.dtype == torch.float64 else theirs


class Angles(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.frequency = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)

    def forward(self, x, position_ids):
        angle = (position_ids[..., None].double() * self.frequency).repeat(1, 1, 2)
        return angle.cos(), angle.sin()


def widened(theirs):
    """Hugging Face computes norms and angles in fp32 whatever the model's precision; here in fp64."""
    for module in list(theirs.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ == "LlamaRMSNorm":
                norm = torch.nn.RMSNorm(child.weight.shape, eps=child.variance_epsilon, dtype=torch.float64)
                norm.weight = child.weight
                setattr(module, name, norm)
    config = theirs.config
    theirs.model.rotary_emb = Angles(config.hidden_size // config.num_attention_heads)
    return theirs


@pytest.mark.parametrize("dtype, most", [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("settings", [{}, {"key_value_heads": 1, "tied": False}, {"key_value_heads": 4}], ids=str)
def test_logits_are_those_of_hugging_faces_llama(dtype, most, settings):
    model = make(dtype, **settings)
    tokens = torch.randint(50, (3, 20))
    with torch.no_grad():
        ours, theirs = model(tokens)[0], hugging_face(model)(tokens).logits
        _, state = model(tokens[:, :11])
        cut, _ = model(tokens[:, 11:], state)
    scale = float(theirs.abs().max())
    assert float((ours - theirs).abs().max()) <= most * scale
    assert float((cut - theirs[:, 11:]).abs().max()) <= most * scale


def test_the_state_holds_the_groups_keys_alone():
    state = make(key_value_heads=1).begin(rows=2, capacity=9)
    assert state["past"]["0"]["key_buffer"].shape == (2, 1, 10, 8)


@pytest.mark.parametrize("size", ["tiny", "small", "medium", "large"])
def test_each_size_has_about_as_many_parameters_as_gpts(size):
    counts = {}
    for name, module in (("gpt", gpt), ("llama", llama)):
        chosen = sizes_of(name).of(size)
        kind = {"gpt": gpt.GPT, "llama": llama.Llama}[name]
        with torch.device("meta"):
            counts[name] = sum(weight.numel() for weight in kind(5000, module.Settings(**chosen)).parameters())
    assert 0.88 < counts["llama"] / counts["gpt"] < 1.02


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"heads": 3}, "must divide model.width"),
        ({"key_value_heads": 3}, "model.key_value_heads .3. must divide model.heads .4."),
        ({"width": 36}, "must be even"),
    ],
)
def test_wrong_heads_are_refused_in_a_sentence(wrong, said):
    with pytest.raises(RegardError, match=said):
        make(**wrong)
