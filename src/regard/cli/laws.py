"""`laws`: test a system against the contract."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from regard.cli.options import ARGUMENTS, Json


def laws(target: Annotated[str, Parameter(group=ARGUMENTS, name=("system", "target"))], *, json: Json = False) -> None:
    """Test a system or your own layer against the laws that every model must obey. Exit with code 1 if one is broken.

        regard laws lstm
        regard laws ./mine.py:MyCell

    Parameters
    ----------
    target
        a system (`regard systems`), or your own Layer, Cell or Model: ./mine.py:MyCell or my.package:MyCell
    """
    from dataclasses import asdict

    from regard.laws.registry import LAWS, builder, run_laws
    from regard.report.progress import progress
    from regard.report.table import print_json

    build = builder(target)
    with progress(f"laws of {target}", len(LAWS)) as bar:
        results = run_laws(build, lambda result: bar.advance(1))
    broken = [result for result in results if not result.holds]
    if json:
        print_json([asdict(result) for result in results])
    else:
        told: dict[str, int] = {}  # a crash in every law is told once
        for result in results:
            print(f"{'✓' if result.holds else '✗'} {result.number:2}  {result.wording}")
            if not result.holds:
                first = told.setdefault(result.sentence, result.number)
                print(f"      {result.sentence}" if first == result.number else f"      the same as law {first}")
        print(f"\n{target} " + (f"breaks {len(broken)} of {len(results)} laws." if broken else "obeys every law."))
    if broken:
        sys.exit(1)
