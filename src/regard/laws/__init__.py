"""The laws that every system obeys, as functions that raise one sentence about what broke; `regard laws` checks any
system, also a user's own.

    contract.py     the laws of the call        searching.py, learning.py     the laws of decoding and training
    closeness.py    random cases, and comparing two results
    registry.py     all of them by number, and `run_laws`
"""
