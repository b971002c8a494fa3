# Copyright: archonctl contributors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Runs the archonctl that is installed on the host, and reads its one JSON answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess

COMMON = {
    "executable": {"type": "path", "default": "/usr/bin/archonctl"},
    "operator": {"type": "str", "default": ""},
    "timeout": {"type": "int", "default": 3600},
}
WORDS = {
    0: "holds",
    1: "broken",
    2: "declaration invalid",
    3: "no evidence",
    4: "refused by the gate",
    5: "refused by the host",
    6: "rolled back, and the old release holds",
    7: "rolled back, and the old release does not hold either",
    8: "drift",
    70: "internal fault",
}
"""The table of archonctl(1)."""
TALK_LINES = 40
LAST_GRACE_S = 30


class Answer:
    """What one run of the command came to."""

    def __init__(self, exit_code, value, talk, timed_out=False):
        self.exit_code = exit_code
        self.is_error = value.get("schema") == "archonctl.error/1"
        self.value = value
        self.talk = talk
        self.timed_out = timed_out

    @property
    def word(self):
        """The exit code as a word."""
        return WORDS.get(self.exit_code, f"exit {self.exit_code}")

    @property
    def error(self):
        """The refusal, or an empty mapping."""
        return self.value.get("error") or {} if self.is_error else {}

    def fields(self):
        """The keys that every module returns."""
        found = {"exit_code": self.exit_code, "word": self.word, "timed_out": self.timed_out}
        if self.is_error:
            found.update(error=self.error, also=self.value.get("also") or [])
        else:
            found.update(value=self.value)
        return found

    def reasons(self):
        """Why, in one line: the refusal's own words, else what every start that was made came to."""
        if self.is_error:
            hint = self.error.get("hint")
            return "{}: {}{}".format(self.error.get("code"), self.error.get("message"), f" ({hint})" if hint else "")
        told = []
        for attempt in self.value.get("attempts") or []:
            why = "; ".join(attempt.get("reasons") or [])
            told.append(
                "release {}: {}{}".format(attempt.get("release"), attempt.get("verdict"), ": " + why if why else "")
            )
        return "; ".join(told) or "; ".join(self.value.get("reasons") or []) or self.word

    def fail(self, module, what, **more):
        """End the module as failed, with the command's own code and figures."""
        message = f"archonctl {what}: {self.word} (exit {self.exit_code}): {self.reasons()}"
        if self.timed_out:
            message = f"after {module.params['timeout']} s it was interrupted; {message}"
        module.fail_json(msg=message, talk=self.talk, **dict(self.fields(), **more))


def ask(module, *words):
    """Run ``archonctl WORDS --json`` and return its Answer; fails the module if there is no answer to read."""
    program = module.params["executable"]
    if not os.access(program, os.X_OK):
        module.fail_json(
            msg=f"archonctl is not installed at {program}; archonctl.endpoints.archon_install places it",
            error={"code": "archonctl-missing", "message": "not installed", "where": program, "hint": "archon_install"},
            exit_code=5,
            word=WORDS[5],
        )
    environ = dict(os.environ, LC_ALL="C.UTF-8")
    if module.params["operator"]:
        environ["ARCHON_OPERATOR"] = module.params["operator"]
    code, out, err, timed_out = _run([program, *words, "--json"], environ, module.params["timeout"])
    talk = err.splitlines()[-TALK_LINES:]
    try:
        value = json.loads(out)
        if not isinstance(value, dict):
            raise ValueError("not an object")
    except ValueError:
        last = f": {talk[-1][:300]}" if talk else ""
        refused = 5 if code == 2 else 70  # it does not know such words; or it ended somewhere in the middle
        message = f"archonctl {' '.join(words)} ended with {code} and gave no answer that can be read{last}"
        hint = "is it of another version than the collection? archon_package brings one"
        module.fail_json(
            msg=message,
            error={"code": "archonctl-missing", "message": message, "where": program, "hint": hint},
            exit_code=refused,
            word=WORDS[refused],
            timed_out=timed_out,
            talk=talk,
        )
    return Answer(code, value, talk, timed_out)


def _run(command, environ, timeout_s):
    """Exit code, stdout, stderr, and whether it had to be interrupted.

    It gets a session of its own: what ends this module (a lost connection, Ctrl-C on the controller) does not end a
    change in the middle.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
        start_new_session=True,
    )
    timed_out = False
    for patience, number in ((timeout_s, signal.SIGINT), (timeout_s, signal.SIGINT), (LAST_GRACE_S, signal.SIGKILL)):
        try:
            out, err = process.communicate(timeout=patience)
            break
        except subprocess.TimeoutExpired:
            timed_out = True
            process.send_signal(number)
    else:
        out, err = process.communicate()
    return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), timed_out
