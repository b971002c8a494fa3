"""``archonctl fleet apply``, ``rollback``, ``probe``, ``status``, ``drift``: a playbook over hosts, and its outcome."""

from __future__ import annotations

import os
import pwd
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from archonctl.errors import HostRefusal, UsageError
from archonctl.fleet.facts import facts_folder
from archonctl.fleet.host_variables import FleetHost
from archonctl.fleet.inventory import Inventory, base_folders
from archonctl.fleet.rollout.follow import HostFollower
from archonctl.fleet.rollout.happenings import Happening, happening_of
from archonctl.fleet.rollout.keep import keep_facts
from archonctl.fleet.rollout.lock import rollout_lock
from archonctl.fleet.rollout.marks import LEASE_S, gone_rollouts, marked
from archonctl.fleet.rollout.playbook import TASK_SLACK_S, Play, Running, running
from archonctl.fleet.rollout.values import CHANGES, Action, Fault, FleetResult, HostResult
from archonctl.probe.values import Depth
from archonctl.redact import without_secrets
from archonctl.service.interrupts import Interrupted, Interrupts
from archonctl.service.operator import operator

PLAYBOOKS: dict[Action, str] = {
    "apply": "rolling",
    "rollback": "rollback",
    "probe": "probe",
    "status": "status",
    "drift": "drift",
}

Watch = Callable[[Happening, HostResult], None]
"""Told of everything that happens, with the host's result as far as it is known."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run shall do. ``serial`` is how many hosts are changed at once after the canary (the first host where
    none is named), ``timeout_s`` bounds the change of one endpoint."""

    action: Action
    canary: str = ""
    serial: int = 1
    forks: int = 10
    check: bool = False
    depth: Depth = "full"
    timeout_s: int = 3600
    facts: str = ""
    take_over: bool = False
    """Whether leases of somebody else's rollout, which is known to be gone, are taken over."""
    to: str = ""
    """Which release to go back to: its digest, or the N-th that held; empty: the last other one that held."""


def run_over(
    inventory: Inventory, asked: Asked, environ: Mapping[str, str], watch: Watch = lambda _what, _host: None
) -> FleetResult:
    """Run it, and say what became of every host; never raises for a host.

    Raises UsageError ``fleet-ansible-missing``, ``fleet-host-unknown`` (the canary), ``fleet-nothing-declared``,
    HostRefusal ``fleet-busy`` and ``fleet-ansible-failed``, and DeclarationError for a host's wrong variables where
    something would be changed.
    """
    who = who_asks(environ)
    hosts = _hosts(inventory, asked)
    play = _play(inventory, asked, hosts, who, gone_rollouts(environ))
    run = _Run(asked, {host.name: HostFollower(host.name, asked.action, check=asked.check) for host in hosts}, watch)
    mark: Path | None = None
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        if asked.action in CHANGES and not asked.check:
            stack.enter_context(rollout_lock(inventory.sources, who, environ))
            mark = stack.enter_context(marked(str(play.variables["archon_rollout"]), environ))
        ansible = stack.enter_context(running(play, environ))
        try:
            run.follow(ansible)
        except Interrupted as stop:
            interrupts.shield()
            interrupts.hurry = ansible.stop
            run.signal = stop.number
            ansible.stop()
            run.follow(ansible)
        code = ansible.wait()
        run.ended = f"ansible-playbook ended with {code}: {_said(ansible.talk)}"
        run.keep(facts_folder(inventory.sources, environ, asked.facts))
        if code and not run.heard and not run.signal:
            raise _ansible_failed(code, ansible.talk)
        is_whole = not code and not run.signal  # it came to its own last play, which lets the hosts go
        if mark is not None and (is_whole or run.release(play, environ)):
            mark.unlink(missing_ok=True)
    return run.result(who)


@dataclass
class _Run:
    asked: Asked
    hosts: dict[str, HostFollower]
    watch: Watch
    signal: int = 0
    heard: bool = False
    remarks: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.time)
    order: list[str] = field(default_factory=list)
    """Hosts in the order in which something went wrong there."""
    ended: str = ""
    """How ansible-playbook ended."""

    def follow(self, lines: Iterator[str] | Running) -> None:
        """Take everything that is told."""
        for line in lines:
            what = happening_of(line)
            if what is None or what.host not in self.hosts:
                continue
            self.heard = True
            host = self.hosts[what.host]
            host.see(what)
            now = host.result()
            if now.exit_code and what.host not in self.order:
                self.order.append(what.host)
            self.watch(what, now)

    def keep(self, folder: Path) -> None:
        """Keep what was gathered of each host."""
        for name, host in self.hosts.items():
            if host.facts is not None and host.facts_at is not None:
                trouble = keep_facts(folder, name, host.facts, host.facts_at)
                self.remarks += [trouble] if trouble else []

    def release(self, play: Play, environ: Mapping[str, str]) -> bool:
        """Let every host go that is still leased: a rollout that ends early does not come to its own last play.

        False if one could not be let go.
        """
        leased = [name for name, host in self.hosts.items() if host.leased]
        reached = tuple(name for name in leased if self.hosts[name].result().word != "unreachable")
        if not reached:
            return not leased
        with running(replace(play, playbook="release", hosts=reached, check=False), environ) as ansible:
            lines = [what for line in ansible if (what := happening_of(line)) and what.kind == "result"]
            ansible.wait()
        late = [what.host for what in lines if what.status != "ok"]
        if late:
            self.remarks.append(f"not released, which ends by itself: {', '.join(late)}")
        return not late and len(reached) == len(leased)

    def result(self, who: str) -> FleetResult:
        """Every host's word, and the one that ended a rollout."""
        found = tuple(host.result(interrupted=bool(self.signal)) for host in self.hosts.values())
        stopped = self.stopped_at(found) if self.asked.action in CHANGES else ""
        if self.signal and self.asked.action not in CHANGES:
            found = tuple(_unseen(host) for host in found)
        elif not self.signal:
            found = explained(found, self.ended)
        return FleetResult(
            self.asked.action,
            found,
            self.asked.check,
            stopped,
            self.signal,
            who,
            self.began,
            time.time() - self.began,
            tuple(self.remarks),
        )

    def stopped_at(self, found: tuple[HostResult, ...]) -> str:
        """The first host with trouble where others were left untouched because of it."""
        words = {host.host: host.word for host in found}
        is_ended = "untouched" in words.values()
        troubled = [name for name in self.order if words[name] not in ("untouched", "holds", "checked")]
        late = [name for name in troubled if self.hosts[name].result().touched]
        return (late or troubled or [""])[0] if is_ended else ""


def explained(hosts: tuple[HostResult, ...], ended: str) -> tuple[HostResult, ...]:
    """Hosts that were left untouched while nothing is wrong with any other did not succeed: what ran them has failed,
    with what it said when it ``ended``."""
    if any(host.exit_code for host in hosts):
        return hosts
    fault = Fault("fleet-ansible-failed", ended)
    return tuple(
        replace(host, word="failed", exit_code=5, fault=fault) if host.word == "untouched" else host for host in hosts
    )


def _unseen(host: HostResult) -> HostResult:
    """A host that an interrupted look had not come to."""
    if host.word != "no evidence" or host.fault is not None:
        return host
    return replace(host, fault=Fault("fleet-interrupted", "it was not looked at any more"))


def who_asks(environ: Mapping[str, str]) -> str:
    """Who runs this, for locks and histories on the hosts: ``$ARCHON_OPERATOR``, else ``alice@deploy``."""
    try:
        user = operator(environ) or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"uid {os.getuid()}"
    return user if "@" in user else f"{user}@{socket.gethostname()}"


def _hosts(inventory: Inventory, asked: Asked) -> tuple[FleetHost, ...]:
    """The hosts of the run, the canary first: all of them where they are only looked at, else those with endpoints."""
    if asked.action in ("status", "drift"):
        return inventory.hosts
    for host in inventory.hosts:
        if host.problem is not None:
            raise host.problem
    inventory.refuse_idle()
    declared = tuple(host for host in inventory.hosts if host.endpoints)
    if not asked.canary:
        return declared
    canary = inventory.host(asked.canary)
    if canary not in declared:
        why = f"the canary {canary.name} has no archon_endpoints"
        raise UsageError("fleet-nothing-declared", why, hint="name a host that has")
    return (canary, *(host for host in declared if host is not canary))


def _play(inventory: Inventory, asked: Asked, hosts: tuple[FleetHost, ...], who: str, gone: tuple[str, ...]) -> Play:
    variables: dict[str, object] = {
        "archon_operator": who,
        "archon_folders": [str(folder) for folder in base_folders(inventory.sources)],
        "archon_verify": asked.depth,
        "archon_take_over": asked.take_over,
        "archon_gone": gone if asked.action in CHANGES else (),
        "archon_to": asked.to,
        "archon_timeout": asked.timeout_s,
        "archon_serial": asked.serial,
        "archon_canary": host_pattern(hosts[0].name),
        "archon_others": [host_pattern(host.name) for host in hosts[1:]] or "all,!all",
        "archon_rollout": uuid.uuid4().hex,
        "archon_lease_seconds": min(LEASE_S, _change_s(asked) * (1 + -(-(len(hosts) - 1) // asked.serial))),
    }
    names = [host.name for host in hosts]
    return Play(PLAYBOOKS[asked.action], inventory.sources, names, variables, asked.forks, asked.check, asked.timeout_s)


def _change_s(asked: Asked) -> int:
    """Seconds that the change of one endpoint may take, with its way back."""
    return 2 * asked.timeout_s + TASK_SLACK_S


def host_pattern(name: str) -> str:
    """A name as a host pattern: with a comma in it nothing else divides it, such as a blank or the colons of IPv6."""
    return f"{name},"


def _ansible_failed(code: int, talk: list[str]) -> HostRefusal:
    err = HostRefusal("fleet-ansible-failed", f"ansible-playbook ended with {code}: {_said(talk)}")
    err.tail = tuple(talk)
    return err


def _said(talk: list[str]) -> str:
    said = next((line for line in talk if "ERROR" in line), talk[-1] if talk else "it said nothing")
    return without_secrets(said)[:500]
