"""How long `fleet plan` and `fleet gate` take for a fleet, and how that grows with it.

The aim: 1,000 hosts x 5 endpoints, plan and gate together, under 10 s and 500 MiB, the start of Python and
ansible-inventory included; linear growth.

python benchmarks/fleet_1000.py [--by-host] [--own [--different]] [HOSTS ...]       default: 125 250 500 1000

Hosts are of ten kinds, each with a gathered profile of its own (the profiles differ by name and bus addresses). There
are 20 declarations, and each host has five of them by its group; with --by-host each says so itself, as a placement
does, which costs Ansible more. With --own every host has five declaration files of its own, 5,000 in all, copies that
differ in their comments; with --different each has another context length too, so that no plan serves two. `place` is
a fleet file for as many replicas, on the same hosts with nothing on them yet.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests"))

from support.fleet_files import declaration, profile, write_model  # noqa: E402

COUNTS = (125, 250, 500, 1000)
KINDS = 10
POOL = 20
EACH = 5
GOAL_S, GOAL_MIB = 10.0, 500


def make(folder: Path, hosts: int, *, own: bool = False, by_host: bool = False, different: bool = False) -> None:
    """An inventory, the facts, the declarations and a fleet file."""
    (folder / "env").mkdir()
    (folder / "facts").mkdir()
    model = write_model(folder / "model")
    texts = {f"e{n:02}": declaration(model, port=8100 + n, seqs=2 + n % 4, tp=1 + (n % EACH == 0)) for n in range(POOL)}
    for name, text in texts.items():
        (folder / "env" / f"{name}.toml").write_text(text)
    by_name: dict[str, object] = {}
    groups: dict[str, dict[str, dict[str, object]]] = {}
    empty: dict[str, object] = {}
    for number in range(hosts):
        host = f"gpu{number:04}"
        (folder / "facts" / f"{host}.toml").write_text(profile(host, 8, ram_mib=500_000 + 1000 * (number % KINDS)))
        begin = number % (POOL // EACH) * EACH
        names = [f"e{begin + n:02}" for n in range(EACH)]
        paths = [f"env/{name}.toml" for name in names]
        if own:
            (folder / "env" / host).mkdir()
            paths = [f"env/{host}/{name}.toml" for name in names]
            for position, name in enumerate(names):
                text = f"# {host}\n{texts[name]}"
                if different:
                    text = text.replace("len = 32768", f"len = {16_384 + EACH * number + position}")
                (folder / "env" / host / f"{name}.toml").write_text(text)
        first = 0
        entries = []
        for name, path in zip(names, paths, strict=True):
            wide = 2 if int(name[1:]) % EACH == 0 else 1
            cards = list(range(first, first + wide))
            env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, cards))}
            entries.append({"declaration": path, "cards": cards, "env": env})
            first += wide
        by_name[host] = {"archon_endpoints": entries}
        group = groups.setdefault(f"row{begin}", {"hosts": {}, "vars": {"archon_endpoints": entries}})
        group["hosts"][host] = {}
        empty[host] = {}
    inventory = {"hosts": by_name} if by_host or own else {"children": groups}
    (folder / "inventory.yml").write_text(json.dumps({"all": inventory}))
    (folder / "empty.yml").write_text(json.dumps({"all": {"hosts": empty}}))
    rows = [f"[endpoints.{name}]\nreplicas = {hosts * EACH // POOL}\n" for name in texts]
    (folder / "fleet.toml").write_text("\n".join(rows))


class Run(NamedTuple):
    """Seconds on the clock and of the processors (with ansible-inventory), peak MiB, exit code."""

    seconds: float
    cpu_s: float
    peak_mib: int
    code: int


def timed(folder: Path, *words: str) -> Run:
    """One command."""
    command = [sys.executable, "-m", "archonctl", "fleet", *words, "--facts", "facts", "--json"]
    start = time.perf_counter()
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    cpu_s = usage.ru_utime + usage.ru_stime
    return Run(time.perf_counter() - start, cpu_s, usage.ru_maxrss // 1024, child.returncode)


def main() -> None:
    """Print a row a size, then whether the aim is met and how the time grew."""
    words = sys.argv[1:]
    own, by_host, different = ("--own" in words, "--by-host" in words, "--different" in words)
    counts = [int(word) for word in words if word.isdecimal()] or list(COUNTS)
    print(f"{'hosts':>6} {'plan s':>7} {'gate s':>7} {'both s':>7} {'of CPU':>7} {'place s':>8} {'peak MiB':>9}  exits")
    spent: dict[int, tuple[float, float]] = {}
    peak = 0
    for hosts in counts:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            make(folder, hosts, own=own, by_host=by_host, different=different)
            plan = timed(folder, "plan", "-i", "inventory.yml")
            gate = timed(folder, "gate", "-i", "inventory.yml")
            place = timed(folder, "plan", "-i", "empty.yml", "fleet.toml")
        both, cpu_s = plan.seconds + gate.seconds, plan.cpu_s + gate.cpu_s
        spent[hosts] = (both, cpu_s)
        peak = max(run.peak_mib for run in (plan, gate, place))
        exits = f"{plan.code} {gate.code} {place.code}"
        figures = (
            f"{plan.seconds:>7.2f} {gate.seconds:>7.2f} {both:>7.2f} {cpu_s:>7.2f} {place.seconds:>8.2f} {peak:>9,}"
        )
        print(f"{hosts:>6} {figures}  {exits}", flush=True)
    first, last = counts[0], counts[-1]
    met = spent[last][0] <= GOAL_S and peak <= GOAL_MIB
    wall, cpu = (spent[last][n] / spent[first][n] for n in (0, 1))
    print(
        f"{last / first:.1f} times the hosts in {wall:.1f} times the time, {cpu:.1f} times the processor's; "
        f"the aim is {'met' if met else 'missed'}"
    )


if __name__ == "__main__":
    main()
