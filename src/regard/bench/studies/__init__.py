"""Measurements behind single figures of the documentation: `python -m regard.bench.studies.NAME --help`.

`regard bench` measures what everyone wants to know; a study answers one question, often beside a program that has to be
installed first.
"""
