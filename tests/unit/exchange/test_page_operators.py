"""Each operator of a page computes what onnxruntime computes, at random shapes."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from javascript import javascript
from regard.exchange.page_model import operators

DRAWS = 4
TYPES = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL}


def floats(draw, *dims, low=-2.0, high=2.0):
    return draw.uniform(low, high, dims).astype(np.float32)


def dims(draw, least=1, most=4):
    return tuple(draw.integers(1, 6, draw.integers(least, most + 1)).tolist())


def ints(*values):
    return np.array(values, dtype=np.int64)


def broadcast(draw):
    """Two shapes that fit together."""
    whole = dims(draw, 1, 4)
    other = tuple(1 if draw.random() < 0.4 else size for size in whole)[draw.integers(0, len(whole)) :]
    return (whole, other) if draw.random() < 0.5 or len(other) < len(whole) else (other, whole)


def one(low=-3.0, high=3.0, **attributes):
    return lambda draw: ([floats(draw, *dims(draw), low=low, high=high)], attributes)


def two(kind="f", low=-3.0, high=3.0):
    def make(draw):
        shapes = broadcast(draw)
        if kind == "f":
            return [floats(draw, *shape, low=low, high=high) for shape in shapes], {}
        if kind == "b":
            return [draw.random(shape) < 0.5 for shape in shapes], {}
        return [draw.integers(-9, 9, shape) for shape in shapes], {}

    return make


def mixed(draw):
    return (two("i") if draw.random() < 0.5 else two())(draw)


def along(**attributes):
    def make(draw):
        shape = dims(draw, 2, 4)
        return [floats(draw, *shape)], {"axis": int(draw.integers(-len(shape), len(shape))), **attributes}

    return make


def reducing(draw):
    shape = dims(draw, 1, 4)
    axes = draw.choice(len(shape), draw.integers(1, len(shape) + 1), replace=False)
    return [floats(draw, *shape), axes.astype(np.int64)], {"keepdims": int(draw.integers(0, 2))}


def matmul(draw):
    before, other = broadcast(draw) if draw.random() < 0.7 else ((), ())
    m, k, n = draw.integers(1, 9, 3)
    return [floats(draw, *before, m, k), floats(draw, *other, k, n)], {}


def gemm(draw):
    m, k, n = draw.integers(1, 9, 3)
    a, b = (int(draw.integers(0, 2)) for _ in range(2))
    c = floats(draw, *([n], [m, 1], [1, n], [m, n])[draw.integers(0, 4)])
    given = [floats(draw, *((k, m) if a else (m, k))), floats(draw, *((n, k) if b else (k, n))), c]
    return given, {"transA": a, "transB": b, "alpha": 0.5, "beta": 2.0}


def concat(draw):
    shape = list(dims(draw, 1, 4))
    axis = int(draw.integers(0, len(shape)))
    parts = []
    for _ in range(3):
        shape[axis] = int(draw.integers(0, 4))
        parts.append(floats(draw, *shape))
    return parts, {"axis": axis - len(shape)}


def split(draw):
    shape = list(dims(draw, 1, 4))
    axis = int(draw.integers(0, len(shape)))
    sizes = draw.integers(1, 4, 3)
    shape[axis] = int(sizes.sum())
    return [floats(draw, *shape), sizes.astype(np.int64)], {"axis": axis}


def cut(draw):
    shape = dims(draw, 1, 4)
    axes = draw.choice(len(shape), draw.integers(1, len(shape) + 1), replace=False)
    begin = [int(draw.integers(-shape[axis], shape[axis])) for axis in axes]
    end = [int(draw.choice([2**31 - 1, -1, shape[axis]])) for axis in axes]
    steps = draw.integers(1, 3, len(axes))
    if draw.random() < 0.3:
        begin, end, steps = [-1] * len(axes), [-(2**31)] * len(axes), -steps
    return [floats(draw, *shape), ints(*begin), ints(*end), ints(*axes), ints(*steps)], {}


def index(draw, shape, size):
    return draw.integers(-size, size, shape)


def gather(draw):
    shape = dims(draw, 1, 4)
    axis = int(draw.integers(0, len(shape)))
    return [floats(draw, *shape), index(draw, dims(draw, 1, 2), shape[axis])], {"axis": axis}


def gather_elements(draw):
    shape = dims(draw, 1, 4)
    axis = int(draw.integers(0, len(shape)))
    taken = tuple(int(draw.integers(1, size + 1)) for size in shape)
    return [floats(draw, *shape), index(draw, taken, shape[axis])], {"axis": axis}


def by_places(draw, common=0):
    shape = dims(draw, 2 + common, 4)
    depth = int(draw.integers(1, len(shape) - common + 1))
    outer = (*shape[:common], *dims(draw, 1, 2))
    places = np.stack([draw.integers(0, shape[common + n], outer) for n in range(depth)], axis=-1)
    return shape, depth, places


def gather_nd(draw):
    common = int(draw.integers(0, 2))
    shape, _, places = by_places(draw, common)
    return [floats(draw, *shape), places], {"batch_dims": common}


def scatter_nd(draw):
    shape, depth, places = by_places(draw)
    flat = places.reshape(-1, depth)
    _, kept = np.unique(flat, axis=0, return_index=True)  # a place that is written twice has no defined value
    places = flat[np.sort(kept)]
    return [floats(draw, *shape), places, floats(draw, len(places), *shape[depth:])], {}


def pad(draw):
    shape = dims(draw, 1, 3)
    return [floats(draw, *shape), draw.integers(0, 3, 2 * len(shape)), np.array(7, np.float32)], {}


def where(draw):
    shapes = broadcast(draw)
    return [draw.random(shapes[0]) < 0.5, floats(draw, *shapes[1]), floats(draw, *shapes[0])], {}


def transpose(draw):
    shape = dims(draw, 1, 4)
    return [floats(draw, *shape)], {"perm": draw.permutation(len(shape)).tolist()}


def reshape(draw):
    shape = dims(draw, 2, 4)
    return [floats(draw, *shape), ints(*([0, -1] if draw.random() < 0.5 else [-1, shape[-1]]))], {}


def normalized(draw):
    *outer, width = dims(draw, 2, 3)
    return [floats(draw, *outer, width), floats(draw, width), floats(draw, width)], {"axis": -1, "epsilon": 1e-5}


def expand(draw):
    whole, own = sorted(broadcast(draw), key=len, reverse=True)
    return [floats(draw, *own), ints(*whole)], {}


def small(low, high):
    return lambda draw: ([floats(draw, *dims(draw)), np.array(low, np.float32), np.array(high, np.float32)], {})


CASES = {
    "Abs": one(), "Cos": one(-30, 30), "Elu": one(alpha=1.0), "Erf": one(-4, 4), "Exp": one(-20, 5), "Floor": one(),
    "Gelu": lambda draw: (
        [floats(draw, *dims(draw), low=-6, high=6)], {"approximate": str(draw.choice(["none", "tanh"]))}
    ),
    "Log": one(0.001, 9), "Neg": one(), "Reciprocal": one(0.1, 3), "Relu": one(), "Sigmoid": one(-30, 30),
    "Sin": one(-30, 30), "Softplus": one(-30, 30), "Sqrt": one(0, 9), "Tanh": one(-9, 9), "Identity": one(),
    "Not": lambda draw: ([draw.random(dims(draw)) < 0.5], {}),
    "Add": mixed, "Sub": mixed, "Mul": mixed, "Div": two(low=0.2), "Pow": two(low=0.1), "Max": two(), "Min": two(),
    "And": two("b"), "Or": two("b"), "Equal": two("i"), "Less": mixed, "LessOrEqual": mixed, "Greater": mixed,
    "GreaterOrEqual": mixed, "Where": where, "Clip": small(-1, 0.5),
    "Cast": lambda draw: ([floats(draw, *dims(draw))], {"to": int(draw.choice([TensorProto.INT64, TensorProto.BOOL]))}),
    "Softmax": along(), "LogSoftmax": along(), "LayerNormalization": normalized,
    "CumSum": lambda draw: (
        [floats(draw, 3, 4, 2), np.array(draw.integers(-3, 3))], {"reverse": int(draw.integers(0, 2))}
    ),
    "ReduceL2": reducing, "ReduceMax": reducing, "ReduceMean": reducing, "ReduceSum": reducing,
    "MatMul": matmul, "Gemm": gemm,
    "Shape": lambda draw: ([floats(draw, *dims(draw, 2, 4))], {"start": 1}),
    "ConstantOfShape": lambda draw: (
        [np.array(dims(draw), np.int64)], {"value": numpy_helper.from_array(np.array([3], np.int64))}
    ),
    "Range": lambda draw: ([np.array(draw.integers(0, 3)), np.array(draw.integers(0, 20)), np.array(2)], {}),
    "Reshape": reshape, "Transpose": transpose, "Concat": concat, "Split": split, "Slice": cut, "Pad": pad,
    "Squeeze": lambda draw: ([floats(draw, 1, *dims(draw, 1, 2), 1), ints(0, -1)], {}),
    "Unsqueeze": lambda draw: ([floats(draw, *dims(draw, 1, 2)), ints(0, -1)], {}),
    "Expand": expand,
    "Trilu": lambda draw: (
        [floats(draw, *dims(draw, 2, 4)), np.array(draw.integers(-2, 3))], {"upper": int(draw.integers(0, 2))}
    ),
    "Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd, "ScatterND": scatter_nd,
}  # fmt: skip
IN_ONE_CALL = """
  const read = ({ dims, type, data }) => tensor(dims, KINDS[type].from(data));
  return given.map(([name, inputs, attributes]) => OPERATORS[name](inputs.map(read), attributes));
"""


def kind(array):
    return {"f": "f", "i": "i", "b": "b"}[array.dtype.kind]


def reference(name, inputs, attributes):
    names = [f"x{n}" for n in range(len(inputs))]
    outputs = [f"y{n}" for n in range(len(inputs[1]) if name == "Split" else 1)]
    node = helper.make_node(name, names, outputs, **attributes)
    given = [helper.make_tensor_value_info(n, TYPES[kind(x)], x.shape) for n, x in zip(names, inputs)]
    graph = helper.make_graph([node], name, given, [onnx.ValueInfoProto(name=output) for output in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, inputs)))


def for_page(attributes):
    return {
        name: ["i", numpy_helper.to_array(value).tolist()] if isinstance(value, onnx.TensorProto) else value
        for name, value in attributes.items()
    }


def test_every_operator_has_a_case():
    assert set(CASES) == operators() - {
        "Scan",
        "Part",
    }  # loops are tested by the recurrent systems, parts by what is changed


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_operator_computes_what_onnxruntime_computes(name):
    draw = np.random.default_rng(sum(map(ord, name)))
    cases = [CASES[name](draw) for _ in range(DRAWS)]
    given = [
        [
            name,
            [{"dims": list(x.shape), "type": kind(x), "data": x.reshape(-1).astype(float).tolist()} for x in inputs],
            for_page(attributes),
        ]
        for inputs, attributes in cases
    ]
    found = javascript("page/operators", IN_ONE_CALL, given)
    for (inputs, attributes), ours in zip(cases, found, strict=True):
        theirs = reference(name, inputs, attributes)
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            assert one["dims"] == list(other.shape)
            assert np.allclose(
                np.array(one["data"], float).reshape(other.shape), other, rtol=2e-6, atol=2e-6, equal_nan=True
            )
