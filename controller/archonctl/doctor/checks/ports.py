"""The addresses that endpoints here are declared to listen on: free, held by their own engine, or by whom."""

from __future__ import annotations

import ipaddress
import re
import socket
import sys
from collections import defaultdict

from archonctl.doctor.accounts import find_account
from archonctl.doctor.machine import Machine
from archonctl.doctor.subject import Subject
from archonctl.doctor.values import Result, failed, of_error, passed, skipped, unseen, warned
from archonctl.errors import HostRefusal
from archonctl.service import procfs
from archonctl.service.preflight import split_listen

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN = "0A"  # TCP_LISTEN, as /proc/net/tcp prints it
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def ports(machine: Machine) -> tuple[Result, ...]:
    """Each of them, and any that two endpoints want."""
    wanted: dict[str, list[str]] = defaultdict(list)
    results = []
    for subject in machine.here:
        if subject.endpoint is not None:
            wanted[subject.endpoint.service.listen].append(subject.name)
            results.append(_port(machine, subject, subject.endpoint.service.listen))
    for listen, names in wanted.items():
        if len(names) > 1:
            message = f"{listen} is declared by {len(names)} endpoints ({', '.join(names)}), one of them can have it"
            results.append(warned("ports-clash", message, "give each a service.listen of its own, or run one"))
    return tuple(results) or (skipped("no endpoint is declared for this machine"),)


def _port(machine: Machine, subject: Subject, listen: str) -> Result:
    try:
        host, port = split_listen(listen)
    except HostRefusal as err:
        return of_error(err)
    if not any(machine.read.exists(table) for table in _TABLES):
        return unseen(f"{listen} for {subject.name}: neither {' nor '.join(_TABLES)} is there to tell who listens")
    if listening(machine, host, port):
        return _held(machine, subject, listen, port)
    lowest, account = _lowest(machine), find_account(machine, subject.account)
    if port < lowest and account and account.uid != 0:
        message = f"{listen}: ports below {lowest:,} are for root, and {subject.name} runs as uid {account.uid}"
        return failed("listen-unavailable", message, f"choose a port of {lowest} or more")
    if machine.is_live and (why := _not_ours(host)):
        return failed("listen-unavailable", f"{listen} for {subject.name}: {why}", "is it an address of this machine?")
    return passed(f"{listen} is free for {subject.name}")


def _lowest(machine: Machine) -> int:
    """The lowest port that needs no privilege (ip_unprivileged_port_start of ip(7)); 0 where it is not known."""
    text = machine.read.text("/proc/sys/net/ipv4/ip_unprivileged_port_start") or ""
    return int(text) if re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) else 0


def _held(machine: Machine, subject: Subject, listen: str, port: int) -> Result:
    holders = procfs.listeners(port, machine.at("/proc"))
    owners = {machine.owner(holder.pid) for holder in holders}
    if owners == {subject.name}:
        return passed(f"{listen} is held by {subject.name} itself: {holders[0]}")
    who = " and ".join(map(str, holders)) or "a process that cannot be seen from here"
    fix = "stop it, or choose another port with service.listen; archonctl status tells what archonctl started"
    return failed("port-in-use", f"{listen} for {subject.name} is held by {who}", fix)


def listening(machine: Machine, host: str, port: int) -> bool:
    """True if a socket listens on this port at this address, or where one of the two is any address."""
    wanted = _addresses(host)
    found = [
        address
        for table in _TABLES
        for line in (machine.read.text(table) or "").splitlines()[1:]
        if (address := _listener(line, port)) is not None
    ]
    anywhere = not wanted or any(address.is_unspecified for address in wanted)
    return any(anywhere or address.is_unspecified or _plain(address) in wanted for address in found)


def _listener(line: str, port: int) -> Address | None:
    """The local address of a line of /proc/net/tcp that listens on ``port``; the words are in the CPU's byte order."""
    fields = line.split()
    if len(fields) < 4 or fields[3] != _LISTEN:
        return None
    text, _, number = fields[1].rpartition(":")
    try:
        if int(number, 16) != port:
            return None
        raw = bytes.fromhex(text)
        words = [raw[at : at + 4] for at in range(0, len(raw), 4)]
        return ipaddress.ip_address(b"".join(w[::-1] if sys.byteorder == "little" else w for w in words))
    except ValueError:
        return None


def _plain(address: Address) -> Address:
    """An IPv4 address that is written as IPv6 is itself."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _addresses(host: str) -> list[Address]:
    """What a declared host means; empty where it cannot be resolved, so that any listener counts."""
    try:
        return [ipaddress.ip_address(host)]
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in found]
    except (OSError, ValueError):
        return []


def _not_ours(host: str) -> str:
    """Why this machine cannot listen there; the question is asked with a port of the kernel's choice."""
    try:
        info = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(info[0], socket.SOCK_STREAM) as attempt:
            attempt.bind(info[4])
    except (OSError, ValueError) as err:
        return getattr(err, "strerror", None) or str(err)
    return ""
