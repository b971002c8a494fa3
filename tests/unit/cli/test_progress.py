"""Talk beside a long run: where it goes, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from archonctl.cli import progress
from archonctl.cli.output import Output
from archonctl.cli.progress import Talker
from archonctl.probe.values import Progress
from archonctl.service.events import Event


def output(*, quiet: bool = False) -> Output:
    return Output(json=False, quiet=quiet, colour=False, unicode=True, width=80)


def test_steps_go_to_stderr_and_answers_to_stdout(capsys: Any) -> None:
    with Talker(output()) as talker:
        talker.event(Event("start", "pid 7", 1.25))
        talker.answer("HOLDS")
    said = capsys.readouterr()
    assert said.out == "HOLDS\n"
    assert said.err == "   1.2 s  start     pid 7\n"


def test_quiet_leaves_only_the_answer(capsys: Any) -> None:
    with Talker(output(quiet=True)) as talker:
        talker.event(Event("load", "1 GiB", 1.0, 0.5, progress=True))
        talker.say("x")
        talker.answer("HOLDS")
    assert capsys.readouterr() == ("HOLDS\n", "")


def test_progress_is_said_again_only_when_it_moved_or_after_a_while(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Talker(output()) as talker:
        for seconds, tokens in ((0, 10), (1, 50), (6, 51), (12, 11), (20, 12), (43, 12)):
            now[0] = 100.0 + seconds
            talker.probe(Progress("capacity", tokens, 100))
    said = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
    assert said == ["10", "51", "11", "12"]


def test_other_words_are_said_soon_though_nothing_moves(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Talker(output()) as talker:
        for seconds, text in (
            (0, "sizing 1 of 3"),
            (6, "sizing 2 of 3"),
            (7, "waiting for 1 request"),
            (13, "waiting for 2"),
        ):
            now[0] = 100.0 + seconds
            talker.probe(Progress("capacity", 0, 100, text))
    said = [line.split("tokens, ")[1] for line in capsys.readouterr().err.splitlines()]
    assert said == ["sizing 1 of 3", "waiting for 1 request", "waiting for 2"]


def test_a_leg_that_counts_nothing_is_not_counted(capsys: Any) -> None:
    with Talker(output()) as talker:
        talker.probe(Progress("transport", 0, 1))
    assert capsys.readouterr().err == ""
