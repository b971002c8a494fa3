"""``archonctl sidecar``."""

from __future__ import annotations

import os
import threading
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from archonctl.cli.output import Output

if TYPE_CHECKING:
    from archonctl.deployment.schema import Engine
    from archonctl.fleet.sidecar.watch import Watch
    from archonctl.ledger.values import BootLedger

EXIT = {"holds": 0, "broken": 1, "no evidence": 3}


def run(args: Namespace, out: Output) -> int:
    """Judge every start of the engine beside us, and answer for it until stopped."""
    from archonctl.fleet.sidecar.watch import State, Watch
    from archonctl.release.load import load_release
    from archonctl.service.interrupts import Interrupts

    stop = threading.Event()

    def hear(state: State) -> None:
        if args.once:
            stop.set()
        else:
            out.talk(f"archonctl: {'; '.join((state.word, *state.reasons))}")

    release = load_release(_folder(Path(args.release)))
    watch = Watch(
        release,
        _boot(args, release.loaded.endpoint.engine),
        args.leg,
        args.deadline,
        args.recheck * 3600,
        lambda text: out.talk(f"archonctl: {text}"),
        hear,
    )
    with Interrupts():
        if args.once:
            out.talk(f"archonctl: waiting for an engine that is ready at port {watch.port}")
            watch.run(stop)
            return _told(watch, out)
        try:
            _serve(args, watch, stop, out)
        except KeyboardInterrupt:
            stop.set()
    return 0


def _serve(args: Namespace, watch: Watch, stop: threading.Event, out: Output) -> None:
    from archonctl.fleet.sidecar.answers import app, keep_looking
    from archonctl.observe.board import Board
    from archonctl.observe.serve import serving_app
    from archonctl.service.preflight import split_listen

    board = Board()
    host, port = split_listen(args.listen)
    with serving_app(app(watch, board), host, port, "--listen") as bound:
        out.talk(f"archonctl: answers at {host or '*'} port {bound}")
        threading.Thread(target=keep_looking, args=(watch, board, stop), name="looks", daemon=True).start()
        watch.run(stop)


def _told(watch: Watch, out: Output) -> int:
    from archonctl.fleet.sidecar.answers import verdict_value

    state = watch.state
    if out.json:
        out.value(verdict_value(watch))
    else:
        out.answer("\n".join([f"{watch.release.loaded.name}: {state.word}", *(f"  {why}" for why in state.reasons)]))
    return EXIT[state.word]


def _folder(given: Path) -> Path:
    """A ConfigMap is mounted as links; behind ``..data`` are the plain files."""
    behind = given / "..data"
    return behind if behind.is_dir() else given


def _boot(args: Namespace, engine: Engine) -> Callable[[], BootLedger] | None:
    from archonctl.fleet.sidecar.pod_log import PodLog
    from archonctl.ledger.reader import read_ledger

    if args.pod_log:
        return partial(PodLog.of(args.pod_log, os.environ).boot, engine.kind, engine.version)
    return partial(read_ledger, args.log, engine.kind, engine.version) if args.log else None
