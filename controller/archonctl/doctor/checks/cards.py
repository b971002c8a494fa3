"""GPUs: a driver for each on the bus, each of them visible, their device nodes there and open to whoever needs them."""

from __future__ import annotations

import re
import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath

from archonctl.doctor.accounts import Account, find_account
from archonctl.doctor.bounded import NoAnswer
from archonctl.doctor.machine import Machine
from archonctl.doctor.values import Result, failed, passed, skipped, unanswered, unseen, warned

_PCI = "/sys/bus/pci/devices"
_MAKERS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")

"""PCI classes of displays, 3D controllers and processing accelerators (pci.ids)."""
_DRIVERS = {"NVIDIA": ("nvidia",), "AMD": ("amdgpu",), "Intel": ("xe", "i915")}
_GIVEN_AWAY = ("vfio-pci", "pci-stub", "xen-pciback")
_NODE = re.compile(r"nvidia[0-9]+|nvidiactl|nvidia-uvm|kfd", re.ASCII)
_RENDER = re.compile(r"renderD[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class PciCard:
    """A GPU on the bus; ``driver`` is empty where none is bound."""

    address: str
    maker: str
    driver: str

    @property
    def is_driven(self) -> bool:
        """True if the maker's compute driver has it."""
        return self.driver in _DRIVERS[self.maker]


def pci_cards(machine: Machine) -> tuple[PciCard, ...]:
    """The GPUs of NVIDIA and AMD on the PCI bus, and those of Intel that the catalogue of cards has: the others are
    displays without memory of their own."""
    read, found = machine.read, []
    for address in read.names(_PCI):
        kind, maker = read.text(f"{_PCI}/{address}/class") or "", read.text(f"{_PCI}/{address}/vendor") or ""
        device = read.text(f"{_PCI}/{address}/device") or ""
        if kind.startswith(_CLASSES) and maker in _MAKERS and (maker != "0x8086" or _is_intel_card(device)):
            driver = PurePosixPath(machine.link(f"{_PCI}/{address}/driver")).name
            found.append(PciCard(address.lower(), _MAKERS[maker], driver))
    return tuple(found)


def _is_intel_card(device: str) -> bool:
    from archonctl.host.cards import all_cards

    return any(f"8086:{device[2:].lower()}" in card.pci for card in all_cards())


def gpu_driver(machine: Machine) -> tuple[Result, ...]:
    """A driver for every card."""
    cards = pci_cards(machine)
    if not cards:
        if seen := machine.known.cards:
            return (passed(f"cards that are on no PCI bus: {len(seen)} ({', '.join(card.name for card in seen)})"),)
        if wants := [subject.name for subject in machine.here if subject.wants_cards]:
            message = f"{_none(machine)}, and {', '.join(wants)} is declared to run on one"
            return (failed("device-missing", message, "lspci -nn; in a virtual machine: pass the card through"),)
        return (skipped(f"{_none(machine)}, and no endpoint here is declared to run on one"),)
    idle = [card for card in cards if not card.is_driven and card.driver not in _GIVEN_AWAY]
    away = [card for card in cards if card.driver in _GIVEN_AWAY]
    results = [_undriven(card, len(cards)) for card in idle]
    results += [
        skipped(f"{card.address} ({card.maker}) is given to a virtual machine ({card.driver})") for card in away
    ]
    driven = Counter((card.maker, card.driver) for card in cards if card.is_driven)
    if driven and not idle:
        told = ", ".join(f"{count} of {maker} by {driver}" for (maker, driver), count in driven.items())
        results.append(passed(f"cards on the bus: {len(cards) - len(away)}, driven: {told}"))
    return tuple(results)


def _none(machine: Machine) -> str:
    is_seen = bool(machine.read.names(_PCI))
    return (
        "no GPU of NVIDIA or AMD, and none of Intel with memory of its own, on the PCI bus"
        if is_seen
        else f"no GPU: {_PCI} shows no device"
    )


def _undriven(card: PciCard, count: int) -> Result:
    module = _DRIVERS[card.maker][0]
    has = f"is driven by {card.driver}, which cannot compute" if card.driver else "has no driver"
    message = f"{card.address} ({card.maker}, one of {count} cards) {has}; {module} is needed"
    return failed("driver-not-loaded", message, f"modprobe {module}; journalctl -k | grep -i {module} says why not")


def gpu_visible(machine: Machine) -> tuple[Result, ...]:
    """Every driven card answers, and there are as many as an endpoint is declared for."""
    if isinstance(machine.host, NoAnswer):
        return (_silent(machine.host.why) if machine.host.late else unanswered(machine.host),)
    if late := next((note for note in machine.host.notes if note.startswith("NVML: did not answer")), ""):
        return (_silent(late),)
    driven = [card for card in pci_cards(machine) if card.is_driven]
    seen = _seen(machine)
    untold = [card for card in driven if card.address not in seen]
    blind = [card for card in untold if card.maker != "Intel"]
    results = [
        unseen(
            f"{card.address} (Intel, {card.driver}) tells its memory in no file", "state total_mib in a host profile"
        )
        for card in untold
        if card.maker == "Intel"
    ]
    if blind:
        notes = "; ".join(note for note in machine.host.notes if note.startswith(("NVML", "/proc/driver/nvidia")))
        where = ", ".join(card.address for card in blind)
        message = f"cards with a driver: {len(driven)}, that answer: {len(driven) - len(blind)}; silent: {where}"
        fix = "nvidia-smi -L, or cat /sys/class/drm/card*/device/mem_info_vram_total"
        results.append(failed("cards-not-visible", f"{message}{f' ({notes})' if notes else ''}", fix))
    usable = len(machine.host.cards)
    for subject in machine.here:
        if subject.cards > usable:
            message = f"{subject.name} is declared for {subject.cards} cards, {usable} of them can be used here"
            results.append(failed("cards-not-visible", message, "archonctl host show; correct the host profile"))
    if results:
        return tuple(results)
    if not driven and not usable:
        return (skipped("no card with a driver"),)
    told = ", ".join(f"{card.name} {card.total_mib:,} MiB" for card in machine.host.cards)
    return (passed(f"cards that have a driver and answer: {len(driven) or usable} ({told or 'none that computes'})"),)


def _silent(why: str) -> Result:
    fix = "nvidia-smi or rocm-smi would hang as well: journalctl -k, and a reboot if processes stay in state D"
    return failed("driver-silent", f"the cards' driver was asked: {why}", fix)


def _seen(machine: Machine) -> set[str]:
    """PCI addresses of the cards that tell their memory."""
    read = machine.read
    found = {_address(card.pci) for card in machine.known.cards if card.pci}
    for name in read.names("/sys/class/drm"):
        device = f"/sys/class/drm/{name}/device"
        if re.fullmatch(r"card[0-9]+", name) and read.number(f"{device}/mem_info_vram_total"):
            slot = re.search(r"^PCI_SLOT_NAME=(\S+)$", read.text(f"{device}/uevent") or "", re.MULTILINE)
            found.add(_address(slot[1] if slot else PurePosixPath(machine.link(device)).name))
    return found


def _address(text: str) -> str:
    """NVML writes eight digits of the domain, the kernel four."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def gpu_nodes(machine: Machine) -> tuple[Result, ...]:
    """The nodes that programs open are there, as many as cards."""
    driven = Counter(card.maker for card in pci_cards(machine) if card.is_driven)
    nodes = device_nodes(machine)
    lacking = [
        subject_and_node
        for subject in machine.here
        for node in subject.devices
        if node not in nodes and not machine.stat(node)
        for subject_and_node in [f"{node} for {subject.name}"]
    ]
    short = _short_of(driven, nodes)
    if not driven and not lacking:
        return (skipped("no card with a driver, and no endpoint here that names a device"),)
    if not short and not lacking:
        return (passed(f"device nodes: {len(nodes)}, cards: {sum(driven.values())} ({', '.join(nodes)})"),)
    message = "; ".join([*short, *(f"{each} is not there" for each in lacking)])
    fix = "within a container: start it with the devices (--device, --gpus); else load the driver: modprobe amdgpu"
    is_wanted = lacking or any(subject.wants_cards for subject in machine.here)
    return ((failed if is_wanted else warned)("device-missing", message, fix),)


def _short_of(driven: Counter[str], nodes: tuple[str, ...]) -> list[str]:
    short = []
    if amd := driven["AMD"]:
        renders = sum("/dri/" in node for node in nodes)
        short += [f"cards of AMD: {amd}, render nodes below /dev/dri: {renders}"] if renders < amd else []
        short += [] if "/dev/kfd" in nodes else [f"cards of AMD: {amd}, and no /dev/kfd"]
    if intel := driven["Intel"]:
        renders = sum("/dri/" in node for node in nodes)
        wanted = intel + driven["AMD"]
        short += [f"cards of Intel: {intel}, render nodes below /dev/dri: {renders}"] if renders < wanted else []
    if nvidia := driven["NVIDIA"]:
        count = sum(re.fullmatch(r"/dev/nvidia[0-9]+", node) is not None for node in nodes)
        short += [f"cards of NVIDIA: {nvidia}, nodes /dev/nvidiaN: {count}"] if count < nvidia else []
        short += [] if "/dev/nvidiactl" in nodes else [f"cards of NVIDIA: {nvidia}, and no /dev/nvidiactl"]
    return short


def device_nodes(machine: Machine) -> tuple[str, ...]:
    """Compute and render nodes that are there."""
    read = machine.read
    found = [f"/dev/{name}" for name in read.names("/dev") if _NODE.fullmatch(name)]
    return (*found, *(f"/dev/dri/{name}" for name in read.names("/dev/dri") if _RENDER.fullmatch(name)))


def gpu_access(machine: Machine) -> tuple[Result, ...]:
    """Whoever runs an engine may read and write its nodes: by number, since a container has other names."""
    nodes = device_nodes(machine)
    if not nodes:
        return (skipped("no device node of a GPU below /dev"),)
    accounts = dict.fromkeys(subject.account for subject in machine.here if subject.wants_cards) or {"": None}
    results: list[Result] = []
    for name in accounts:
        account = find_account(machine, name)
        if account is None:
            results.append(unseen(f"the account {name} is in no /etc/passwd here", "archonctl install makes archon"))
        else:
            results += _access(machine, nodes, account)
    return (*results, *_container_groups(machine, nodes))


def _access(machine: Machine, nodes: tuple[str, ...], account: Account) -> list[Result]:
    closed = []
    for node in nodes:
        found = machine.stat(node)
        if found is not None and not account.may_use(found):
            mode, owner = stat.S_IMODE(found.st_mode), f"{found.st_uid}:{found.st_gid}"
            closed.append((node, found.st_gid, f"{node} is {mode:04o} {owner}"))
    who = f"uid {account.uid}{f' ({account.name})' if account.name else ''}"
    if not closed:
        return [passed(f"{who} may open {len(nodes)} of {len(nodes)} device nodes")]
    groups = ", ".join(map(str, sorted(account.groups))) or "none"
    told = "; ".join(text for _node, _gid, text in closed)
    fix = _join(machine, account, {gid for _node, gid, _text in closed})
    return [failed("device-unusable", f"{told}: {who} is in the groups {groups}", fix)]


def _join(machine: Machine, account: Account, gids: set[int]) -> str:
    if 0 in gids:
        return "no group of its own has them: a udev rule gives them to render (chgrp render until the next boot)"
    wanted = ",".join(group_name(machine, gid) for gid in sorted(gids))
    return f"usermod -aG {wanted} {account.name or account.uid}, and log in anew"


def group_name(machine: Machine, gid: int) -> str:
    """A group's name, or its number where it has none here."""
    text = machine.read.text("/etc/group") or ""
    found = re.search(rf"^([^:\n]+):[^:\n]*:{gid}:", text, re.MULTILINE)
    return found[1] if found else str(gid)


def _container_groups(machine: Machine, nodes: tuple[str, ...]) -> list[Result]:
    """Numbers that a container is given against the numbers that own the nodes."""
    results = []
    for subject in machine.here:
        spec = subject.command.container if subject.command else None
        if spec is None or not spec.groups:
            continue
        for node in nodes:
            found = machine.stat(node)
            is_given = found is not None and any(each.split(":")[0] in (node, "/dev/dri") for each in spec.devices)
            if found is None or not is_given or found.st_mode & 0o006 == 0o006 or found.st_gid in spec.groups:
                continue
            has = ", ".join(map(str, spec.groups))
            message = f"{subject.name}: its container gets the groups {has}, and {node} belongs to {found.st_gid}"
            results.append(warned("device-group-differs", message, f"container.groups = [{found.st_gid}]"))
    return results
