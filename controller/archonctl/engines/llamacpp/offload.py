"""The knobs that spread a model over devices, as llama-server understands them (common/arg.cpp, b11434)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from archonctl.deployment.schema import Endpoint
from archonctl.engines.llamacpp.declared import DeclaredKnobs
from archonctl.errors import DeclarationError
from archonctl.host.profile import Card, Host

EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
DENSE = r"\.ffn_(up|down|gate)\."
"""LLM_FFN_EXPS_REGEX and LLM_FFN_DENSE_REGEX of common/common.h."""
FIT_TARGET_MIB = 1024
FIT_MIN_CTX = 4096

Override = tuple[re.Pattern[str], int | None]
"""Tensors whose name it finds go to this device; None is RAM."""


@dataclass(frozen=True, slots=True)
class Offload:
    """``gpu_layers`` None: as many as there are. ``devices`` are the cards in use, in the engine's order.

    ``unclear`` says why nobody but the engine knows the split; "" where it is known.
    """

    gpu_layers: int | None
    gpu_layers_said: bool
    split_mode: str
    tensor_split: tuple[float, ...]
    overrides: tuple[Override, ...]
    kv_offload: bool
    devices: tuple[Card, ...]
    fit_targets_mib: tuple[int, ...]
    fit_min_ctx: int
    unclear: str = ""

    @property
    def fixed_by_hand(self) -> bool:
        """True if --fit may not move layers: the split was declared (common/fit.cpp)."""
        return self.gpu_layers_said or bool(self.tensor_split) or bool(self.overrides)

    def margin_mib(self, number: int) -> int:
        """What --fit leaves free on a device (--fit-target: the last figure is that of all further devices)."""
        return self.fit_targets_mib[min(number, len(self.fit_targets_mib) - 1)]

    def pipelined(self, layers: int) -> bool:
        """True if the devices work on several micro-batches at once (src/llama-context.cpp ``pipeline_parallel``)."""
        whole = self.gpu_layers is None or self.gpu_layers > layers
        return len(self.devices) > 1 and whole and self.split_mode == "layer" and self.kv_offload and not self.overrides


def offload_of(endpoint: Endpoint, host: Host) -> Offload:
    """How this declaration spreads the model over the host's cards.

    Raises DeclarationError ``knob-bad-value`` for a value that cannot be understood.
    """
    knobs = DeclaredKnobs(endpoint.engine.knobs)
    mode = knobs.word("split-mode", ("none", "layer", "row", "tensor"), "layer")
    devices, unclear = _devices(knobs, host, mode)
    if mode in ("row", "tensor") and len(devices) > 1:
        unclear = unclear or f"split-mode {mode} shares single tensors out, rounded by each backend"
    if knobs.text("rpc"):
        unclear = unclear or "rpc servers are devices in front of the cards, and their memory is theirs to say"
    said = knobs.text("gpu-layers").strip() if "gpu-layers" in knobs.values else "auto"
    number = said.removeprefix("-").isdigit()
    overrides, odd = _overrides(knobs, devices)
    return Offload(
        gpu_layers=int(said) if number and int(said) >= 0 else None,
        gpu_layers_said=(number and int(said) != -1) or said == "all",
        split_mode=mode,
        tensor_split=tuple(_decimals(knobs, "tensor-split")),
        overrides=overrides,
        kv_offload=knobs.switch("kv-offload", not knobs.switch("no-kv-offload", False)),
        devices=devices,
        fit_targets_mib=tuple(int(each) for each in _decimals(knobs, "fit-target")) or (FIT_TARGET_MIB,),
        fit_min_ctx=knobs.number("fit-ctx", FIT_MIN_CTX),
        unclear=unclear or odd,
    )


def _devices(knobs: DeclaredKnobs, host: Host, mode: str) -> tuple[tuple[Card, ...], str]:
    """The cards in use: discrete ones before integrated ones, those named, or the main one alone."""
    cards = tuple(card for card in host.cards if not card.unified) or host.cards
    named = [part for part in knobs.text("device").replace(" ", "").split(",") if part]
    if named == ["none"]:
        return (), ""
    if named:
        by_index = {card.index: card for card in host.cards}
        wanted = [_number(part) for part in named]
        if any(index is None or index not in by_index for index in wanted):
            return cards, f"device {knobs.text('device')} names a device that the host profile does not have"
        cards = tuple(by_index[index] for index in wanted if index is not None)
    if mode == "none" and cards:
        main = knobs.number("main-gpu", 0, minimum=-1)
        if main >= len(cards):
            return cards, f"main-gpu is {main}, the host has {len(cards)} cards"
        cards = (cards[main],) if main >= 0 else ()
    return cards, ""


def _number(name: str) -> int | None:
    found = re.fullmatch(r"[A-Za-z]+(\d+)", name)
    return int(found[1]) if found else None


def _overrides(knobs: DeclaredKnobs, devices: tuple[Card, ...]) -> tuple[tuple[Override, ...], str]:
    """In the order in which they are rendered; the first that finds a name decides."""
    found: list[Override] = []
    places: dict[str, int | None] = {"CPU": None}
    for position, card in enumerate(devices):
        places |= {f"{backend}{card.index}": position for backend in ("CUDA", "ROCm", "Vulkan", "SYCL")}
    for part in filter(None, knobs.text("override-tensor").split(",")):
        pattern, _, place = part.rpartition("=")
        if place not in places:
            return (), f"override-tensor names the buffer {place[:40]!r}, which no card of the host profile has"
        found.append((_pattern(knobs, pattern), places[place]))
    if knobs.switch("cpu-moe", False):
        found.append((re.compile(EXPERTS), None))
    for name, rest in (("n-cpu-moe", EXPERTS), ("n-cpu-ffn", DENSE)):
        if count := knobs.number(name, 0):
            found.append((some_layers(range(count), rest), None))
    return tuple(found), ""


def some_layers(layers: Iterable[int], rest: str) -> re.Pattern[str]:
    """The feed-forward tensors of some layers, as one pattern (``llm_add_n_cpu_ffn_overrides``)."""
    return re.compile(rf"blk\.({'|'.join(map(str, layers))}){rest}")


def _pattern(knobs: DeclaredKnobs, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as err:
        raise DeclarationError(
            "knob-bad-value",
            f"override-tensor: {text[:80]!r} is no regular expression ({err})",
            where=f"engine.knobs.{knobs.keys['override-tensor']}",
        ) from None


def _decimals(knobs: DeclaredKnobs, name: str) -> Iterator[float]:
    for part in re.split(r"[,/]+", knobs.text(name)) if knobs.text(name) else ():
        try:
            yield float(part)
        except ValueError:
            raise DeclarationError(
                "knob-bad-value",
                f"{name} is {knobs.text(name)[:80]!r}; it is numbers with commas, such as 3,1",
                where=f"engine.knobs.{knobs.keys[name]}",
            ) from None
