"""One host through a run: from what happens there to its word."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from archonctl.fleet.rollout.happenings import Happening
from archonctl.fleet.rollout.values import CHANGES, EXIT, Action, Fault, HostResult, HostWord, worst_of
from archonctl.redact import without_secrets

BY_EXIT: dict[int, HostWord] = {0: "holds", 1: "broken", 3: "no evidence", 6: "rolled back", 7: "lost", 8: "drift"}
BUSY = "up-in-progress"
_CHANGE = frozenset({"archon_apply", "archon_rollback"})
HELD_BACK = "Touch nothing"
"""Tasks of the rolling playbook that keep a host out because of another one begin with these words."""
_HOLDER = re.compile(r"archonctl \(([^)]*)\)")
_STATUS_BROKEN = frozenset({"down", "broken", "half done"})
_BOUND = 2000

_BECOME = r"\bsudo: |(incorrect|missing) \w+ password"
_VAULT = r"no vault secrets|undecryptable variable|vault.*decryption failed|decryption failed.*vault"
_SSH = (
    (_VAULT, "fleet-vault-closed"),
    (r"permission denied|too many authentication failures|invalid/incorrect (password|username)", "fleet-key-refused"),
    (r"host key verification failed|remote host identification has changed", "fleet-host-key-unknown"),
    (_BECOME, "fleet-become-refused"),
)
_HINTS = {
    "fleet-key-refused": "ssh to it by hand as the inventory says: user, key, and its authorized_keys",
    "fleet-host-key-unknown": "ssh to it by hand once, and compare the fingerprint",
    "fleet-become-refused": "root is needed there: ansible_user: root, or ansible_become with a password that it takes",
    "fleet-vault-closed": "--vault-password-file FILE, or ANSIBLE_VAULT_PASSWORD_FILE",
    "fleet-host-unreachable": "is it up, and does ssh answer? its endpoints may serve all the same",
}


class HostFollower:
    """Takes what happens on one host, in order; ``result()`` at any time."""

    def __init__(self, host: str, action: Action, *, check: bool = False) -> None:
        self.host = host
        self.running = ""
        """The task that runs there right now."""
        self.leased = False
        """Whether this rollout has, or may have, a lease of it."""
        self.facts: Mapping[str, Any] | None = None
        self.facts_at: float | None = None
        self._action, self._check = action, check
        self._word: HostWord | None = None
        self._exit = 0
        self._fault: Fault | None = None
        self._endpoints: list[Mapping[str, Any]] = []
        self._touched = self._changed = False
        self._first = self._last = 0.0
        self._changing = False
        self._busy_with = ""

    def see(self, what: Happening) -> None:
        """One more."""
        self._first = self._first or what.at
        self._last = max(self._last, what.at)
        if what.module == "archon_lease" and what.status != "skipped":
            self.leased = what.status == "ok"
        if what.kind == "begin":
            self.running = what.task
            self._changing = what.module in _CHANGE and not what.task.startswith("Preview")
            self._touched = self._touched or self._changing
            return
        self.running = ""
        was_changing, self._changing = self._changing, False
        for part in what.parts:
            self._take(part, was_changing)

    def _take(self, what: Happening, was_changing: bool) -> None:
        if what.status == "skipped":
            self._touched = self._touched and self._changed
        elif what.status == "unreachable":
            self._unreachable(what, was_changing)
        elif what.module in _CHANGE:
            self._applied(what)
        elif what.module == "archon_lease" and what.status == "failed" and what.text("held_by"):
            self._busy_with = what.text("held_by")
            self._set("busy", 5, self._fault_of(what))
        elif what.module in ("archon_facts", "archon_probe") and (what.status == "ok" or what.exit_code is not None):
            self._looked(what)
        elif what.status == "failed" and not what.is_ignored and self._word is None:
            self._failed(what)

    def result(self, *, interrupted: bool = False) -> HostResult:
        """Its word as far as it is known."""
        word, code, fault = self._word, self._exit, self._fault
        if word is None and interrupted and self._changing:
            word = "in flight"
            why = "it was being changed; its archonctl goes on there by itself, to a verdict or back"
            fault = Fault(
                "fleet-interrupted", why, hint=f"archonctl fleet status --limit {self.host} tells what came of it"
            )
        elif word is None:
            word, code = self._without_trouble()
        return HostResult(
            self.host,
            word,
            code or EXIT[word],
            fault,
            self._touched,
            self._changed,
            max(0.0, self._last - self._first),
            tuple(self._endpoints),
            self.facts_at,
            self._busy_with,
        )

    def _without_trouble(self) -> tuple[HostWord, int]:
        if self._check and self._endpoints:
            return "checked", 0
        if not self._endpoints:
            return ("untouched", 0) if self._action in CHANGES else ("no evidence", 3)
        return "holds", 0

    def _set(self, word: HostWord, code: int, fault: Fault | None) -> None:
        """The worst that was seen stays."""
        if self._word is None or worst_of((self._exit, code)) != self._exit:
            self._word, self._exit, self._fault = word, code, fault

    def _unreachable(self, what: Happening, was_changing: bool) -> None:
        said = " ".join(without_secrets(what.text("msg")).split())[:300]
        code = _known(said) or "fleet-host-unreachable"
        if was_changing:
            said = f"it was lost while it was being changed: {said}"
        self._set("unreachable", 3, Fault(code, said or "no reason given", what.task, _HINTS[code]))

    def _applied(self, what: Happening) -> None:
        previewed = bool(what.result.get("previewed"))
        value = what.result.get("value")
        if isinstance(value, Mapping) and (not previewed or self._check):
            self._endpoints.append(value)
        self._touched = self._touched and not (what.exit_code in (2, 4, 5) and not self._changed)
        self._changed = self._changed or (not previewed and bool(what.result.get("changed")))
        if what.status != "failed":
            return
        if what.error.get("code") == BUSY:
            holder = _HOLDER.search(what.text("message"))
            self._busy_with = holder[1] if holder else ""
            self._set("busy", 5, self._fault_of(what))
        else:
            code = 5 if what.exit_code is None else what.exit_code
            self._set(BY_EXIT.get(code, "refused"), code, self._fault_of(what))

    def _looked(self, what: Happening) -> None:
        found = what.result.get("ansible_facts", {}).get("archon") if what.module == "archon_facts" else None
        if isinstance(found, Mapping):
            self._facts(found, what.at)
            return
        value = what.result.get("value")
        self._endpoints += [value] if isinstance(value, Mapping) else []
        if what.exit_code:
            self._set(BY_EXIT.get(what.exit_code, "refused"), what.exit_code, self._fault_of(what))

    def _facts(self, found: Mapping[str, Any], at: float) -> None:
        if isinstance(host := found.get("host"), Mapping):
            self.facts, self.facts_at = host, at
        self._busy_with = str(found.get("lease") or "")
        if self._action in ("status", "drift") and not found.get("installed"):
            why = Fault("archonctl-missing", "archonctl is not installed there", hint="archon_package in the inventory")
            self._set("no evidence", 3, why)
        if self._action == "status":
            for each in found.get("endpoints", ()):
                self._endpoints.append(each)
                self._status(each)
        if self._action == "drift":
            for each in found.get("drift", ()):
                self._endpoints.append(each)
                self._drift(each)

    def _status(self, each: Mapping[str, Any]) -> None:
        word, name = str(each.get("word")), str(each.get("endpoint"))
        if word in _STATUS_BROKEN:
            self._set(
                "broken", 1, Fault("fleet-endpoint-not-holding", f"{name} is {word}", hint=f"archonctl probe {name}")
            )
        elif word != "holds":
            self._set("no evidence", 3, Fault("fleet-endpoint-not-holding", f"{name} is {word}", hint=_ASK))

    def _drift(self, each: Mapping[str, Any]) -> None:
        name, findings = str(each.get("endpoint")), each.get("findings") or ()
        if findings:
            first = findings[0]
            self._set(
                "drift",
                8,
                Fault(str(first.get("code")), f"{name}: {first.get('message')}", hint=first.get("fix") or ""),
            )
        elif each.get("unchecked"):
            what = "; ".join(map(str, each["unchecked"]))
            self._set("no evidence", 3, Fault("fleet-endpoint-not-holding", f"{name}: not compared: {what}"))

    def _failed(self, what: Happening) -> None:
        said = what.text("module_stderr").strip().splitlines()  # where the module did not come to an answer
        message = without_secrets(": ".join(filter(None, (what.text("msg"), *said[-1:]))))[:_BOUND] or "no reason given"
        if "censored" in what.result:
            message = f"{what.task}: what was said is hidden, because API keys are in it"
        if what.task.startswith(HELD_BACK):
            self._fault = Fault("fleet-held-back", message)
        elif what.exit_code is not None:
            code = what.exit_code if what.exit_code in (2, 4, 5) else 5
            self._set("refused", code, self._fault_of(what))
        elif known := _known(message, "fleet-vault-closed", "fleet-become-refused"):
            self._set("refused", 5, Fault(known, message, what.task, _HINTS[known]))
        elif what.module.endswith(".assert"):
            self._set("refused", 5, Fault("archonctl-missing", message, what.task))
        else:
            hint = "the task is of the collection archonctl.endpoints, or of Ansible itself"
            if "censored" in what.result:
                hint = "has the host the folder, the owner and the group that archon_secrets names? is its vault open?"
            self._set("failed", 5, Fault("fleet-task-failed", message, what.task, hint))

    def _fault_of(self, what: Happening) -> Fault:
        error = what.error
        if error.get("code"):
            parts = [str(error.get(name) or "") for name in ("code", "message", "where", "hint")]
            return Fault(parts[0], parts[1][:_BOUND], parts[2], parts[3] or str(error.get("fix") or ""))
        codes = [code for attempt in _attempts(what) for code in attempt.get("codes") or ()]
        code = str(codes[0]) if codes else "fleet-endpoint-not-holding"
        return Fault(code, without_secrets(what.text("msg"))[:_BOUND], hint=f"archonctl explain {code}")


def _known(said: str, *codes: str) -> str:
    """The code of what Ansible said, of all or of these; empty where nothing is known by it."""
    return next((c for words, c in _SSH if c in (codes or (c,)) and re.search(words, said, re.IGNORECASE)), "")


_ASK = "archonctl fleet probe asks the engines"


def _attempts(what: Happening) -> tuple[Mapping[str, Any], ...]:
    value = what.result.get("value")
    found = value.get("attempts") if isinstance(value, Mapping) else None
    return tuple(each for each in found or () if isinstance(each, Mapping))
