"""Options of ``archonctl models``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import positive

NOTES = """\
examples:
  archonctl models --card L4                    what of the catalogue runs and fits on an L4, in which quant
  archonctl models --card A100-80GBx2 --card T4 --seqs 4 --len 32k
  archonctl models --card all --json            every model on every card, for tools
  archonctl models                              on this machine
  archonctl models show qwen3-14b               geometry, parameters, quants, and where each figure is from
  archonctl models add hf:Qwen/Qwen3-14B-GGUF/Qwen3-14B-Q6_K.gguf --name qwen3-14b

Over the shipped catalogue are merged /etc/archonctl/models.toml, ~/.config/archonctl/models.toml and --catalogue, by
the names of models and quants, key by key. The verdicts are those of 'archonctl fit' and of 'archonctl plan'.

environment of 'add': HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME
exit: 0 done, whatever fits; 2 a catalogue is wrong"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    where = verb.add_argument_group("where")
    host = where.add_mutually_exclusive_group()
    host.add_argument(
        "--card",
        metavar="NAME[xN]",
        action="append",
        help="a card of the catalogue, or N of them; again for more, 'all' for every one; default: this machine",
    )
    host.add_argument("--profile", metavar="FILE", help="a host profile (archonctl host save)")
    where.add_argument("--ram", metavar="GIB", type=positive, help="RAM beside --card, for experts that lie in it")
    asked = verb.add_argument_group("what")
    asked.add_argument("--seqs", metavar="N", default="1", help="conversations at once; default: 1")
    asked.add_argument("--len", metavar="N", help="tokens of each, prompt and answer (32k is 32,768); default: 8,192")
    asked.add_argument("--engine", metavar="E", help="vllm, sglang or llamacpp alone")
    asked.add_argument("--kv-quant", metavar="Q", default="f16", help="f16, fp8, int8, int4, or a type of the engine")
    _catalogue(asked)
    actions = verb.add_subparsers(dest="action", metavar="ACTION", help="what else to do, see below")
    show = actions.add_parser(
        "show",
        help="one model: geometry, parameters, quants and sources",
        description="One model: geometry, parameters, quants and sources.",
        allow_abbrev=False,
    )
    show.add_argument("name", metavar="NAME", help="a model's name, another name of it, or its repository")
    _catalogue(show)
    add = actions.add_parser(
        "add",
        help="look a repository up by its headers and add it to your own catalogue",
        description="Look a repository up by its headers and add it to your own catalogue.",
        allow_abbrev=False,
    )
    add.add_argument("address", metavar="hf:ORG/NAME[@REV][/FILE]", help="a repository of the hub, or one file of it")
    add.add_argument(
        "--name",
        metavar="NAME",
        default="",
        help="default: the repository's; of a known model: the quant is added to it",
    )
    add.add_argument("--print", dest="only_print", action="store_true", help="show the entry and write nothing")
    add.add_argument("--catalogue", metavar="FILE", help="write there; default: ~/.config/archonctl/models.toml")


def _catalogue(place: argparse._ActionsContainer) -> None:
    place.add_argument(
        "--catalogue",
        metavar="FILE",
        action="append",
        default=argparse.SUPPRESS,
        help="a catalogue of your own, merged over the shipped one; again for more",
    )
