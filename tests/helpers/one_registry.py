"""PyTorch lists the operators of ONNX anew for every graph, which is a sixth of an export: here it does so once."""

from contextlib import contextmanager
from copy import copy
from functools import cache

import pytest
from torch.onnx._internal.exporter._registration import ONNXRegistry


@contextmanager
def one_registry():
    listed = cache(ONNXRegistry.from_torchlib)

    def get(**version):
        registry = copy(listed(**version))
        registry.functions = {target: list(found) for target, found in registry.functions.items()}
        return registry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(get))
        yield
