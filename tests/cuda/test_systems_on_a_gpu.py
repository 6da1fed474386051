"""Every system on a GPU: bf16 training with carried states, ragged rows, a captured step."""

import pytest
import torch
from cuda_systems import NUMBERS, systems

from regard.fast import Use, install
from regard.layers.state import detach


@pytest.mark.parametrize("number", NUMBERS)
def test_bf16_training_with_carried_states_learns(number):
    model = systems()[number].cuda().train()
    install(model, Use(training=True, bf16=True))
    tokens = torch.randint(50, (4, 33), generator=torch.Generator().manual_seed(0)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(120):
        state, total = None, 0.0
        for start in (0, 16):  # two windows of one text, the second from the first's state
            piece = tokens[:, start : start + 17]
            with torch.autocast("cuda", torch.bfloat16):
                surprise, state = model.loss(piece[:, :-1], piece[:, 1:], state)
            assert surprise.dtype == torch.float32
            state = detach(state)
            total = total + surprise.mean()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(float(total.detach()) / 2)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("number", NUMBERS)
def test_ragged_rows_agree_with_the_cpu(number, precision):
    model = systems()[number].eval()
    calls = [([6, 3, 0, 1], 6), ([1, 0, 1, 1], 1), ([2, 2, 2, 2], 2)]
    text = torch.randint(50, (4, 9), generator=torch.Generator().manual_seed(1))

    def read(device: str, capacity: int | None) -> list[torch.Tensor]:
        model.to(device)
        install(model)
        outputs, start = [], 0
        with torch.no_grad(), torch.autocast(device, precision, enabled=precision != torch.float32):
            state = model.begin(rows=4, capacity=capacity)
            for lengths, columns in calls:
                tokens = text[:, start : start + columns].to(device)
                logits, state = model(tokens, state, torch.tensor(lengths, device=device))
                real = torch.arange(columns) < torch.tensor(lengths)[:, None]
                outputs.append(logits.float().cpu()[real])
                start += columns
        return outputs

    exact = 2e-2 if precision != torch.float32 else 2e-3  # tf32 may be on
    for capacity in (None, 9):
        for one, other in zip(read("cuda", capacity), read("cpu", None), strict=True):
            torch.testing.assert_close(one, other, rtol=0.0, atol=exact)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_captured_step_replays_in_place(number):
    model = systems()[number].cuda().eval()
    text = torch.randint(50, (3, 12)).cuda()
    with torch.no_grad():
        expected, _ = model(text)
        state = model.begin(rows=3, capacity=12)
        word = text[:, :1].clone()
        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            model(word, model.begin(rows=3, capacity=12))
        torch.cuda.current_stream().wait_stream(warm)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # captured, not run: the state has still read nothing
            logits, _ = model(word, state)
        steps = []
        for t in range(12):
            word.copy_(text[:, t : t + 1])
            graph.replay()
            steps.append(logits.clone())
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, rtol=0.0, atol=2e-3)
    assert state["seen"].tolist() == [12, 12, 12]
