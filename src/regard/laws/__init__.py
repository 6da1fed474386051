"""The laws every system obeys, as functions that say in one sentence what broke; `regard laws` runs them on any of
them, also on one's own.

    contract.py     the laws of the call        searching.py, learning.py     the laws of those who use it
    closeness.py    what is drawn and how two answers are compared
    registry.py     all of them by number, and `run_laws`
"""
