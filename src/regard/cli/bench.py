"""`bench`: Regard and other toolkits, measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.cli.options import Device, Json, Listing
from regard.cli.printing import print_prose

if TYPE_CHECKING:
    from regard.bench.all_benchmarks import Bench
    from regard.bench.contenders import BenchPlace
    from regard.bench.server_load import Load
    from regard.bench.turns import BenchResult, TimedContender

REPEATS, QUICK_REPEATS, SERVE_REPEATS = 7, 2, 5


def bench(
    *names: Annotated[str, Parameter(name="benchmark")],
    device: Device = "auto",
    repeats: int | None = None,
    clients: Annotated[str | None, Parameter(metavar="N,N")] = None,
    seconds: float | None = None,
    quick: bool = False,
    listing: Listing = False,
    json: Annotated[Json, Parameter(help="print JSON, including every repeat")] = False,
) -> None:
    """Benchmark Regard against other toolkits on the same tasks, and against the limits of this machine.

    On a GPU the tasks are as large as in papers; on a CPU they are small. Programs that cannot run are listed with the
    reason. Run nothing else at the same time.

        regard bench --list
        regard bench gpt-train --repeats 3
        regard bench serve --clients 1,16,64

    Parameters
    ----------
    names
        benchmarks to run (`regard bench --list`) [default: all except serve and fast-rows]
    repeats
        timed rounds per program [default: 7; serve: 5; with --quick: 2]
    clients
        serve: numbers of concurrent clients, as in 1,16,64
    seconds
        serve: length of each round in seconds [default: 2]
    quick
        use tiny sizes, to check that everything runs
    listing
        list the benchmarks and the programs compared and exit
    """
    from regard.bench.all_benchmarks import NAMES, SERVE, USUAL, get_bench

    chosen = list({one.name: one for one in map(get_bench, names or (NAMES if listing else USUAL))}.values())
    if listing:
        _print_list(chosen, json)
        return

    from regard.base.device import pick_device
    from regard.bench.contenders import BenchPlace
    from regard.bench.measure import run_benches
    from regard.report.table import print_json

    if repeats is not None:
        check_range("--repeats", repeats, 1)
    numbers = _numbers(clients)
    if seconds is not None:
        check_range("--seconds", seconds, 0)
    where = pick_device(device)
    place = BenchPlace(where, "quick" if quick else "full" if where.type == "cuda" else "small")
    usual, turns = [one for one in chosen if one is not SERVE], repeats or (QUICK_REPEATS if quick else REPEATS)
    results = run_benches(usual, place, turns, each=_tell)
    loads = []
    if SERVE in chosen:
        from regard.bench.server_load import measure

        turns_of_load = repeats or (QUICK_REPEATS if quick else SERVE_REPEATS)
        loads = measure(place, turns_of_load, numbers, seconds, each=_tell_load)
    if json:
        print_json([*(result.as_json() for result in results), *(load.as_json() for load in loads)])
        return
    if results:
        _print_results(results, turns)
    if loads:
        _print_loads(loads, place)
    if quick:
        print_prose("These sizes are too tiny to measure speed: run without --quick for real numbers.")


def _numbers(clients: str | None) -> list[int]:
    """1,16,64 as numbers."""
    try:
        found = [int(number) for number in clients.split(",")] if clients else []
    except ValueError:
        raise RegardError(f"--clients takes numbers separated by commas, as in 1,16,64, not {clients!r}.") from None
    for number in found:
        check_range("--clients", number, 1, 512)
    return found


def _print_list(chosen: Sequence[Bench], as_json: bool) -> None:
    from regard.report.table import print_json, print_table

    rows = [{"name": one.name, "work": one.work, "peers": one.peers} for one in chosen]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, {"name": "benchmark", "work": "work", "peers": "compared with"})


def _tell(result: BenchResult) -> None:
    """A line of the log for each row as it is done, peers too: a run that is cut short has then said what it found."""
    from regard.report.progress import say

    ours, *peers = (f"{_rate(result, entry) or entry.why}" for entry in result.entries)
    names = (entry.contender.name for entry in result.entries[1:])
    say(" · ".join([f"{result.row.name}: {ours}", *(f"{name} {rate}" for name, rate in zip(names, peers))]))


def _print_results(results: Sequence[BenchResult], repeats: int) -> None:
    from regard.report.table import print_table

    headings = {
        "name": "name", "work": "work", "calls": "calls", "regard": "Regard", "peer": "peer", "rate": "peer's rate",
        "ratio": "ratio", "share": "share of limit", "memory": "memory", "note": "note",
    }  # fmt: skip
    print_table([line for result in results for line in _lines(result)], headings)
    print()
    for machine in dict.fromkeys(result.machine for result in results):
        facts = machine.as_json()
        print_prose(
            f"{facts['device']}, torch {facts['torch']}, {facts['threads']} thread{'s' * (facts['threads'] > 1)}. Peak "
            f"rates in this run: {_short(machine.matmul_rate)}FLOP/s in {facts['precision']} matrix products and "
            f"{_short(machine.copy_rate)}B/s in copies (bytes read and written). The limit is the speed at which these "
            "rates would do the work."
        )
    print_prose(
        f"Each rate is the median of {repeats} round{'s' * (repeats > 1)} ± half the range; the programs take "
        "turns, and the ratio is the median over rounds. Calls: warm-up (not timed), then per round. "
        "Memory is the peak above what was in use before. Memory and share of the limit: Regard's / the peer's."
    )


def _lines(result: BenchResult) -> list[dict[str, Any]]:
    """A line for each peer."""
    ours, *peers = result.entries
    return [
        {
            "name": result.row.name,
            "work": result.row.work,
            "calls": f"{result.row.warm_up}, then {result.row.calls} per round",
            "regard": _rate(result, ours),
            "peer": peer.contender.name,
            "rate": _rate(result, peer),
            "ratio": _times(result.ratio(peer)),
            "share": _both(_percent(result.share(ours)), _percent(result.share(peer))),
            "memory": _both(_mebibytes(ours.memory), _mebibytes(peer.memory)),
            "note": " ".join(filter(None, [ours.why and f"Regard: {ours.why}", peer.why])),
        }
        for peer in peers
    ]


def _tell_load(load: Load) -> None:
    """All that is known of these clients so far: a run that is cut short has then said what it found."""
    from regard.report.progress import say

    said = _load_line(load)
    who = f"{load.server}, {load.clients} client{'s' * (load.clients > 1)}, round {len(load.rates)}"
    ratio = f" ({said['times']} one client)" if load.clients > 1 and said["times"] else ""
    say(
        f"{who}: {said['rate']}{ratio}, {said['own']} per CPU second, "
        f"first token {said['first']} ms, full text {said['whole']} ms (p50 / p99)"
    )


def _load_line(load: Load) -> dict[str, Any]:
    from regard.base.numbers import group_digits

    facts = load.facts()
    own, times = facts["tokens_per_processor_second"], facts["times_one_client_by_processor"]
    line = {"server": load.server, "clients": load.clients, "note": load.why}
    if not load.rates:
        return line
    return line | {
        "rate": f"{group_digits(facts['median'])} tokens/s ± {100 * facts['spread']:.0f} %",
        "times": _times(facts["times_one_client"]),
        "requests": f"{facts['requests_per_second']:.3g}",
        "first": _milliseconds(facts["first_token_seconds"]),
        "whole": _milliseconds(facts["whole_seconds"]),
        "own": own and f"{group_digits(own)}" + (f" ({_times(times)})" if times else ""),
    }


def _print_loads(loads: Sequence[Load], place: BenchPlace) -> None:
    import os

    from regard.base.device import device_name
    from regard.report.table import print_table

    headings = {
        "server": "server", "clients": "clients", "rate": "rate", "times": "× one client", "requests": "requests/s",
        "first": "first token, ms", "whole": "full text, ms", "own": "tokens per CPU second",
        "same": "same texts as alone", "note": "note",
    }  # fmt: skip
    print_table([_load_line(load) | {"same": load.texts_as_alone()} for load in loads], headings)
    print()
    turns = " and ".join(f"{len(side.rates)} of {side.server}" for side in loads if side.clients == loads[0].clients)
    busy = f" The machine's load was {os.getloadavg()[0]:.1f} at the end." if hasattr(os, "getloadavg") else ""
    print_prose(
        f"{device_name(place.device)}, {os.cpu_count()} cores: {loads[0].work}. Medians over rounds ({turns}) ± half "
        f"the range; times are p50 / p99 over all requests, and CPU time is the server's alone.{busy}"
    )


def _milliseconds(seconds: dict[str, float]) -> str:
    return f"{1000 * seconds['p50']:.0f} / {1000 * seconds['p99']:.0f}"


def _rate(result: BenchResult, entry: TimedContender) -> str | None:
    from regard.base.numbers import group_digits
    from regard.bench.turns import spread

    if not entry.rates:
        return None
    middle, about = median(entry.rates), f"± {100 * (spread(entry.rates) or 0.0):.0f} %"
    if result.row.unit == "starts/s":
        return f"{1 / middle:.2f} s {about}"
    return f"{group_digits(middle)} {result.row.unit} {about}"


def _both(ours: str, theirs: str) -> str:
    return "" if ours == theirs == "–" else f"{ours} / {theirs}"


def _times(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.2f} ×"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _mebibytes(size: int | None) -> str:
    from regard.base.numbers import group_digits

    return "–" if size is None else f"{group_digits(size / 2**20)} MiB"


def _short(rate: float) -> str:
    """788 T, 41.3 G: the rate with its prefix."""
    for prefix in ("", "k", "M", "G", "T"):
        if rate < 1000 or prefix == "T":
            break
        rate /= 1000
    return f"{rate:.3g} {prefix}"
