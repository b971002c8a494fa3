"""The identity leg: who answers on the port is the engine that was deployed, and it works on the device. Pure.

What is judged was gathered by whoever may look into processes (``service/identity.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePath

from archonctl.ledger.values import BootLedger
from archonctl.probe.readback import read_back
from archonctl.probe.values import Leg, Proof

LEG = "identity"
_CLOCK_S = 2.0
"""A process and a file of one moment may be this far apart by their time stamps."""


@dataclass(frozen=True, slots=True)
class Process:
    """The listening process as the kernel shows it. Times are Unix seconds; None where something may not be seen.

    ``ours``: it is the engine that was started, descends from it, or is in the unit's control group. ``deployed_at``:
    when its release became the current one. ``device``: what it should work on, in words; "" if on no device.
    ``layers``: how many layers were asked for on it. ``device_open``: it, or a child, has a device node open.
    """

    pid: int | None
    ours: bool | None
    argv: tuple[str, ...] = ()
    cmdline: tuple[str, ...] = ()
    started_at: float | None = None
    deployed_at: float | None = None
    container: bool = False
    device: str = ""
    layers: int | None = None
    device_open: bool | None = None
    device_bytes: int | None = None
    who: str = ""


def process_json(process: Process) -> dict[str, object]:
    """As plain JSON values. Arguments are compared, not kept: some hold what is nobody's business."""
    rest = asdict(process)
    del rest["argv"], rest["cmdline"]
    return rest | {"argv_runs": argv_runs(process)}


def process_from(value: Mapping[str, object]) -> tuple[Process, bool | None]:
    """The reverse, and what the comparison of arguments gave. Raises TypeError, ValueError or KeyError for anything
    else."""
    rest = dict(value)
    runs = rest.pop("argv_runs")
    return read_back(Process, rest), runs if isinstance(runs, bool) else None


def argv_runs(process: Process) -> bool | None:
    """True if it has the rendered arguments, False if the same program has others; None where that cannot be said.

    A script has its interpreter in front of it (execve(2)); a wrapper ends in another program, whose arguments are its
    own affair as long as the rendered ones are not among them.
    """
    argv, found = process.argv, process.cmdline
    if not argv or not found or process.container:
        return None
    program, rest = PurePath(argv[0]).name, argv[1:]
    same_program = program in {PurePath(word).name for word in found[: max(1, len(found) - len(rest))]}
    if rest and found[-len(rest) :] == rest:
        return True  # the last of two equal flags wins in most engines: nothing may follow
    return (not rest and PurePath(found[-1]).name == program) if same_program else None


def judge_identity(process: Process, ledger: BootLedger | None, runs: bool | None = None) -> Leg:
    """The leg. ``runs`` replaces the comparison of arguments where they are not kept."""
    same = argv_runs(process) if runs is None else runs
    found = _foreign(process) or _other_argv(process, same) or _device(process, ledger) or _older(process)
    return found or _pass(process, same)


def _leg(process: Process, status: str, code: str, message: str, expected: str = "", actual: str = "") -> Leg:
    return Leg(
        LEG,
        "fail" if status == "fail" else "no evidence",
        message,
        code=code,
        expected=expected,
        actual=actual,
        evidence=process.who,
        required=status == "unseen",
        proof=_proof(process),
        observed=process_json(process),
    )


def _proof(process: Process) -> tuple[Proof, ...]:
    return (Proof("process", f"pid {process.pid}", process.who),) if process.pid is not None else ()


def _foreign(process: Process) -> Leg | None:
    if process.ours is False:
        said = f"{process.who or 'another process'} listens on the port, and it is not the engine that was started"
        return _leg(process, "fail", "listener-foreign", said, "the engine", process.who or "another process")
    if process.pid is None or process.ours is None:
        said = "who listens on the port may not be looked into"
        return _leg(process, "hidden", "identity-hidden", said)
    return None


def _other_argv(process: Process, same: bool | None) -> Leg | None:
    if same is not False:
        return None
    said = f"pid {process.pid} runs the program with other arguments than its release has"
    return _leg(process, "fail", "argv-differs", said, "the rendered arguments", "others")


def _older(process: Process) -> Leg | None:
    """Clocks are set and step, so that this alone never breaks a contract."""
    if process.started_at is None or process.deployed_at is None:
        return None
    ahead = process.deployed_at - process.started_at
    if ahead <= _CLOCK_S:
        return None
    said = f"pid {process.pid} started {ahead:,.0f} s before its release became the current one: it may run another"
    return _leg(process, "unseen", "started-before-deploy", said, "a start after the deployment", "one before it")


def _device(process: Process, ledger: BootLedger | None) -> Leg | None:
    """A device that was asked for and is not used. What the log says in the end outranks what it said on the way."""
    if not process.device:
        return None
    done, every = (ledger.get("offloaded_layers"), ledger.get("model_layers")) if ledger else (None, None)
    if done is not None and every is not None:
        return _layers(process, int(done.best), int(every.best))
    if process.device_bytes:
        return None
    kv = ledger.figures.get("kv_tokens") if ledger else None
    said_cpu = kv is not None and "CPU KV cache size" in kv.text
    fell_back = ledger is not None and ledger.has("cpu-fallback") and not process.device_open
    if said_cpu or fell_back or process.device_open is False:
        why = "its log says so" if said_cpu or fell_back else "no process of it has a device open"
        said = f"{process.device} is asked for and the engine works on the CPU: {why}"
        return _leg(process, "fail", "cpu-fallback", said, process.device, "the CPU")
    return None


def _layers(process: Process, done: int, every: int) -> Leg | None:
    wanted = every if process.layers is None else min(process.layers, every)
    if done >= wanted or (done and process.layers is None):
        return None
    code = "partial-offload" if done else "cpu-fallback"
    said = f"{done:,} of {every:,} layers are on the device, {wanted:,} were asked for"
    return _leg(process, "fail", code, said, f"{wanted:,} layers", f"{done:,} layers")


def _pass(process: Process, same: bool | None) -> Leg:
    how = "with the rendered arguments" if same else "its arguments were not compared"
    where = f", {process.device} in use" if process.device and (process.device_open or process.device_bytes) else ""
    numbers = {"device_bytes": process.device_bytes} if process.device_bytes is not None else {}
    return Leg(
        LEG,
        "pass",
        f"pid {process.pid} is the engine that was started, {how}{where}",
        evidence=process.who,
        required=False,
        proof=_proof(process),
        observed=process_json(process),
        numbers=dict(numbers),
    )
