"""Chosen rows of `regard bench sizes`, also with other training settings.

python studies/size_rows.py gpt:medium linear-attention:medium llama:medium --repeats 2
python studies/size_rows.py llama:medium --setting optimizer=muon --setting ema=0.999 --alone
"""

from __future__ import annotations

import argparse
import gc
from dataclasses import replace
from statistics import median

import torch

from regard.base.device import pick_device
from regard.bench import sizes
from regard.bench.contenders import BenchPlace
from regard.bench.machine import Machine
from regard.bench.turns import spread, take_turns
from regard.systems.catalogue import find


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", metavar="SYSTEM:SIZE")
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="of training")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true", help="a toy corpus, to see that everything runs")
    parser.add_argument("--alone", action="store_true", help="without the plain loop, which has only the defaults")
    options = parser.parse_args()
    place = BenchPlace(pick_device(options.device), "quick" if options.quick else "full")
    machine = Machine(place)
    own = dict(setting.split("=", 1) for setting in options.setting)
    training = {name: float(value) if value[0].isdigit() else value for name, value in own.items()}
    for name in options.rows:
        system, size = name.split(":")
        row = sizes.row(find(system), size, place, training)
        row = replace(row, contenders=row.contenders[: 1 if options.alone else None])
        result = take_turns(row, machine, options.repeats)
        each = [
            f"{entry.contender.name}: {median(entry.rates):,.0f} ± {100 * (spread(entry.rates) or 0):.0f} %"
            if entry.rates
            else f"{entry.contender.name}: {entry.why}"
            for entry in result.entries
        ]
        share = f", {100 * (result.share(result.entries[0]) or 0):.0f} % of the limit"
        print(f"{row.name} ({row.work}): {'; '.join(each)}{share}", flush=True)
        gc.collect()
        if place.device.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
