"""The catalogue on a screen: what fits a machine and what does not, or one model with its sources."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from archonctl.catalogue.as_json import model_json
from archonctl.catalogue.values import Catalogue, CatalogueModel, Quant
from archonctl.cli.output import Output
from archonctl.fit.everything import OnHost
from archonctl.fit.values import Ask, Choice, FitResult, RefusalCode
from archonctl.memory.interval import GIB

WIDTH = 80
_SPLITS = {"one": "", "tensor": "", "layer": " by layer", "experts-in-ram": " +RAM", "ram": "in RAM"}
_WHY: Mapping[RefusalCode, str] = {
    "fit-size": "too large",
    "fit-capability": "no kernel",
    "fit-unsatisfiable": "cannot be shared",
    "fit-no-device": "no device",
    "fit-unknown": "unknown",
}


def models_json(catalogue: Catalogue, answers: Sequence[OnHost], ask: Ask) -> dict[str, Any]:
    """The value of ``archonctl models --json``: the models once, and a verdict for each on every machine."""
    return {
        "schema": "archonctl.models/1",
        "seqs": ask.seqs,
        "len": ask.len,
        "engine": ask.engine or None,
        "kv_quant": ask.kv_quant,
        "models": [model_json(model) for model in catalogue.models],
        "hosts": [
            {
                "name": each.host.name,
                "where": each.where,
                "results": [_result(result) for result in each.results],
            }
            for each in answers
        ],
    }


def _result(result: FitResult) -> dict[str, Any]:
    choice = result.chosen
    return {
        "model": result.model,
        "verdict": result.verdict,
        "code": result.code or None,
        "message": result.message or None,
        "len": result.len,
        "quant": choice.quant if choice else None,
        "engine": choice.engine if choice else None,
        "tp": choice.tp if choice else None,
        "split": choice.split if choice else None,
        "est_bytes": round(choice.est.best) if choice else None,
        "free_bytes": choice.free_bytes if choice else None,
    }


def models_text(answers: Sequence[OnHost], ask: Ask, out: Output) -> str:
    """A block a machine; within 80 columns."""
    length = f"{ask.len:,} tokens" if ask.len else "8,192 tokens (or all its context)"
    head = f"{ask.seqs:,} conversation{'s' if ask.seqs > 1 else ''} of {length}; cache {ask.kv_quant}"
    return "\n\n".join([out.paint(head, "dim"), *(_block(each, out) for each in answers)])


def _block(each: OnHost, out: Output) -> str:
    fits = [result for result in each.results if result.chosen]
    rest = [result for result in each.results if not result.chosen]
    lines = [out.paint(line, "bold") for line in textwrap.wrap(each.where, WIDTH)]
    if fits:
        head = f"  {'fits':<29} {'quant':<9} {'engine':<9} {'cards':>9} {'GiB':>8} {'left':>8}"
        lines += [out.paint(head, "green"), *(_fits(result.model, result.chosen) for result in fits if result.chosen)]
    for code, count in Counter(result.code for result in rest if result.code).most_common():
        style = "yellow" if code == "fit-unknown" else "red"
        lines.append(out.paint(f"  {_WHY[code]} ({count})", style))
        lines += [_refused(result) for result in rest if result.code == code]
    return "\n".join(lines)


def _fits(name: str, choice: Choice) -> str:
    cards = f"{choice.tp if choice.tp else ''}{_SPLITS[choice.split]}"
    used, left = choice.est.best / GIB, (choice.free_bytes - choice.est.best) / GIB
    return f"  {name[:29]:<29} {choice.quant[:9]:<9} {choice.engine:<9} {cards:>9} {used:>8.1f} {left:>8.1f}"


def _refused(result: FitResult) -> str:
    """One line: with sizes where size was the question, else as much of the sentence as there is room for."""
    sized = [each for each in result.refusals if each.code == "fit-size" and each.wanted_bytes]
    if result.code == "fit-size" and sized:
        least = min(sized, key=lambda each: each.wanted_bytes)
        wanted, there = least.wanted_bytes / GIB, least.free_bytes / GIB
        text = f"{least.quant} wants {wanted:,.1f} GiB of {there:,.1f}"
    else:
        text = result.message
    return f"  {result.model[:29]:<29} {textwrap.shorten(text, WIDTH - 32, placeholder=' ...')}"


def model_text(model: CatalogueModel, out: Output) -> str:
    """One model: what it is, its quants, and where the figures are from."""
    geometry = model.geometry
    kinds = Counter(layer.attention for layer in geometry.layers)
    layers = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    active = f", {_billions(model.params_active)} of them active" if geometry.experts else ""
    lines = [
        f"{out.paint(model.name, 'bold')}  {model.repo}",
        f"  {_billions(model.params_total)} parameters{active}; context {model.trained_context:,}",
        f"  {geometry.architecture}: {len(geometry.layers)} layers ({layers}), hidden {geometry.hidden:,}",
    ]
    if geometry.experts:
        shared = f", {geometry.experts_shared} shared" if geometry.experts_shared else ""
        lines.append(f"  {geometry.experts} experts, {geometry.experts_used} used a token{shared}")
    lines += ["", out.paint(f"  {'quant':<10} {'engines':<13} {'GiB':>9}  from", "dim")]
    lines += [line for quant in model.quants for line in _quant(quant)]
    lines += ["", *_wrapped("figures", model.source or "not said"), *_wrapped("catalogue", model.origin)]
    return "\n".join(lines)


def _quant(quant: Quant) -> list[str]:
    exact = "" if quant.bytes is not None else "~"
    size = f"{exact}{quant.size.best / GIB:,.2f}"
    where = f"{quant.repo}/{quant.file}" if quant.file else quant.repo
    first = f"  {quant.name:<10} {','.join(quant.engines):<13} {size:>9}  "
    lines = [f"{first}{where}"]
    if quant.bytes is not None:
        lines.append(f"{'':37}{quant.bytes:,} bytes")
    if quant.revision:
        lines.append(f"{'':37}at {quant.revision}")
    return lines


def _wrapped(label: str, text: str) -> list[str]:
    """Addresses stay whole, so that they can be copied."""
    start, rest = f"  {label}: ", "      "
    wrapper = textwrap.TextWrapper(
        WIDTH, initial_indent=start, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )
    return wrapper.wrap(text)


def _billions(count: int) -> str:
    return f"{count / 1e9:,.2f} B" if count >= 1e8 else f"{count:,}"
