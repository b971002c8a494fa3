"""The host verbs for people."""

from __future__ import annotations

from collections.abc import Sequence

from archonctl.cli.output import Output
from archonctl.findings import Finding
from archonctl.host.profile import Card, Host
from archonctl.host.ttm import TtmState, pages_of
from archonctl.host.ttm_persist import Persist

_COLOURS = {"error": "red", "warning": "yellow", "note": "dim"}


def host_text(host: Host, out: Output) -> str:
    """What a machine has, one figure a line; what is not known is said to be unknown."""
    pages = host.ttm_pages_limit
    rows = [
        ("RAM", _mib(host.ram_mib)),
        ("available", _mib(host.available_mib)),
        ("control group's limit", _limit(host)),
        *((("huge pages", f"{_mib(host.hugepages_mib)} of RAM, set aside"),) if host.hugepages_mib else ()),
        ("locked memory", _memlock(host)),
        ("TTM limit", "not known" if pages is None else _pages(pages, host.page_bytes)),
        ("devices", ", ".join(host.devices) or "none"),
        *((f"card {card.index}", _card(card)) for card in host.cards),
    ]
    lines = [out.paint(host.name or "this machine", "bold"), *(f"  {name:<23}{value}" for name, value in rows)]
    return "\n".join([*lines, *(f"  note: {note}" for note in host.notes)])


def _card(card: Card) -> str:
    parts = [f"{card.name}: {_mib(card.total_mib)}", f"{_mib(card.free_mib)} free"]
    if card.installed_mib is not None and card.installed_mib > card.total_mib:
        parts.append(f"{card.installed_mib - card.total_mib:,} MiB kept by the driver")
    parts += [f"GTT {_mib(card.gtt_mib)}"] if card.gtt_mib else []
    parts += ["shares RAM"] if card.unified else []
    return ", ".join([*parts, *filter(None, (card.target, card.driver, card.pci))])


def _limit(host: Host) -> str:
    free = "" if host.cgroup_free_mib is None else f", {host.cgroup_free_mib:,} MiB left"
    return _mib(host.cgroup_limit_mib, "none") + free


def _memlock(host: Host) -> str:
    return host.memlock_mib if isinstance(host.memlock_mib, str) else _mib(host.memlock_mib)


def ttm_text(
    state: TtmState,
    findings: Sequence[Finding],
    floor_mib: int | None,
    persist: Persist | None,
    out: Output,
    *,
    is_written: bool,
) -> str:
    """The limit now and at the next boot, what is wrong, and the proposal."""
    now = "no module is loaded (neither ttm nor amdttm)" if not state.module else "cannot be read"
    if state.pages is not None:
        now = (
            f"{_pages(state.pages, state.page_bytes)}{_share(state)}" if state.pages else "0: no device has set it yet"
        )
    lines = [f"{out.paint('TTM limit', 'bold')} ({state.binding})", f"  now        {now}"]
    follows = "the kernel's default, half of RAM" if state.next_pages is None else ""
    lines.append(f"  next boot  {follows or _pages(state.next_pages or 0, state.page_bytes)}")
    if floor_mib is not None:
        lines.append(f"  needed     {_pages(pages_of(floor_mib, state.page_bytes), state.page_bytes)}")
    for finding in findings:
        lines.append(f"{out.paint(finding.severity, _COLOURS[finding.severity])}: {finding}")
    if persist is not None:
        lines += ["", *_persist(persist, out, is_written=is_written)]
    return "\n".join(lines)


def _persist(persist: Persist, out: Output, *, is_written: bool) -> list[str]:
    if persist.new is None:
        lines = ["Only an argument of the kernel works here:"]
        return [*lines, *(f"  {step}" for step in persist.steps)]
    if not persist.diff:
        lines = [f"{persist.path} says so already."]
    else:
        said = "written" if is_written else "not written: add --write"
        lines = [f"{out.paint(persist.path, 'bold')} ({said})", *persist.diff.splitlines()]
    lines += ["then:", *(f"  {step}" for step in persist.steps)]
    return [*lines, f"or, in its place, by the boot loader ({persist.loader.kind}):", *_indented(persist.loader.steps)]


def _indented(steps: Sequence[str]) -> list[str]:
    return [f"  {step}" for step in steps]


def _mib(mib: int | None, unknown: str = "not known") -> str:
    return unknown if mib is None else f"{mib:,} MiB"


def _pages(pages: int, page_bytes: int) -> str:
    mib = pages * page_bytes / (1 << 20)
    return f"{pages:,} pages of {page_bytes // 1024} KiB = {int(mib):,} MiB ({mib / 1024:.2f} GiB)"


def _share(state: TtmState) -> str:
    if not state.ram_mib or state.limit_mib is None or state.limit_mib > state.ram_mib:
        return ""
    return f", {state.limit_mib / state.ram_mib:.0%} of RAM"
