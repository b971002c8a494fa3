"""Pinned memory of AMD cards: the module whose limit binds, the limit itself, and the GTT that was sized by it."""

from __future__ import annotations

from dataclasses import replace

from archonctl.doctor.checks.cards import pci_cards
from archonctl.doctor.machine import Machine
from archonctl.doctor.values import Result, failed, of_finding, passed, skipped, unseen, warned
from archonctl.host.detect import TTM_MODULES
from archonctl.host.profile import Card
from archonctl.host.ttm import TtmState, judge_ttm, pages_of, read_ttm

_LIMIT = frozenset({"ttm-absent", "ttm-unreadable", "ttm-not-set-yet", "ttm-cap-short", "ttm-not-persistent"})
"""What ``judge_ttm`` says of the limit; the rest is about options that do not do what they say."""


def ttm_module(machine: Machine) -> tuple[Result, ...]:
    """Which module binds, and options for it that the kernel will not take."""
    state = _state(machine)
    options = [of_finding(each) for each in judge_ttm(state, machine.root) if each.code not in _LIMIT]
    loaded = [name for name in TTM_MODULES if machine.read.exists(f"/sys/module/{name}/parameters/pages_limit")]
    amd = sum(card.maker == "AMD" for card in pci_cards(machine))
    if len(loaded) > 1:
        said = passed(f"{' and '.join(loaded)} are loaded; {state.module} binds, options for the other do nothing")
    elif loaded:
        said = passed(f"{state.module} is loaded, and its limit binds")
    elif amd or _floor(machine)[0]:
        message = f"cards of AMD on the bus: {amd}, and neither ttm nor amdttm is loaded"
        said = failed("ttm-absent", message, "modprobe amdgpu" if amd else "an AMD card is needed: see gpu-driver")
    else:
        said = skipped("no card of AMD, and no endpoint here pins memory through its driver")
    return (said, *options)


def ttm_limit(machine: Machine) -> tuple[Result, ...]:
    """The limit against the highest floor of an endpoint here: now, and after the next boot."""
    state = _state(machine)
    floor_mib, who = _floor(machine)
    if not floor_mib:
        now = f"; it is {state.pages:,} pages ({state.limit_mib:,} MiB)" if state.pages else ""
        return (skipped(f"no endpoint here pins memory through the GPU driver{now}"),)
    found = [each for each in judge_ttm(state, machine.root, floor_mib) if each.code in _LIMIT]
    results = [_about(who, of_finding(each)) for each in found]
    if state.pages and not any(result.status == "fail" for result in results):
        spare = (state.limit_mib or 0) - floor_mib
        need = f"{pages_of(floor_mib, state.page_bytes):,} pages ({floor_mib:,} MiB)"
        message = f"{state.pages:,} pages ({state.limit_mib:,} MiB), {who} needs {need}: {spare:,} MiB to spare"
        results.insert(0, passed(message))
    return tuple(results)


def _about(who: str, result: Result) -> Result:
    """With the name of the endpoint that the floor is of."""
    return replace(result, message=f"{result.message} (for {who})", fix=result.fix.replace("ENDPOINT", who))


def gtt_size(machine: Machine) -> tuple[Result, ...]:
    """The GTT of each AMD card against the limit: the driver sizes it as it loads, and a later raise does not move it.

    Source: Linux drivers/gpu/drm/amd/amdgpu/amdgpu_ttm.c, amdgpu_ttm_init (the TTM limit unless amdgpu.gttsize says
    otherwise).
    """
    cards = [card for card in machine.known.cards if card.gtt_mib]
    state = _state(machine)
    if not cards:
        return (skipped("no card of AMD that tells its GTT"),)
    if not state.pages or state.limit_mib is None:
        told = ", ".join(f"{card.name} {card.gtt_mib:,} MiB" for card in cards)
        return (unseen(f"GTT: {told}; the limit of TTM cannot be read or is not set yet"),)
    share = machine.most("HOST_POOL_MIB")[0]  # one rank's
    return tuple(_gtt(card, card.gtt_mib or 0, state.limit_mib, share) for card in cards)


def _gtt(card: Card, gtt_mib: int, limit_mib: int, share: int) -> Result:
    told = f"{card.name}: GTT {gtt_mib:,} MiB, pages_limit {limit_mib:,} MiB"
    if gtt_mib > limit_mib:
        fix = "pages_limit for every boot: archonctl host ttm ENDPOINT --persist; and no amdgpu.gttsize"
        return warned("gtt-differs", f"{told}: {gtt_mib - limit_mib:,} MiB may be mapped and never pinned", fix)
    if gtt_mib < limit_mib and card.unified:
        message = f"{told}: {limit_mib - gtt_mib:,} MiB that a plan counts on and this card cannot map"
        return failed("gtt-differs", message, "set pages_limit at boot, so that the driver sees it as it loads; reboot")
    if share > gtt_mib:
        message = f"{told}: a rank pins {share:,} MiB, {share - gtt_mib:,} MiB more than the card can map"
        return failed("gtt-differs", message, "set pages_limit at boot, so that the driver sees it as it loads; reboot")
    more = f", sized before the limit was raised; a rank pins {share:,} MiB" if share and gtt_mib < limit_mib else ""
    return passed(f"{told}{more}")


def _floor(machine: Machine) -> tuple[int, str]:
    asked = [(subject.floor_mib or 0, subject.name) for subject in machine.here]
    return max(asked, key=lambda pair: pair[0], default=(0, ""))


def _state(machine: Machine) -> TtmState:
    return read_ttm(machine.root, None if machine.is_live else machine.known.page_bytes)
