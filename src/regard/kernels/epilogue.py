"""Two products of a Transformer's block with the GELU at their end: cuBLASLt can, PyTorch does not ask it to.

forward       u = x Wᵀ + b,   y = GELU(u): both leave the product together
backward      du = (dy W) · GELU′(u)

So neither is read again for the GELU alone, which saves a pass over the widest vectors of a block each way. The library
is the one PyTorch has loaded, called through its C interface; which of its kernels is fastest for a shape is found out
by trying those that it proposes. Where it is not to be had, `epilogues` is None and block.py does it.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

import torch
from torch import Tensor

BF16, FP32, COMPUTE_FP32 = 14, 0, 68  # the library's numbers for dtypes
TRANSPOSE_FIRST, EPILOGUE, BIAS, OTHER, OTHER_STRIDE = 3, 7, 8, 11, 12  # for properties of a product
GELU, GELU_BIAS, SLOPE = 160, 164, 192  # for what is done at its end, with u kept or given
MOST_WORKSPACE = 1  # and for a property of the search
CANDIDATES, CANDIDATE_BYTES = 8, 96
WORKSPACE = 32 << 20


@functools.lru_cache
def epilogues(device: torch.device) -> Epilogues | None:
    """The library on this device; None where it is not found."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            path = next(line.split()[-1] for line in maps if "libcublasLt.so" in line)
        return Epilogues(ctypes.CDLL(path), device)
    except (OSError, StopIteration, AttributeError, RuntimeError):
        return None


class Epilogues:
    def __init__(self, library: Any, device: torch.device) -> None:
        self.library, self.device = library, device
        self.handle = c_void_p()
        check(library.cublasLtCreate(byref(self.handle)))
        self.workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
        self.plans: dict[tuple[int, ...], Plan | None] = {}

    def gelu(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """y and u [N, O] of x [N, I], W [O, I] and b [O]; None: the library has no kernel for these."""
        y = torch.empty(len(x), len(weight), device=x.device, dtype=x.dtype)
        u = torch.empty_like(y)
        return (y, u) if self._run(GELU if bias is None else GELU_BIAS, weight, x, y, u, bias) else None

    def slope(self, dy: Tensor, weight: Tensor, u: Tensor) -> Tensor | None:
        """du [N, I] of dy [N, O], W [O, I] and u [N, I]."""
        du = torch.empty_like(u)
        return du if self._run(SLOPE, weight, dy, du, u, None) else None

    def _run(self, end: int, weight: Tensor, rows: Tensor, out: Tensor, other: Tensor, bias: Tensor | None) -> bool:
        """The library counts in columns: it is told of outᵀ = W rowsᵀ, or of outᵀ = Wᵀ rowsᵀ for the slope."""
        key = (end, *weight.shape, len(rows))
        if key not in self.plans:
            self.plans[key] = self._plan(end, weight, rows, out, other, bias)
        plan = self.plans[key]
        if plan is not None:
            plan(weight, rows, out, other, bias)
        return plan is not None

    def _plan(self, end: int, weight: Tensor, rows: Tensor, *others: Tensor | None) -> Plan | None:
        if any(side % 8 for side in weight.shape) or weight.dtype != torch.bfloat16 or rows.dtype != torch.bfloat16:
            return None
        wide, narrow = (len(weight), weight.size(1)) if end != SLOPE else (weight.size(1), len(weight))
        try:
            plan = Plan(self, end, wide, len(rows), narrow)
            plan.choose(weight, rows, *others)
        except RuntimeError:
            return None
        return plan


class Plan:
    """One kind of product of one shape: [m, k] by [k, n], both as the library counts."""

    def __init__(self, of: Epilogues, end: int, m: int, n: int, k: int) -> None:
        self.of, self.best = of, 0
        library, transposed = of.library, end != SLOPE
        self.product = c_void_p()
        check(library.cublasLtMatmulDescCreate(byref(self.product), c_int(COMPUTE_FP32), c_int(FP32)))
        self._set(TRANSPOSE_FIRST, c_int32(transposed))
        self._set(EPILOGUE, c_int32(end))
        self._set(OTHER_STRIDE, c_int64(m))
        self._set(OTHER, c_void_p(of.workspace.data_ptr()))  # any, for the search
        self.layouts = [layout(library, *shape) for shape in ((k, m) if transposed else (m, k), (k, n), (m, n))]
        search, size = c_void_p(), c_uint64(WORKSPACE)
        check(library.cublasLtMatmulPreferenceCreate(byref(search)))
        check(library.cublasLtMatmulPreferenceSetAttribute(search, c_int(MOST_WORKSPACE), byref(size), c_size_t(8)))
        self.candidates, self.found = (ctypes.c_char * (CANDIDATES * CANDIDATE_BYTES))(), c_int()
        first, second, out = self.layouts
        given = (of.handle, self.product, first, second, out, out, search, c_int(CANDIDATES))
        check(library.cublasLtMatmulAlgoGetHeuristic(*given, self.candidates, byref(self.found)))
        check(library.cublasLtMatmulPreferenceDestroy(search))
        if not self.found.value:
            raise RuntimeError("cuBLASLt proposes no kernel")

    def choose(self, *tensors: Tensor | None) -> None:
        """Try the candidates, unless a graph is being recorded."""
        if torch.cuda.is_current_stream_capturing():
            return
        times = []
        for number in range(self.found.value):
            self.best = number
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self(*tensors)
            start.record()
            for _ in range(3):
                self(*tensors)
            stop.record()
            stop.synchronize()
            times.append(start.elapsed_time(stop))
        self.best = times.index(min(times))

    def __call__(self, *tensors: Tensor | None) -> None:
        weight, rows, out, other, bias = (None if tensor is None else c_void_p(tensor.data_ptr()) for tensor in tensors)
        self._set(OTHER, other)
        if bias is not None:
            self._set(BIAS, bias)
        first, second, result = self.layouts
        check(
            self.of.library.cublasLtMatmul(
                self.of.handle, self.product, byref(c_float(1.0)), weight, first, rows, second, byref(c_float(0.0)),
                out, result, out, result, byref(self.candidates, self.best * CANDIDATE_BYTES),
                c_void_p(self.of.workspace.data_ptr()), c_size_t(WORKSPACE),
                c_void_p(torch.cuda.current_stream(self.of.device).cuda_stream),
            )
        )  # fmt: skip

    def _set(self, name: int, value: Any) -> None:
        size = c_size_t(ctypes.sizeof(value))
        check(self.of.library.cublasLtMatmulDescSetAttribute(self.product, c_int(name), byref(value), size))


def layout(library: Any, rows: int, columns: int) -> c_void_p:
    """A matrix whose columns lie one after the other."""
    made = c_void_p()
    check(
        library.cublasLtMatrixLayoutCreate(byref(made), c_int(BF16), c_uint64(rows), c_uint64(columns), c_int64(rows))
    )
    return made


def check(status: int) -> None:
    if status:
        raise RuntimeError(f"cuBLASLt answered with status {status}")
