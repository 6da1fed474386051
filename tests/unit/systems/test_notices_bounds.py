"""The default, the bounds and the choices of every setting: a run without the option shows the default, and only who
goes too far meets a bound, so that no other test notices either.

They are compared with tests/golden/setting_bounds.json; `python tests/unit/systems/test_notices_bounds.py` writes it
anew.
"""

import dataclasses
import json
import math
import sys
from pathlib import Path

import pytest

from regard.base.errors import RegardError
from regard.systems.catalogue import SYSTEMS, load_module

GOLDEN = Path(__file__).parents[2] / "golden" / "setting_bounds.json"
NAMES = [system.name for system in SYSTEMS]


def declared(system):
    found = {}
    for field in dataclasses.fields(load_module(system).Settings):
        meta = field.metadata
        unset = {} if meta["unset"] is None else {"unset": meta["unset"]}
        chosen = {"choices": list(meta["choices"])} if meta["choices"] else {}
        found[field.name] = {"default": field.default, **meta["bounds"], **unset, **chosen}
    return found


@pytest.mark.parametrize("system", NAMES)
def test_defaults_and_bounds_change_only_on_purpose(system):
    assert declared(system) == json.loads(GOLDEN.read_text(encoding="utf-8"))[system]


@pytest.mark.parametrize("system", NAMES)
def test_what_is_beyond_a_bound_is_refused(system):
    settings = load_module(system).Settings
    for name, known in json.loads(GOLDEN.read_text(encoding="utf-8"))[system].items():
        whole = isinstance(known["default"], int)
        for bound, inside in (("ge", 1), ("gt", 1), ("le", -1), ("lt", -1)):
            if bound not in known:
                continue
            edge = known[bound]
            beyond = edge - inside if whole else math.nextafter(edge, -inside * math.inf)
            for value in [beyond] + [edge] * (bound in ("gt", "lt")):
                if value != known.get("unset"):
                    with pytest.raises(RegardError, match=f"model.{name} must be"):
                        settings(**{name: value})


if __name__ == "__main__":
    written = {
        f' "{system}": {{\n' + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in declared(system).items())
        for system in NAMES
    }
    lines = [each + "\n }" for each in sorted(written)]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    sys.exit(0)
