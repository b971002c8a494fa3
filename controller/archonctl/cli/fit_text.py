"""A fit on one screen: the choice with its memory and speed, or the refusal, the ways out, and what was passed over."""

from __future__ import annotations

import textwrap

from archonctl.cli.output import Output
from archonctl.fit.as_json import declaration_of
from archonctl.fit.values import Choice, FitResult, Refusal
from archonctl.memory.interval import GIB, Interval

_WORD = {"fits": ("FITS", "green"), "refused": ("REFUSED", "red"), "unknown": ("UNKNOWN", "yellow")}
_SPLIT = {
    "one": "on one card",
    "tensor": "each tensor shared over {tp} cards",
    "layer": "whole layers over {tp} cards",
    "experts-in-ram": "experts of {layers} layers in RAM",
    "ram": "in RAM",
}


def fit_text(result: FitResult, out: Output) -> str:
    """The whole screen as one string."""
    blocks = [
        _head(result, out),
        _choice(result.chosen, out) if result.chosen else _wrapped("", result.message, out),
        _declared(result.chosen, out) if result.chosen else [],
        [line for way in result.ways_out for line in _wrapped("would do", _way(way.text, way.options), out)],
        [out.paint(line, "yellow") for each in result.warnings for line in _wrapped("!", each.message, out)],
        _passed(result, out),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _head(result: FitResult, out: Output) -> list[str]:
    word, colour = _WORD[result.verdict]
    asked = f"{result.seqs:,} x {result.len:,} tokens"
    lines = [f"{out.paint(result.model, 'bold')}  {asked}  on {result.where}"]
    if choice := result.chosen:
        split = _SPLIT[choice.split].format(tp=choice.tp, layers=choice.expert_layers)
        return [
            *lines,
            f"{out.paint(word, 'bold', colour)}  {out.paint(choice.quant, 'bold')} under {choice.engine}, {split}",
        ]
    return [*lines, f"{out.paint(word, 'bold', colour)}  {result.code}"]


def _choice(choice: Choice, out: Output) -> list[str]:
    rest = max(0.0, choice.est.best - choice.weights_bytes - choice.kv_bytes)
    place = "RAM" if choice.split == "ram" else "each card" if choice.tp > 1 else "the card"
    rows = [
        ("weights", choice.weights_bytes, ""),
        ("cache", choice.kv_bytes, choice.kv.dtype),
        ("rest", rest, "activations, driver, graphs: estimates"),
        ("in all", choice.est.best, f"{_gib(choice.est.low)} to {_gib(choice.est.high)}"),
        ("there", choice.free_bytes, f"of {place}"),
        ("plain", choice.plain_bytes, "(weights + cache) x 1.15, for comparison"),
    ]
    lines = [f"  {name:<8}{_gib(size):>10} GiB  {out.paint(note, 'dim')}".rstrip() for name, size, note in rows]
    if choice.host_bytes and choice.split != "ram":
        lines.append(f"  {'RAM':<8}{_gib(choice.host_bytes):>10} GiB")
    if speed := choice.throughput:
        lines += _speed("decode", speed.decode, "one conversation at its full length", out)
        lines += _speed("prefill", speed.prefill, "of a prompt", out)
    return lines


def _declared(choice: Choice, out: Output) -> list[str]:
    """A whole declaration, to be copied into a file; ``archonctl plan`` of it says the same."""
    import tomli_w

    said = declaration_of(choice.endpoint) | {"host": {"detect": True}}
    said["engine"] = {key: value for key, value in said["engine"].items() if value}
    lines = [line for line in tomli_w.dumps(said).splitlines() if line]
    return ["  as a declaration (archonctl plan FILE):", *(out.paint(f"    {line}", "cyan") for line in lines)]


def _speed(name: str, rate: Interval | None, note: str, out: Output) -> list[str]:
    if rate is None:
        return [f"  {name:<8}{'unknown':>10}"]
    return [
        f"  {name:<8}{rate.best:>10,.0f} tokens/s  {out.paint(f'{rate.low:,.0f} to {rate.high:,.0f}, {note}', 'dim')}"
    ]


def _way(text: str, options: tuple[str, ...]) -> str:
    shown = " ".join(f'"{each}"' if " " in each else each for each in options)
    return f"{text}  [{shown}]" if shown else text


def _passed(result: FitResult, out: Output) -> list[str]:
    """What was passed over, but for the refusal that is told already."""
    told = [each for each in result.refusals if each.message != result.message]
    return [out.paint(line, "dim") for each in told for line in _line(each, out)]


def _line(refusal: Refusal, out: Output) -> list[str]:
    return _wrapped(refusal.code.removeprefix("fit-"), refusal.message, out)


def _wrapped(label: str, text: str, out: Output) -> list[str]:
    start = f"  {label}: " if label else "  "
    return textwrap.wrap(text, out.width, initial_indent=start, subsequent_indent="      ", break_on_hyphens=False)


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}"
