"""The command line as one table of verbs. Options and handlers lie in a module a verb, loaded when needed."""

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
  0  holds / done             5  the host refuses (port, memory, binary, limit)
  1  contract or check failed 6  rolled back, and the old release holds
  2  usage or declaration     7  rolled back, and it does not hold either
  3  no evidence (unknown)    8  drift found
  4  refused before the start 70 internal fault; 128+N ended by signal N"""

OVERVIEW = f"""Plan the memory of a self-hosted LLM endpoint, render what runs it, refuse what cannot work,
start it, and believe only the engine's own boot log and real requests.

examples:
  archonctl plan --seqs 3 --len 200000       will three conversations of 200,000 tokens fit?
  archonctl plan env/tiny.toml --json        the same value for tools (archonctl.plan/1)
  archonctl render tiny --out build/tiny     env file, argv and systemd unit, nothing else touched
  archonctl up tiny --once                   plan, start, verify, stop: the verdict is the exit code
  archonctl apply archon                     the installed unit: from what runs to what is declared, or back
  archonctl probe tiny                       full-height requests against what runs
  archonctl explain contract-short           what a refusal means and what to do

{EXIT_CODES}"""


VERBS: dict[str, str] = {
    "plan": "will the contract hold? judged before anything starts",
    "fit": "which quant of a model runs and fits on a card, under which engine and how fast; or what would",
    "models": "the catalogue of open models: what of it runs and fits on a card; show one, or add your own",
    "doctor": "look this machine over, and every declared endpoint: drivers, limits, disks, ports, clock, plans",
    "gate": "refuse stale knobs, short contracts and traps in what starts an engine, before it is started",
    "render": "write env file, argv and systemd unit of an endpoint into a folder",
    "up": "start an endpoint and verify it: plan, render, start, boot ledger, full-height requests, verdict",
    "apply": "change an installed endpoint to its declaration: checks, stop, start, verdict, or back to what held",
    "rollback": "go back to an earlier release of an installed endpoint, and verify it",
    "status": "every installed endpoint: unit, release, verdict, age, restarts, contract",
    "history": "what became of each release of an installed endpoint; its whole record as JSON lines or CSV",
    "compare": "what changed between two releases: knobs, image, model, plan, boot ledger, verdict, throughput",
    "report": "one page to read: memory map, contract and capacity over releases, evidence, findings, timeline",
    "drift": "what runs against its release and against what it was verified on",
    "logs": "the journal of an installed endpoint's running start",
    "probe": "verify a running endpoint by its boot ledger and by real full-height requests",
    "verdict": "a stored verdict with its evidence, or the same evidence judged by today's rules",
    "predictions": "figures that were named before a change, and how they turned out",
    "verify": "the verdict on an installed unit's start: its boot log and full-height requests",
    "failures": "what ran out of memory, by class of memory and by who said so, from the journal",
    "watch": "a live view in the terminal: memory by card, contract, KV use, verdicts with their age, findings",
    "sidecar": "beside an engine in a pod: one verdict a start, answered to probes and routers over HTTP",
    "exporter": "Prometheus metrics of every installed endpoint: contract, verdict, plan, unit, engine, host",
    "guard": "an OpenAI-compatible proxy in front of an engine: admits what was verified to fit, queues, refuses",
    "tiers": "where each conversation's KV cache would lie, by cost and by reuse; what an engine's own tiers are worth",
    "stop": "stop the engine that 'up' left running, or an installed unit",
    "ledger": "read an engine's boot log: what it allocated, as evidence",
    "inspect": "what a model file needs, from its header alone",
    "install": "place archonctl, its units and accounts on this machine or into an image",
    "knobs": "an engine's flags by version: what a version takes, and whether it takes a command line",
    "import": "a declaration from what already starts an engine: compose file, unit, Quadlet, script or process",
    "fleet": "more than one host, from an Ansible inventory: placement, gate, rollout, verdicts, drift, routers",
    "migrate": "propose the declaration for another engine version: what goes, what is new, what still holds",
    "host": "what this machine has, as a profile; the kernel's limit of pinned memory, now and after a reboot",
    "explain": "what a code means, why it happens, what to do",
    "completion": "print a completion script for a shell",
}
"""Every verb and what it is for, in the order of the help.

``options/<verb>.py`` says what it takes, ``verbs/<verb>.py`` does it.
"""


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
            wrong = words[1] if len(words) > 1 else ""
            known = [name for action in self._actions if isinstance(action.choices, dict) for name in action.choices]
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


def build_parser(only: str = "") -> argparse.ArgumentParser:
    """The whole command line; where ``only`` is a verb, the others are known by name but not configured."""
    parser = Parser(
        prog="archonctl",
        description=OVERVIEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"archonctl {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, summary in VERBS.items():
        if only in VERBS and name != only:
            verbs.add_parser(name, help=summary)
            continue
        options = import_module(f"archonctl.cli.options.{name}")
        verb = verbs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=options.NOTES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        options.configure(verb)
        if name != "completion":  # a script is no value to present
            _speech(verb)
        for below in actions_of(verb).values():
            _speech(below, again=True)
        verb.set_defaults(handler=_handler(name))
    return parser


def actions_of(verb: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a verb's actions (``knobs check``), by name; most verbs have none."""
    return {
        name: below
        for action in verb._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, below in action.choices.items()
    }


def _handler(verb: str) -> Handler:
    def run(args: argparse.Namespace, out: Output) -> int:
        module = import_module(f"archonctl.cli.verbs.{verb}")
        code: int = module.run(args, out)
        return code

    return run


def _speech(verb: argparse.ArgumentParser, *, again: bool = False) -> None:
    """How the answer is given; ``again`` behind an action too, where leaving it out changes nothing."""
    group = verb.add_argument_group("output")
    default = argparse.SUPPRESS if again else None
    for names, text in (
        (("--json",), "the answer as JSON under a published schema"),
        (("--quiet", "-q"), "no talk on stderr, only the answer and errors"),
    ):
        group.add_argument(*names, action="store_true", default=default or False, help=text)
    group.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default=default or "auto",
        help="default: auto, honours NO_COLOR",
    )
