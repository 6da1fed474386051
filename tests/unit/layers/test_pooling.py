"""`regard.attention`: pooling over a database, against NumPy written out, and the page that shows it."""

import doctest
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import regard
from regard.base.errors import RegardError
from regard.layers.scores import KERNELS, SCORES, Additive, Bilinear, Dot

PAGE = (Path(__file__).parents[3] / "docs" / "attention.md").read_text(encoding="utf-8")
WITHOUT_WEIGHTS = tuple(name for name in SCORES if name not in ("bilinear", "additive"))


@pytest.fixture
def random():
    return np.random.default_rng(7)


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


# -- the weights -----------------------------------------------------------------------------------------------------


def test_dot_scaled_dot_bilinear_and_additive_are_softmaxes_of_their_formulas(random):
    query, keys, values = random.normal(size=(4, 3)), random.normal(size=(6, 3)), random.normal(size=(6, 2))
    M, W_q, W_k, v = (random.normal(size=shape) for shape in ((3, 3), (5, 3), (5, 3), (5,)))
    sums = query[:, None] @ W_q.T + keys[None] @ W_k.T
    for score, expected, given in (
        ("dot", query @ keys.T, {}),
        ("scaled-dot", query @ keys.T / np.sqrt(3), {}),
        ("bilinear", query @ M @ keys.T, {"M": M}),
        ("additive", np.tanh(sums) @ v, {"W_q": W_q, "W_k": W_k, "v": v}),
        (lambda q, k: np.cos(q @ k.T), np.cos(query @ keys.T), {}),
    ):
        found = regard.attention(query, keys, values, score, **given)
        np.testing.assert_allclose(found.weights, softmax(expected), rtol=1e-12)
        np.testing.assert_allclose(found.output, softmax(expected) @ values, rtol=1e-12)
        assert not found.empty.any()


def test_a_kernel_is_nadaraya_watson(random):
    keys, values = random.uniform(0, 5, 30), random.normal(size=30)
    kernels = {
        "gaussian": lambda u: np.exp(-(u**2) / 2),
        "boxcar": lambda u: (u <= 1) * 1.0,
        "triangular": lambda u: np.maximum(0, 1 - u),
        "epanechnikov": lambda u: np.maximum(0, 1 - u**2),
    }
    assert set(kernels) == set(KERNELS)
    for name, kernel in kernels.items():
        found = regard.attention([1.0, 3.3], keys, values, name, bandwidth=0.8)
        for at, x in enumerate((1.0, 3.3)):
            weights = [kernel(abs(x - key) / 0.8) for key in keys]
            estimate = sum(w * y for w, y in zip(weights, values)) / sum(weights)
            assert found.output[at] == pytest.approx(estimate, rel=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("width", [1, 2])
def test_a_kernel_density_is_a_density_and_its_ratio_the_regression(kernel, width, random):
    keys, side = random.normal(size=(6, width)), np.linspace(-9.0, 9.0, 20_001 if width == 1 else 301)
    grid = np.stack(np.meshgrid(*[side] * width), axis=-1).reshape(-1, width)
    found = regard.density(grid, keys, kernel, bandwidth=0.7)
    assert found.sum() * (side[1] - side[0]) ** width == pytest.approx(1.0, abs=1e-2)
    halves = [regard.density(keys, part, kernel, bandwidth=0.7) * len(part) for part in (keys[:2], keys[2:])]
    share = regard.attention(keys, keys, np.arange(6) < 2, kernel, bandwidth=0.7).output
    np.testing.assert_allclose(halves[0] / sum(halves), share, rtol=1e-10)


def test_a_density_of_numbers_in_any_shape():
    assert regard.density(0.0, [0.0, 0.0]) == pytest.approx((2 * np.pi) ** -0.5)
    assert regard.density([[0.0], [9.0]], [0.0, 1.0], "boxcar") == pytest.approx(np.array([[0.5], [0.0]]))
    with pytest.raises(RegardError, match="kernel must be one of gaussian"):
        regard.density(0.0, [0.0], "dot")


def test_uniform_weights_are_average_pooling_and_a_look_up_finds_the_one_key(random):
    keys, values = random.normal(size=(5, 3)), random.normal(size=(5, 4))
    average = regard.attention(random.normal(size=3), keys, values, "uniform")
    np.testing.assert_allclose(average.output, values.mean(axis=0), rtol=1e-12)
    found = regard.attention(keys[3], keys, values, "look-up")
    np.testing.assert_array_equal(found.output, values[3])
    np.testing.assert_array_equal(found.weights, np.eye(5)[3])


def test_where_no_key_is_near_the_weights_are_uniform_and_counted():
    keys, values = np.array([0.0, 1.0, 2.0]), np.array([3.0, 6.0, 9.0])
    for score, given in (("boxcar", {"bandwidth": 0.4}), ("epanechnikov", {"bandwidth": 0.4}), ("look-up", {})):
        found = regard.attention([1.0, 7.0, 1.5], keys, values, score, **given)
        assert found.empty.tolist() == [False, True, True]
        assert found.output.tolist() == [6.0, 6.0, 6.0]
    assert not regard.attention(1e6, keys, values, "gaussian").empty


@pytest.mark.parametrize("score", [*WITHOUT_WEIGHTS, "uniform", "look-up"])
def test_weights_are_never_negative_sum_to_one_and_obey_the_mask(score, random):
    query, keys, values = random.normal(size=(2, 5, 3)), random.normal(size=(2, 5, 3)), random.normal(size=(2, 5, 4))
    found = regard.attention(query, keys, values, score, mask=np.tri(5, dtype=bool))
    assert (found.weights >= 0).all()
    assert (found.weights[:, ~np.tri(5, dtype=bool)] == 0).all()
    np.testing.assert_allclose(found.weights.sum(axis=-1), 1.0, rtol=1e-12)
    changed = values.copy()
    changed[:, -1] += 1.0  # only the last query may see it
    after = regard.attention(query, keys, changed, score, mask=np.tri(5, dtype=bool))
    np.testing.assert_array_equal(after.output[:, :-1], found.output[:, :-1])


# -- shapes and kinds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", WITHOUT_WEIGHTS)
def test_a_batch_of_any_shape_is_its_rows_one_by_one(score, random):
    query, keys, values = random.normal(size=(2, 3, 4, 5)), random.normal(size=(3, 6, 5)), random.normal(size=(3, 6, 2))
    whole = regard.attention(query, keys, values, score)
    assert whole.output.shape == (2, 3, 4, 2)
    assert whole.weights.shape == (2, 3, 4, 6)
    assert whole.empty.shape == (2, 3, 4)
    for a, b, t in np.ndindex(2, 3, 4):
        one = regard.attention(query[a, b, t], keys[b], values[b], score)
        np.testing.assert_allclose(one.output, whole.output[a, b, t], rtol=1e-10)
        assert one.weights.shape == (6,)
        assert one.empty.shape == ()


def test_numpy_gives_numpy_and_torch_gives_torch_with_the_same_numbers(random):
    arrays = random.normal(size=(2, 3)), random.normal(size=(5, 3)), random.normal(size=(5, 2))
    plain = regard.attention(*arrays, "gaussian")
    tensors = regard.attention(*map(torch.from_numpy, arrays), "gaussian")
    assert all(isinstance(part, np.ndarray) for part in plain)
    assert all(isinstance(part, torch.Tensor) for part in tensors)
    np.testing.assert_array_equal(plain.output, tensors.output.numpy())
    half = regard.attention(*(array.astype(np.float32) for array in arrays))
    assert half.output.dtype == np.float32
    assert regard.attention([[1, 2]], [[1, 0], [0, 1]], [1, 0]).output.dtype == np.float64


def test_it_is_torchs_own_attention(random):
    query, keys, values = (torch.from_numpy(random.normal(size=(2, 4, 7, 3))) for _ in range(3))
    found = regard.attention(query, keys, values, "scaled-dot", mask=torch.ones(7, 7).tril())
    expected = F.scaled_dot_product_attention(query, keys, values, is_causal=True)
    torch.testing.assert_close(found.output, expected)


def test_gradients_flow_to_everything_given(random):
    def draw(*shape):
        return torch.from_numpy(random.normal(size=shape)).requires_grad_()

    query, keys, values = draw(2, 3), draw(5, 4), draw(5, 2)
    M, W_q, W_k, v = draw(3, 4), draw(6, 3), draw(6, 4), draw(6)
    assert torch.autograd.gradcheck(
        lambda q, k, x, m: regard.attention(q, k, x, "bilinear", M=m).output, (query, keys, values, M)
    )
    assert torch.autograd.gradcheck(
        lambda q, k, x, a, b, c: regard.attention(q, k, x, "additive", W_q=a, W_k=b, v=c).output,
        (query, keys, values, W_q, W_k, v),
    )


def test_given_weights_are_what_a_trained_score_does_and_draw_nothing(random):
    query, keys, values = (torch.from_numpy(random.normal(size=s)) for s in ((2, 3), (5, 4), (5, 2)))
    bilinear, additive = Bilinear(3, 4).double(), Additive(3, 4, 6).double()
    before = torch.get_rng_state()
    one = regard.attention(query, keys, values, "bilinear", M=bilinear.matrix)
    two = regard.attention(
        query, keys, values, "additive",
        W_q=additive.query.weight, W_k=additive.key.weight, v=additive.judge.weight[0],
    )  # fmt: skip
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(one.output, regard.attention(query, keys, values, bilinear).output)
    torch.testing.assert_close(two.output, regard.attention(query, keys, values, additive).output)


# -- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        (([1.0], [[1.0]], [1.0], "gausian"), {}, "did you mean gaussian"),
        (([1.0], [[1.0]], [1.0], "dot"), {"bandwidth": 2.0}, "belongs to a kernel"),
        (([1.0], [[1.0]], [1.0], "boxcar"), {"bandwidth": 0.0}, "above 0"),
        (([1.0], [[1.0]], [1.0], "bilinear"), {}, "needs M"),
        (([1.0], [[1.0]], [1.0], "dot"), {"M": [[1.0]]}, "no weights"),
        (([1.0], [[1.0]], [1.0], "bilinear"), {"M": [[1.0, 2.0]]}, "shape"),
        (([1.0, 2.0], [[1.0]], [1.0], "dot"), {}, "bilinear or additive"),
        (([1.0], [[1.0]], [1.0, 2.0], "dot"), {}, "values do not match"),
        ((1.0, [[1.0]], [1.0], "dot"), {}, "keys of shape"),
        (([1.0], [], [], "dot"), {}, "at least 1"),
        (([1.0], [[1.0]], [1.0], 3), {}, "must be a name"),
        (([1.0], [[1.0]], [1.0], "dot"), {"mask": [[False]]}, "has no key"),
        (([1.0], [[1.0]], [1.0], "dot"), {"mask": [[True, True]]}, "must fit"),
        (([1.0], [[1.0]], [1.0], "dot"), {"mask": "all"}, "mask must be numbers"),
        ((["one"], [[1.0]], [1.0]), {}, "query must be numbers"),
        (([1.0], None, [1.0]), {}, "keys must be numbers"),
        (([1.0], [[1.0]], None), {}, "values must be numbers"),
        (([1.0], [[1.0], [1.0, 2.0]], [1.0, 2.0]), {}, "rows of equal length"),
        (([1.0], [[1.0]], [1j]), {}, "values must be real"),
        ((torch.ones(1, dtype=torch.complex64), [[1.0]], [1.0]), {}, "query must be real"),
        (([1.0], [[1.0]], [1.0], "boxcar"), {"bandwidth": "1"}, "a number above 0, not '1'"),
        (([1.0], [[1.0]], [1.0], "boxcar"), {"bandwidth": float("nan")}, "above 0"),
        (([1.0], [[1.0]], [1.0], "bilinear"), {"M": "identity"}, "M must be numbers"),
        (([1.0], [[1.0]], [1.0], "bilinear"), {"M": 1.0}, "shape"),
        (([1.0], [[1.0]], [1.0], lambda q, k: 0.5), {}, r"returned shape \(\)"),
        ((torch.ones(1), torch.ones(1, 1), torch.ones(1), lambda q, k: 0.5), {}, r"returned shape \(\)"),
        (([1.0], [[1.0]], [1.0], lambda q, k: None), {}, "score function returns must be numbers"),
        (([1.0], [[1.0]], [1.0], lambda q, k: np.ones((3, 4))), {}, r"returned shape \(3, 4\)"),
        ((np.ones((2, 1, 1)), np.ones((3, 1, 1)), np.ones((3, 1, 1))), {}, "do not match"),
        ((np.ones((2, 1, 1)), np.ones((2, 1, 1)), np.ones((3, 1, 1))), {}, "do not match"),
        (([1.0, 2.0, 3.0], [[1.0, 2.0]], [1.0], Dot(2, 2)), {}, "cannot compare queries of width 3"),
    ],
)
def test_a_mistake_is_said_in_one_sentence(arguments, settings, words):
    with pytest.raises(RegardError, match=words) as refused:
        regard.attention(*arguments, **settings)
    assert "\n" not in str(refused.value)


def test_a_function_may_return_whole_numbers(random):
    keys, values = random.normal(size=(3, 2)), random.normal(size=(3, 4))
    found = regard.attention(keys, keys, values, lambda q, k: np.eye(3, dtype=int))
    np.testing.assert_allclose(found.weights, softmax(np.eye(3)), rtol=1e-12)


# -- the page --------------------------------------------------------------------------------------------------------


def test_every_example_of_the_page_prints_what_the_page_says():
    examples = PAGE.replace("```python\n", "").replace("```\n", "")
    test = doctest.DocTestParser().get_doctest(examples, {}, "attention.md", None, 0)
    assert len(test.examples) >= 14
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


def test_the_page_names_every_score():
    for name in (*SCORES, "uniform", "look-up"):
        assert f'`"{name}"`' in PAGE
