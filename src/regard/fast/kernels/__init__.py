"""GPU kernels in Triton and CUDA; each module names the PyTorch code whose results it must equal.

Nothing here is needed to understand or to run a model. Modules that need Triton are imported only on a GPU.
"""
