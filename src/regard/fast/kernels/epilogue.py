"""Matrix products with fused epilogues (bias, GELU, its derivative, residual sum) by cuBLASLt, called directly.

gelu          u = x Wᵀ + b,   y = GELU(u): returns both
slope         du = (dy W) · GELU′(u)
add           y = s + x Wᵀ + b
back          dx = dy W
gradient      dW = dyᵀ x

Fusing saves passes over the widest activations of a block, forward and backward. The library is the one PyTorch has
loaded, called through its C interface. All kernels that it proposes for a kind of product are timed (PyTorch takes the
first), unless one is known (known_kernels.py), and a few rows of a kernel's first result are checked against the
equation. Without the library `epilogues` is None; without a correct kernel for a shape, the product is None. Then
PyTorch and block_norm.py compute it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Hashable
from contextlib import nullcontext, suppress
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.fast.known_kernels import KnownKernels, file_for

DTYPES, COMPUTE_FP32 = {torch.float32: 0, torch.bfloat16: 14}, 68  # the library's numbers for dtypes
TRANSPOSE, EPILOGUE, BIAS, OTHER, OTHER_STRIDE = (3, 4), 7, 8, 11, 12  # for properties of a product
PLAIN, PLAIN_BIAS, GELU, GELU_BIAS, SLOPE = 1, 4, 160, 164, 192  # epilogues: u is written by GELU, read by SLOPE
MOST_WORKSPACE, REDUCTION, IN_FP32 = 1, 3, 2  # properties of the search for kernels
CANDIDATES, CANDIDATE_BYTES, KERNEL_BYTES = 16, 96, 64  # a candidate begins with its kernel
WORKSPACE = 32 << 20
MAX_TIMED_SHAPES = 512  # shapes that are timed at most: enough for training on pairs
ALIGNED = 256  # bytes; cuBLASLt's search assumes it
FIRST, NEITHER, SECOND = (True, False), (False, False), (False, True)  # which matrix is transposed

Found = TypeVar("Found")


@functools.lru_cache
def epilogues(device: torch.device) -> Epilogues | None:
    """The library on this device; None if it is not found."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            path = next(line.split()[-1] for line in maps if "libcublasLt.so" in line)
        library = ctypes.CDLL(path)
        return Epilogues(library, device, KnownKernels(file_for(device, library.cublasLtGetVersion())))
    except (OSError, StopIteration, AttributeError, RuntimeError):
        return None


class Product(NamedTuple):
    """out = op(first) op(second). The library is column-major: what is [n, m] here is [m, n] there."""

    end: int
    first: Tensor
    second: Tensor
    out: Tensor
    transposed: tuple[bool, bool]
    bias: Tensor | None = None
    other: Tensor | None = None  # a further tensor that the epilogue reads or writes
    plus: Tensor | None = None  # added to the product

    @property
    def tensors(self) -> list[Tensor]:
        return [part for part in self if isinstance(part, Tensor)]

    @property
    def key(self) -> Hashable:
        return self.end, self.plus is not None, self.transposed, *self.first.shape, *self.second.shape, self.out.dtype

    @property
    def kind(self) -> tuple[str, int]:
        """Everything that decides the kernel but the number of rows, and that number."""
        fixed = 0 if self.transposed == SECOND else len(self.first)
        sizes = fixed, self.first.size(1), self.second.size(1)
        return repr((self.end, self.plus is not None, self.transposed, *sizes, self.out.dtype)), len(self.second)

    @property
    def fits(self) -> bool:
        matrices = (self.first, self.second, self.out)
        halves = self.first.dtype == self.second.dtype == torch.bfloat16
        return halves and self.out.dtype in DTYPES and not any(matrix.size(1) % 8 for matrix in matrices)

    @property
    def is_aligned(self) -> bool:
        alike = all(part is None or part.dtype == self.out.dtype for part in (self.plus, self.bias))
        return alike and all(part.is_contiguous() and part.data_ptr() % ALIGNED == 0 for part in self.tensors)


class Epilogues:
    def __init__(self, library: Any, device: torch.device, known: KnownKernels | None = None) -> None:
        self.library, self.device, self.known = library, device, known or KnownKernels()
        self.handle = c_void_p()
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            check(library.cublasLtCreate(byref(self.handle)))
        self.workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
        self.plans: dict[Hashable, ProductPlan | None] = {}
        self.right: set[tuple[str, bytes]] = set()  # kinds of products with a kernel whose result was checked here
        self.choices: dict[tuple[str, int], int] = {}
        self.choosing = True  # False: products are not computed on real numbers, so nothing is chosen or checked

    def gelu(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """y and u [N, O] of x [N, I], W [O, I] and b [O]; None: the library has no kernel for this shape."""
        y = x.new_empty(len(x), len(weight))
        u = torch.empty_like(y)

        def written(some: Tensor) -> list[tuple[Tensor, Tensor]]:
            exact = linear(x[some], weight, bias)
            return [(u[some], exact), (y[some], F.gelu(exact, approximate="tanh"))]

        end = GELU if bias is None else GELU_BIAS
        return (y, u) if self._made(Product(end, weight, x, y, FIRST, bias, u), written) else None

    def slope(self, dy: Tensor, weight: Tensor, u: Tensor) -> Tensor | None:
        """du [N, I] of dy [N, O], W [O, I] and u [N, I]."""
        du = torch.empty_like(u)
        product = Product(SLOPE, weight, dy, du, NEITHER, None, u)
        return du if self._made(product, lambda some: [sloped(some, product)]) else None

    def add(self, s: Tensor | None, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
        """y [N, O] of s [N, O], x [N, I], W [O, I] and b [O]; s and b may be None."""
        y = x.new_empty(len(x), len(weight))
        product = Product(PLAIN if bias is None else PLAIN_BIAS, weight, x, y, FIRST, bias, plus=s)

        def written(some: Tensor) -> list[tuple[Tensor, Tensor]]:
            exact = linear(x[some], weight, bias)
            return [(y[some], exact if s is None else s[some].float() + exact)]

        return y if self._made(product, written) else None

    def back(self, dy: Tensor, weight: Tensor) -> Tensor | None:
        """dx [N, I] of dy [N, O] and W [O, I]."""
        dx = dy.new_empty(len(dy), weight.size(1))
        product = Product(PLAIN, weight, dy, dx, NEITHER)
        return dx if self._made(product, lambda some: [(dx[some], dy[some].float() @ weight.float())]) else None

    def gradient(self, dy: Tensor, x: Tensor) -> Tensor | None:
        """dW [O, I] of dy [N, O] and x [N, I], in fp32."""
        dw = torch.empty(dy.size(1), x.size(1), device=x.device, dtype=torch.float32)
        product = Product(PLAIN, x, dy, dw, SECOND)
        return dw if self._made(product, lambda some: [multiplied(some, product)]) else None

    def quickest(self, kind: str, rows: int, sure: Callable[[], Found], *others: Callable[[], Found | None]) -> Found:
        """The result of the fastest of several functions, timed once for this kind of product and number of rows;
        `sure` never returns None."""
        ways = (sure, *others)
        if (kind, rows) not in self.choices:
            if not self._may_choose() or len(self.choices) >= MAX_TIMED_SHAPES:
                return sure()
            self.choices[kind, rows] = self._choose(f"choice {kind}", rows, ways)
        found = ways[self.choices[kind, rows]]()
        return sure() if found is None else found

    def _choose(self, kind: str, rows: int, ways: tuple[Callable[[], object], ...]) -> int:
        known = self.known.near(kind, rows)
        if known is not None and len(known) == 1 and known[0] < len(ways):
            return known[0]
        times = [milliseconds(way) for way in ways]
        best = times.index(min(times))
        self.known.add(kind, rows, bytes([best]))
        return best

    def _may_choose(self) -> bool:
        """Timing is impossible while a graph is captured."""
        return self.choosing and not torch.cuda.is_current_stream_capturing()

    def _made(self, product: Product, written: Callable[[Tensor], list[tuple[Tensor, Tensor]]]) -> bool:
        """Computes the product if it can. The first time it is checked: `written` gives pairs of found and expected."""
        if not product.is_aligned:
            return False
        if (key := product.key) not in self.plans:
            if not self._may_choose():
                return False
            self.plans[key] = self._plan(product, written)
        plan = self.plans[key]
        return plan is not None and plan(product)

    def _plan(self, product: Product, written: Callable[[Tensor], list[tuple[Tensor, Tensor]]]) -> ProductPlan | None:
        if not product.fits:
            return None
        kind, rows = product.kind
        kernel = self.known.near(kind, rows)
        if kernel is not None and len(kernel) == KERNEL_BYTES:
            with suppress(RuntimeError):
                if (kind, kernel) in self.right:  # for other rows; the library was asked whether it can compute these
                    return ProductPlan(self, product, kernel)
            plan = self._checked(product, written, kernel)
            if plan is not None:
                return plan
        plan = self._checked(product, written)
        if plan is not None:
            self.known.add(kind, rows, plan.kernel)
        return plan

    def _checked(
        self, product: Product, written: Callable[[Tensor], list[tuple[Tensor, Tensor]]], kernel: bytes | None = None
    ) -> ProductPlan | None:
        """The plan with this kernel, or with the fastest one; None if there is none or its result is wrong."""
        try:
            plan = ProductPlan(self, product, kernel)
        except RuntimeError:
            return None
        out, written_too = product.out, product.other if product.end in (GELU, GELU_BIAS) else None
        some = torch.linspace(0, len(out) - 1, 16, dtype=torch.float64, device=out.device).long()  # the last row, too
        made = [out] if written_too is None else [out, written_too]
        with torch.no_grad(), torch.autocast(self.device.type, enabled=False):
            for part in made:  # memory that was just freed may hold the right result
                part.fill_(torch.nan)
            right = plan(product) and not any(bool(part.isnan().any()) for part in made)
            right = right and all(is_close(*pair) for pair in written(some))
        if right:
            self.right.add((product.kind[0], plan.kernel))
        return plan if right else None


class ProductPlan:
    """The fastest kernel for one kind and shape of product, or the one that is given."""

    def __init__(self, of: Epilogues, like: Product, kernel: bytes | None = None) -> None:
        self.of, library = of, of.library
        self.product = c_void_p()
        check(library.cublasLtMatmulDescCreate(byref(self.product), c_int(COMPUTE_FP32), c_int(DTYPES[torch.float32])))
        for side, transposed in zip(TRANSPOSE, like.transposed, strict=True):
            self._set(side, c_int32(transposed))
        self._set(EPILOGUE, c_int32(like.end))
        if like.other is not None:
            self._set(OTHER_STRIDE, c_int64(like.out.size(1)))
        self._point(like)
        self.layouts = [layout(library, matrix) for matrix in (like.first, like.second, like.out)]
        self.candidates = (ctypes.c_char * (CANDIDATES * CANDIDATE_BYTES))()
        if kernel is None:
            self.best = self._search(like)
        else:
            self.best = 0
            ctypes.memmove(self.candidates, kernel, KERNEL_BYTES)
            first, second, out = self.layouts
            given = (of.handle, self.product, first, second, out, out, self.candidates, self.candidates)
            check(library.cublasLtMatmulAlgoCheck(*given))  # for this device and shape; the kernel stays as it is
            if c_size_t.from_buffer(self.candidates, KERNEL_BYTES).value > WORKSPACE:
                raise RuntimeError("this kernel needs more memory for this shape")

    def _search(self, like: Product) -> int:
        """Asks the library for candidates, and times them."""
        of, library, search = self.of, self.of.library, c_void_p()
        check(library.cublasLtMatmulPreferenceCreate(byref(search)))
        for name, value in ((MOST_WORKSPACE, c_uint64(WORKSPACE)), (REDUCTION, c_uint32(IN_FP32))):
            amount = c_size_t(ctypes.sizeof(value))
            check(library.cublasLtMatmulPreferenceSetAttribute(search, c_int(name), byref(value), amount))
        found = c_int()
        first, second, out = self.layouts
        given = (of.handle, self.product, first, second, out, out, search, c_int(CANDIDATES))
        check(library.cublasLtMatmulAlgoGetHeuristic(*given, self.candidates, byref(found)))
        check(library.cublasLtMatmulPreferenceDestroy(search))
        times = [milliseconds(functools.partial(self._try, like, number)) for number in range(found.value)]
        if min(times, default=float("inf")) == float("inf"):
            raise RuntimeError("cuBLASLt has no kernel")
        return times.index(min(times))

    @property
    def kernel(self) -> bytes:
        begin = self.best * CANDIDATE_BYTES
        return self.candidates.raw[begin : begin + KERNEL_BYTES]

    def __call__(self, product: Product) -> bool:
        self._point(product)
        return self._try(product, self.best) is not None

    def _try(self, product: Product, number: int) -> bool | None:
        (first, second, result), out = self.layouts, pointer(product.out)
        status = self.of.library.cublasLtMatmul(
            self.of.handle, self.product, byref(c_float(1.0)), pointer(product.first), first,
            pointer(product.second), second, byref(c_float(0.0 if product.plus is None else 1.0)),
            out if product.plus is None else pointer(product.plus), result, out, result,
            byref(self.candidates, number * CANDIDATE_BYTES), pointer(self.of.workspace), c_size_t(WORKSPACE),
            c_void_p(torch.cuda.current_stream(self.of.device).cuda_stream),
        )  # fmt: skip
        return None if status else True

    def _point(self, product: Product) -> None:
        if product.other is not None:
            self._set(OTHER, pointer(product.other))
        if product.bias is not None:
            self._set(BIAS, pointer(product.bias))

    def _set(self, name: int, value: Any) -> None:
        size = c_size_t(ctypes.sizeof(value))
        check(self.of.library.cublasLtMatmulDescSetAttribute(self.product, c_int(name), byref(value), size))


def layout(library: Any, matrix: Tensor) -> c_void_p:
    """The column-major layout of a row-major matrix."""
    made, (columns, rows) = c_void_p(), matrix.shape
    shape = c_uint64(rows), c_uint64(columns), c_int64(rows)
    check(library.cublasLtMatrixLayoutCreate(byref(made), c_int(DTYPES[matrix.dtype]), *shape))
    return made


def pointer(tensor: Tensor) -> c_void_p:
    return c_void_p(tensor.data_ptr())


def milliseconds(way: Callable[[], object], times: int = 3) -> float:
    """Average run time; infinite if it returns None."""
    if way() is None:
        return float("inf")
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        way()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / times


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float())


def multiplied(some: Tensor, product: Product) -> tuple[Tensor, Tensor]:
    return product.out[some], (product.second[:, some].t() @ product.first).float()


def sloped(some: Tensor, product: Product) -> tuple[Tensor, Tensor]:
    _, weight, dy, du, _, _, u, _ = product
    assert u is not None
    above = dy[some].float() @ weight.float()
    return du[some], torch.ops.aten.gelu_backward(above, u[some].float(), approximate="tanh")


def is_close(found: Tensor, expected: Tensor) -> bool:
    """True if equal within the precision of bf16."""
    wrong, most = found.float() - expected, 2e-2
    return bool((wrong.norm() <= most * expected.norm()) & (wrong.abs().max() <= most * expected.abs().max()))


def check(status: int) -> None:
    if status:
        raise RuntimeError(f"cuBLASLt answered with status {status}")
