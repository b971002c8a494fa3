"""Everything around ``up`` that is not under test, as functions that answer at once; also a small command line.

``python starts.py STATE PORT MARK BEHAVIOUR [WORDS...]`` runs ``up`` over the fake engine, for tests that send
signals to it; it prints one line an event.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint
from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef, Service
from archonctl.engines.base import Forecast, Lever
from archonctl.errors import ArchonError
from archonctl.ledger.values import BootLedger
from archonctl.plan.values import Plan, PlanVerdict
from archonctl.probe.values import Verdict, VerdictWord
from archonctl.service.events import Event
from archonctl.service.preflight import check_port, resolve_binary, split_listen
from archonctl.service.up import up
from archonctl.service.values import Options, Prepared, Rooms

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")

UNIT = """\
[Unit]
Description=a fake engine
StartLimitIntervalSec=0
[Service]
Type=exec
ExecStart={argv}
Environment=ARCHON_TEST_MARK={mark}
Restart=on-failure
RestartSec=100ms
TimeoutStopSec=5
"""
"""A unit that would restart for ever, so that what keeps it from that is seen."""


def endpoint(folder: Path, port: int, timeout_s: int | None = 200, name: str = "tiny") -> LoadedEndpoint:
    """A declaration that listens on ``port``."""
    value = Endpoint(
        contract=Contract(seqs=1, len=1024),
        engine=Engine(kind="llamacpp", binary=str(FAKE_ENGINE)),
        model=ModelRef(path="/m.gguf"),
        service=Service(listen=f"127.0.0.1:{port}", load_timeout_s=timeout_s),
    )
    return LoadedEndpoint(value, name, folder / f"{name}.toml", folder)


class Lines:
    """A ledger reader that keeps lines and understands none."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def feed(self, line: str) -> None:
        self.lines.append(line)

    def result(self) -> BootLedger:
        return BootLedger("llamacpp", lines_read=len(self.lines), ready_line=len(self.lines))


def fake_rooms(
    words: Sequence[str],
    mark: str,
    *,
    plan: PlanVerdict = "holds",
    verdict: VerdictWord = "holds",
    probe_s: float = 0.0,
    during_probe: Callable[[], object] = lambda: None,
) -> Rooms:
    """Rooms that plan, render and probe by decree; the engine is the fake one, told ``words``."""

    def make_plan(loaded: LoadedEndpoint) -> Plan:
        reasons = ("512 tokens, 1,024 wanted: 512 short",) if plan == "short" else ()
        levers = (Lever("set len to 512", {"contract.len": 512}),)
        forecast = Forecast("fake", None, None, None, (), (), levers)
        return Plan(loaded.name, "llamacpp", "", loaded.endpoint.contract, plan, reasons, forecast, (), ())

    def check(loaded: LoadedEndpoint) -> int:
        resolve_binary(loaded.endpoint.engine.binary)
        check_port(*split_listen(loaded.endpoint.service.listen))
        return 1 << 20

    def prepare(loaded: LoadedEndpoint, releases: Path) -> Prepared:
        (releases / "r1").mkdir(parents=True, exist_ok=True)
        port = str(split_listen(loaded.endpoint.service.listen)[1])
        argv = (sys.executable, "-I", "-S", str(FAKE_ENGINE), *words, "--port", port)
        unit = UNIT.format(argv=" ".join(f'"{word}"' for word in argv), mark=mark)
        return Prepared(argv, {"ARCHON_TEST_MARK": mark}, "archon-tiny.service", unit, str(releases / "r1"))

    def probe(loaded: LoadedEndpoint, ledger: BootLedger, say: Callable[[str, float | None], None]) -> Verdict:
        say("probing", 0.5)
        during_probe()
        time.sleep(probe_s)
        return Verdict(verdict, ())

    return Rooms(make_plan, check, prepare, lambda _loaded: Lines(), lambda _loaded: "/health", probe)


def main() -> int:
    """Run ``up`` and tell what happens, a line at a time."""
    state, port, mark, options, *words = sys.argv[1:]
    chosen = json.loads(options)
    rooms = fake_rooms(words, mark, verdict=chosen.pop("verdict", "holds"), probe_s=chosen.pop("probe_s", 0.0))

    def tell(event: Event) -> None:
        print(event.phase, event.text, flush=True)

    loaded = endpoint(Path(state), int(port), chosen.pop("timeout_s", 200))
    environ = dict(os.environ) | {"ARCHON_STATE_DIR": state}
    try:
        result = up(loaded, Options(**{"run_as": "child"} | chosen), rooms=rooms, environ=environ, on_event=tell)
    except ArchonError as err:
        print("error", err.code, flush=True)
        return err.exit_code
    except KeyboardInterrupt as stop:
        print("interrupted", stop, flush=True)
        return 130
    print("ended", result.ended, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
