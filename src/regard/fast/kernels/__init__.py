"""What a GPU runs in place of a few lines of PyTorch, in Triton and CUDA: each beside the written lines it must equal.

Nothing here is needed to understand or to run a model. A module that needs Triton is imported only where there is a GPU
to run it.
"""
