"""Options of ``archonctl fit``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import positive

NOTES = """\
examples:
  archonctl fit qwen3-14b --card L4               which quant of it runs and fits on an L4?
  archonctl fit qwen3-14b --card T4 --len 40960   at its full context: the interval, and what would do
  archonctl fit ./model.gguf                      on this machine; without a card llama.cpp may use RAM
  archonctl fit hf:Qwen/Qwen3-8B-GGUF --card "RTX 3060" --kv-quant int8
  archonctl fit gpt-oss-120b --card "RTX 4090" --ram 128   experts in RAM as the last resort
  archonctl fit llama-3.3-70b --card A100x4 --prefer speed --json

MODEL is a name of the catalogue (archonctl models), a GGUF file, a folder, hf:ORG/NAME or an address. Quants are tried
in their order of preference: first whether the engine has a kernel for them on the card, then whether they fit.
Without --card and --profile this machine is looked at: what is free on its cards now.

exit: 0 something fits, 1 refused, 3 unknown"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument("model", metavar="MODEL", help="a name of the catalogue, a path, hf:ORG/NAME or an address")
    where = verb.add_argument_group("where")
    host = where.add_mutually_exclusive_group()
    host.add_argument("--card", metavar="NAME[xN]", help="a card of the catalogue, or N of them: T4, A100-80GBx2")
    host.add_argument("--profile", metavar="FILE", help="a host profile (archonctl host save)")
    where.add_argument("--ram", metavar="GIB", type=positive, help="RAM beside --card, for experts that lie in it")
    asked = verb.add_argument_group("what")
    asked.add_argument("--seqs", metavar="N", default="1", help="conversations at once; default: 1")
    asked.add_argument("--len", metavar="N", help="tokens of each, prompt and answer (32k is 32,768); default: 8,192")
    asked.add_argument("--engine", metavar="E", help="vllm, sglang or llamacpp alone")
    asked.add_argument("--quant", metavar="Q[,Q]", help="these quants alone")
    asked.add_argument("--kv-quant", metavar="Q", default="f16", help="f16, fp8, int8, int4, or a type of the engine")
    asked.add_argument(
        "--tp", metavar="N", type=int, help="share it over exactly N cards; default: the fewest of 1, 2, 4, 8"
    )
    asked.add_argument(
        "--weight-only", action="store_true", help="also kernels that unpack the weights and compute in 16 bits"
    )
    asked.add_argument(
        "--prefer", choices=("quality", "speed"), default="quality", help="speed: the fastest of those that fit"
    )
    asked.add_argument(
        "--catalogue",
        metavar="FILE",
        action="append",
        default=[],
        help="a catalogue of your own, merged over the shipped one",
    )
