"""Compiles CUDA C++ at run time with NVRTC, which comes with PyTorch, so no CUDA toolkit is needed.

What was compiled is kept in the cache, under a digest of the source, the options and the compiler.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.base.cache import cached

SHARED_MEMORY = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


class CompiledKernel:
    """A kernel on the current device, with `threads` per block and `cluster` blocks per cluster."""

    is_held: Callable[[], bool] = staticmethod(lambda: False)  # True: a call does nothing (compile_ahead.py)

    def __init__(self, source: str, name: str, options: list[str], *, threads: int, cluster: int, shared: int) -> None:
        self.threads, self.cluster, self.shared = threads, cluster, shared
        self.device = torch.cuda.current_device()
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        major, minor = torch.cuda.get_device_capability()
        binary = compiled(source, [f"--gpu-architecture=sm_{major}{minor}", *options])
        torch.cuda.current_stream()  # initialises the driver
        _must(_driver().cuModuleLoadData(ctypes.byref(module), binary))
        _must(_driver().cuModuleGetFunction(ctypes.byref(self.function), module, name.encode()))
        _must(_driver().cuFuncSetAttribute(self.function, SHARED_MEMORY, shared))

    def clusters(self) -> int:
        """How many clusters can be resident on the device at once."""
        attribute = _Attribute(CLUSTER, 0, (ctypes.c_uint * 16)(self.cluster, 1, 1))
        launch = _Launch(self.cluster, 1, 1, self.threads, 1, 1, self.shared, None, ctypes.pointer(attribute), 1)
        most = ctypes.c_int()
        _must(_driver().cuOccupancyMaxActiveClusters(ctypes.byref(most), self.function, ctypes.byref(launch)))
        return most.value

    def __call__(self, blocks: int, *arguments: Tensor | int) -> None:
        if CompiledKernel.is_held():
            return
        values = [
            ctypes.c_void_p(value.data_ptr()) if isinstance(value, Tensor) else ctypes.c_int(value)
            for value in arguments
        ]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream(self.device).cuda_stream)
        with torch.cuda.device(self.device):
            _must(
                _driver().cuLaunchKernel(
                    self.function, blocks, 1, 1, self.threads, 1, 1, self.shared, stream, pointers, None
                )
            )


def compiled(source: str, options: list[str]) -> bytes:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _compiler().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    told = "\0".join([source, *options, str(torch.version.cuda), f"{major.value}.{minor.value}"])
    name = f"{hashlib.blake2b(told.encode(), digest_size=16).hexdigest()}.cubin"
    return cached("kernels", name, lambda: compile_now(source, options), bytes, bytes)


def compile_now(source: str, options: list[str]) -> bytes:
    compiler, program, size = _compiler(), ctypes.c_void_p(), ctypes.c_size_t()
    compiler.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    failed = compiler.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    )
    if failed:
        compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        compiler.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.value.decode())
    compiler.nvrtcGetCUBINSize(program, ctypes.byref(size))
    binary = ctypes.create_string_buffer(size.value)
    compiler.nvrtcGetCUBIN(program, binary)
    compiler.nvrtcDestroyProgram(ctypes.byref(program))
    return binary.raw


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


@cache
def _compiler() -> Any:
    """PyTorch's copy of NVRTC, in site-packages or among the system's libraries."""
    name = f"libnvrtc.so.{str(torch.version.cuda).split('.')[0]}"
    beside = [found for path in sys.path for found in Path(path or ".").glob(f"nvidia/*/lib/{name}")]
    return ctypes.CDLL(str(beside[0]) if beside else name)


def _must(result: int) -> None:
    if result:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(result, ctypes.byref(text))
        raise RuntimeError(f"CUDA: {(text.value or b'unknown error').decode()}")


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("gap", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _Launch(ctypes.Structure):
    _fields_ = (
        *((f"{kind}_{axis}", ctypes.c_uint) for kind in ("grid", "block") for axis in "xyz"),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("amount", ctypes.c_uint),
    )
