# Copyright: archonctl contributors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
name: events
type: stdout
short_description: One JSON object a line for everything that happens
version_added: 0.1.0
author:
  - archonctl contributors (!UNKNOWN)
description:
  - What C(archonctl fleet) reads. Each line has a key C(event), which is one of play, task, begin, result and end.
  - Where nobody reads any more, the run ends.
  - Results that are under C(no_log) arrive censored, as in every other output of Ansible.
"""

import json
import os
import signal
import sys
import time

from ansible.plugins.callback import CallbackBase


def end():
    """End the run. A process group that was made for it alone is killed, since Ansible may hang after a signal that
    comes while it takes a result; what runs on a host goes on there.
    """
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGINT)


class CallbackModule(CallbackBase):
    """Writes the lines."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "archonctl.endpoints.events"

    def _write(self, event, **fields):
        line = json.dumps(dict(event=event, at=time.time(), **fields), default=str)
        try:
            self._display.display(line, screen_only=False)
            sys.stdout.flush()
        except OSError:  # who reads is gone, or the disk is full: nobody would see what the next host comes to
            end()

    def _result(self, result, status, ignored=False):
        task = getattr(result, "task", None) or result._task
        host = getattr(result, "host", None) or result._host
        content = getattr(result, "result", None) or result._result
        self._write(
            "result",
            host=host.get_name(),
            task=task.get_name(),
            action=task.action,
            status=status,
            ignored=bool(ignored),
            result=json.loads(self._dump_results(content)),
        )

    def v2_playbook_on_play_start(self, play):
        self._write("play", name=play.get_name())

    def v2_playbook_on_task_start(self, task, is_conditional):
        self._write("task", name=task.get_name(), action=task.action)

    def v2_runner_on_start(self, host, task):
        self._write("begin", host=host.get_name(), task=task.get_name(), action=task.action)

    def v2_runner_on_ok(self, result):
        self._result(result, "ok")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._result(result, "failed", ignore_errors)

    def v2_runner_on_unreachable(self, result):
        self._result(result, "unreachable")

    def v2_runner_on_skipped(self, result):
        self._result(result, "skipped")

    def v2_playbook_on_no_hosts_remaining(self):
        self._write("none-left")

    def v2_playbook_on_stats(self, stats):
        hosts = sorted(stats.processed)
        self._write("end", hosts={host: stats.summarize(host) for host in hosts})
