"""The command line as one table: verbs, their options, their examples. Handlers load when they run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from archonctl import __version__
from archonctl.cli.output import Output, written
from archonctl.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

Handler = Callable[[argparse.Namespace, Output], int]

EXIT_CODES = """exit codes:
  0  holds / done             4  refused before anything was started
  1  contract or check failed 5  the host refuses (port, memory, binary, limit)
  2  usage or declaration     70 internal fault
  3  no evidence (unknown)    128+N ended by signal N"""

OVERVIEW = f"""Plan the memory of a self-hosted LLM endpoint, render what runs it, refuse what cannot work,
start it, and believe only the engine's own boot log and real requests.

examples:
  archonctl plan --seqs 3 --len 200000       will three conversations of 200,000 tokens fit?
  archonctl plan env/tiny.toml --json        the same value for tools (archonctl.plan/1)
  archonctl render tiny --out build/tiny     env file, argv and systemd unit, nothing else touched
  archonctl up tiny --once                   plan, start, verify, stop: the verdict is the exit code
  archonctl probe tiny                       full-height requests against what runs
  archonctl explain contract-short           what a refusal means and what to do

{EXIT_CODES}"""


class Parser(argparse.ArgumentParser):
    """argparse that suggests the verb or option that was probably meant."""

    def error(self, message: str) -> NoReturn:
        """The usage on stderr; raises UsageError ``command-line-invalid``."""
        self.print_usage(sys.stderr)
        raise UsageError("command-line-invalid", message, hint=self._suggestion(message))

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """As argparse does, but a help text that stdout does not take is not passed over in silence."""
        if file is sys.stdout:
            with written():
                file.write(message)
        else:
            super()._print_message(message, file)

    def _suggestion(self, message: str) -> str:
        if "invalid choice: " in message:
            words = message.split("invalid choice: ")[1].split("'")
            wrong, known = (words[1] if len(words) > 1 else ""), list(_VERBS)
        elif message.startswith("unrecognized arguments: "):
            wrong = message.removeprefix("unrecognized arguments: ").split(" ")[0].split("=")[0]
            # argparse reports what a verb left over through the parser of the whole command.
            verbs = [
                verb for action in self._actions if isinstance(action.choices, dict) for verb in action.choices.values()
            ]
            known = [
                option for parser in (self, *verbs) for action in parser._actions for option in action.option_strings
            ]
        else:
            return ""
        import difflib

        close = difflib.get_close_matches(wrong, known, n=1)
        return f"did you mean {close[0]}?" if close else ""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = Parser(
        prog="archonctl",
        description=OVERVIEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"archonctl {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, (summary, configure, examples) in _VERBS.items():
        verb = verbs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        configure(verb)
        if name != "completion":  # a script is no value to present
            _speech(verb)
        verb.set_defaults(handler=_handler(name))
    return parser


def _handler(verb: str) -> Handler:
    def run(args: argparse.Namespace, out: Output) -> int:
        module = import_module(f"archonctl.cli.verbs.{verb}")
        code: int = module.run(args, out)
        return code

    return run


def _speech(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="the answer as JSON under a published schema")
    group.add_argument("--quiet", "-q", action="store_true", help="no talk on stderr, only the answer and errors")
    group.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: auto, honours NO_COLOR"
    )


def _endpoint(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "endpoint",
        nargs="?",
        metavar="ENDPOINT",
        help="name or file; default: $ARCHON_ENDPOINT, else 'archon' or the only one in ./env, else in /etc/archon",
    )
    group = verb.add_argument_group("declaration", "each option wins over ARCHON__* variables, and they over the file")
    group.add_argument("--seqs", metavar="N", help="conversations at once")
    group.add_argument("--len", metavar="N", help="tokens a conversation, prompt and answer (128k is 131,072)")
    group.add_argument("--kv-dtype", metavar="D", help="KV cache dtype, or K/V where the engine can tell them apart")
    group.add_argument("--margin", metavar="SHARE", help="share of the contract's tokens that must remain on top")
    group.add_argument("--engine-version", metavar="V", help="plan for this engine version")
    group.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override any key, e.g. engine.knobs.host-pool-mib=45568 (may be repeated)",
    )


def _probe_options(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("probe")
    group.add_argument(
        "--leg",
        choices=("ledger", "admission", "full"),
        default="full",
        help="how deep: the boot log only; full-height requests admitted; held at once until all answered (default)",
    )
    group.add_argument(
        "--deadline", type=_positive, metavar="S", help="seconds for each capacity leg (default: derived)"
    )


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text!r}")
    return value


def _plan(verb: argparse.ArgumentParser) -> None:
    _endpoint(verb)


def _render(verb: argparse.ArgumentParser) -> None:
    _endpoint(verb)
    verb.add_argument("--out", required=True, metavar="DIR", help="folder for the rendered files (created)")


def _up(verb: argparse.ArgumentParser) -> None:
    _endpoint(verb)
    verb.add_argument("--once", action="store_true", help="stop the engine after the verdict")
    verb.add_argument("--force", action="store_true", help="start although the plan says that it will not hold")
    verb.add_argument("--keep", action="store_true", help="leave the engine running even if the verdict is not 'holds'")
    place = verb.add_mutually_exclusive_group()
    place.add_argument(
        "--foreground",
        action="store_const",
        const="child",
        dest="run_as",
        help="supervise a child here even where systemd could run the unit",
    )
    place.add_argument(
        "--detach",
        action="store_const",
        const="detached",
        dest="run_as",
        help="leave it in the background, without systemd",
    )
    verb.set_defaults(run_as="auto")
    _probe_options(verb)


def _probe(verb: argparse.ArgumentParser) -> None:
    _endpoint(verb)
    verb.add_argument("--log", metavar="FILE", help="the engine's boot log (default: the one that 'up' keeps)")
    _probe_options(verb)


def _stop(verb: argparse.ArgumentParser) -> None:
    _endpoint(verb)


def _ledger(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("file", nargs="+", metavar="FILE", help="a boot log, '-' for stdin; or: check CASES.jsonl")
    verb.add_argument("--engine", default="auto", metavar="KIND", help="default: detected from the lines")


def _inspect(verb: argparse.ArgumentParser) -> None:
    what = "a .gguf file (the first part of a split one), or a folder of safetensors"
    verb.add_argument("model", metavar="MODEL", help=what)


def _explain(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("code", nargs="?", metavar="CODE", help="a refusal or finding code; without it: the list")


def _completion(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"), help="whose completion script")


_VERBS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], str]] = {
    "plan": (
        "will the contract hold? judged before anything starts",
        _plan,
        "examples:\n  archonctl plan --seqs 3 --len 200000\n"
        "  archonctl plan env/archon.toml --set engine.knobs.host-pool-mib=44928"
        "\n\nexit: 0 holds, 1 short, 3 unknown",
    ),
    "render": (
        "write env file, argv and systemd unit of an endpoint into a folder",
        _render,
        "example:\n  archonctl render tiny --out build/tiny\n\n"
        "Byte-identical, and not even rewritten, when nothing changed.",
    ),
    "up": (
        "start an endpoint and verify it: plan, render, start, boot ledger, full-height requests, verdict",
        _up,
        "examples:\n  archonctl up tiny                 keeps the engine running if the contract holds\n"
        "  archonctl up tiny --once          stops it after the verdict (CI)\n\n"
        "exit: 0 holds, 1 broken, 3 no evidence, 4 the plan refuses, 5 the host refuses",
    ),
    "probe": (
        "verify a running endpoint by its boot ledger and by real full-height requests",
        _probe,
        "examples:\n  archonctl probe\n  archonctl probe tiny --leg admission\n\n"
        "exit: 0 holds, 1 broken, 3 no evidence",
    ),
    "stop": ("stop the engine that 'up' left running", _stop, "example:\n  archonctl stop tiny"),
    "ledger": (
        "read an engine's boot log: what it allocated, as evidence",
        _ledger,
        "examples:\n  archonctl ledger boot.log\n  journalctl -u archon@x | archonctl ledger - --json\n"
        "  archonctl ledger check cases.jsonl --json",
    ),
    "inspect": (
        "what a model file needs, from its header alone",
        _inspect,
        "example:\n  archonctl inspect model.gguf --json",
    ),
    "explain": (
        "what a code means, why it happens, what to do",
        _explain,
        "example:\n  archonctl explain contract-short",
    ),
    "completion": (
        "print a completion script for a shell",
        _completion,
        'example:\n  eval "$(archonctl completion bash)"',
    ),
}
