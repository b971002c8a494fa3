"""The boot: flags, cards, host memory, budget, load, settling; each in the order of the engine, each with its words."""

from __future__ import annotations

import time
from pathlib import Path

from support.radiance_sim.budget import MODEL_CONTEXT, Budget, Refused, pinned_mib, resolve, size
from support.radiance_sim.config import Simulation
from support.radiance_sim.flags import Options
from support.radiance_sim.log import GB, LOAD_STEP_MIB, Log, budget_table, kv_lines, load_line, settle

SERVES_TP = (1, 2, 3, 4, 8)
"""An expert of the model is five blocks of 128, which six ranks cannot share."""
MIB = 1024 * 1024


def boot(options: Options, simulation: Simulation, log: Log) -> Budget:
    """Everything before the port is opened. Raises Refused."""
    ranks = options.number("--tp", 1)
    _check_ranks(ranks, simulation)
    log.say("I", f"device: AQL backend, {simulation.cards} device(s) (SIMULATED, gfx1201)")
    model = Path(options.text("--model"))
    total_mib = _model_mib(model)
    log.say("I", f"model: {model.stem}  arch=qwen4exp  quant=fp8-iq4r  48 layers  {MODEL_CONTEXT} ctx")
    _check_pinned(options, simulation)
    budget = resolve(options, simulation)
    if options.values.get("--debug-placement"):
        log.say("I", f"placement: {size(budget.experts)} of experts on each card, the rest in the host pool")
    log.say("I", budget_table(budget))
    kv_lines(log, budget, options)
    _tier(options, log)
    _load(total_mib, budget, simulation, log)
    if simulation.fail == "exit":
        raise Refused("a device was lost while the weights were moved")
    log.say(
        "I", f"activation arena: lends {size(budget.arena)} while steps are at most 64 tokens, never at the full plan"
    )
    pools = size(budget.experts + budget.kv)
    log.say("I", f"device allocations: 14 totalling {pools}, of which {pools} is the two pools")
    settle(log, budget, options, simulation)
    while simulation.fail == "hang":
        time.sleep(1)
    return budget


def _check_ranks(ranks: int, simulation: Simulation) -> None:
    if ranks not in SERVES_TP:
        raise Refused(f"--tp {ranks}: an expert of this model is 5 blocks of 128, which {ranks} ranks cannot share")
    if ranks > simulation.cards:
        raise Refused(f"--tp {ranks} needs {ranks} devices of one architecture, {simulation.cards} are there")


def _model_mib(model: Path) -> float:
    try:
        return model.stat().st_size / MIB
    except OSError as err:
        raise Refused(f"cannot open {model}: {err.strerror}") from None


def _check_pinned(options: Options, simulation: Simulation) -> None:
    """Pinned host memory against the kernel's cap, where the simulation has one. The engine's words are not known."""
    if not simulation.pages_limit:
        return
    limit = int(Path(simulation.pages_limit).read_text().strip() or 0) * 4096 / MIB
    wanted = pinned_mib(options)
    if wanted > limit:
        raise Refused(
            f"host pool: {size(wanted)} of host memory cannot be pinned, the kernel allows {size(limit)}: "
            f"{size(wanted - limit)} too many (hipErrorOutOfMemory)"
        )


def _tier(options: Options, log: Log) -> None:
    """The disk tier of the older versions: without its parent folder it is off, and the server goes on."""
    folder = options.text("--prefix-cache-dir")
    if folder and not Path(folder).parent.is_dir():
        log.say("E", f"cannot create {folder}")


def _load(total_mib: float, budget: Budget, simulation: Simulation, log: Log) -> None:
    start, done = time.monotonic(), 0.0
    pace = total_mib / simulation.load_s if simulation.load_s else 0.0
    while done < total_mib:
        done = min(total_mib, done + LOAD_STEP_MIB)
        if pace:
            time.sleep(max(0.0, start + done / pace - time.monotonic()))
        seconds = max(time.monotonic() - start, 1e-3)
        log.say("I", load_line(done, total_mib, done * MIB / GB / seconds))
    seconds = max(time.monotonic() - start, 1e-3)
    rate = total_mib * MIB / GB / seconds
    log.say("I", f"load: one pass over the container, {size(total_mib)} read in {seconds:.1f} s ({rate:.1f} GB/s)")
    for rank in range(log.ranks):
        pool = size(budget.experts)
        log.say("I", f"load: rank {rank}, mover took {pool}, weights pool 0.44 MiB free of {pool}", rank)
