#!/usr/bin/python
# Copyright: archonctl contributors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: archon_apply
short_description: Change an endpoint to its declaration, verified, or back to what held
version_added: 0.1.0
description:
  - Runs C(archonctl apply). Everything that can be known is checked while the old engine still serves; then the new
    release has to hold its contract, or gives way to the last one that did.
  - The task fails unless the contract was verified. Where the old release runs again (C(exit_code) 6) it fails too,
    with C(changed) true, since the engine was stopped for it.
options:
  endpoint:
    description: The name of an endpoint below C(/etc/archon), or the path of a declaration on the host.
    type: str
    required: true
  place:
    description:
      - Where the declaration is to lie, such as C(/etc/archon/archon.toml), if O(endpoint) is the path of a copy of it.
      - It is judged and rendered as if it lay there, and comes there, whole, once its contract is verified. Until then,
        and whatever ends the change in the middle, the file that is there stays.
      - The bytes for it are laid ready before the running engine is touched.
    type: path
  verify:
    description:
      - How deep the verdict looks. V(ledger) reads the boot log only, V(admission) sends full-height requests until
        they are admitted, V(full) holds them at once until all are answered.
    type: str
    choices: [ledger, admission, full]
    default: full
  rollback:
    description: Whether a release that does not hold gives way to the last one that did; otherwise it is left stopped.
    type: bool
    default: true
attributes:
  check_mode:
    description: Plans, judges, renders and compares on the host, and says what would be done; nothing is touched.
    support: full
  diff_mode:
    description: The rendered files against what runs. A rendered release holds no secrets.
    support: full
extends_documentation_fragment:
  - archonctl.endpoints.command
  - archonctl.endpoints.attributes
seealso:
  - module: archonctl.endpoints.archon_rollback
"""

EXAMPLES = r"""
- name: From the running release to the declared one, or back
  archonctl.endpoints.archon_apply:
    endpoint: archon

- name: A verdict that costs less
  archonctl.endpoints.archon_apply:
    endpoint: archon
    verify: admission

- name: To a declaration that was copied to the host, and comes to its place if it holds
  archonctl.endpoints.archon_apply:
    endpoint: /run/archon/fleet/archon.toml
    place: /etc/archon/archon.toml
"""

RETURN = r"""
outcome:
  description: One of checked, unchanged, applied, rolled back, lost and failed.
  returned: when the endpoint was looked at
  type: str
  sample: applied
release:
  description: The current release at the end.
  returned: when there is one
  type: str
  sample: 0a702ef1c1d2e3f4
previewed:
  description: Whether it was only looked at, as in check mode.
  returned: always
  type: bool
busy:
  description: Whether another archonctl has the endpoint right now; C(error) names it.
  returned: always
  type: bool
"""

import contextlib
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.archonctl.endpoints.plugins.module_utils.command import COMMON, ask

BUSY = "up-in-progress"


def main():
    """Preview, or change; a declaration that cannot be placed is a refusal."""
    spec = dict(
        COMMON,
        endpoint={"type": "str", "required": True},
        place={"type": "path"},
        verify={"type": "str", "choices": ["ledger", "admission", "full"], "default": "full"},
        rollback={"type": "bool", "default": True},
    )
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        with Placing(module) as placing:
            run(module, placing)
    except OSError as err:
        refuse(module, err)


def run(module, placing):
    """Ask the host's archonctl, place the declaration if it holds, and tell."""
    endpoint, place = module.params["endpoint"], module.params["place"]
    words = ["apply", endpoint, "--verify", module.params["verify"], *(["--as", place] if place else [])]
    words += ["--check"] if module.check_mode else ["--yes"]
    answer = ask(module, *words, *([] if module.params["rollback"] else ["--no-rollback"]))
    value = {} if answer.is_error else answer.value
    changed = would_change(value) if module.check_mode else was_changed(value)
    found = {"changed": changed, "previewed": module.check_mode, "busy": answer.error.get("code") == BUSY}
    if value:
        files = ["\n".join([each["file"], *each["lines"]]) for each in value.get("differences") or []]
        found.update(outcome=value.get("outcome"), release=value.get("release"))
        found["diff"] = [{"prepared": f"{text}\n"} for text in files] + placing.difference()
    if answer.exit_code != 0:
        answer.fail(module, f"apply {endpoint}", **found)
    if placing.differs:
        found["changed"] = True
        try:
            placing.place()
        except OSError as err:
            refuse(module, err, **dict(found, changed=bool(value.get("attempts"))))
    module.exit_json(**dict(answer.fields(), **found))


def refuse(module, err, **found):
    """End as failed: the declaration that is there stays."""
    message = f"the declaration cannot be placed: {err.strerror or err}"
    where = err.filename or module.params["place"]
    error = {"code": "state-unwritable", "message": message, "where": where, "hint": ""}
    module.fail_json(msg=f"{message}: {where}", exit_code=5, error=error, **found)


class Placing:
    """The declaration, laid ready beside its place, moved there by ``place`` and taken away without it.

    A kill at any moment leaves the file that is there, or the whole new one.
    """

    def __init__(self, module):
        self.path, self.is_check = module.params["place"], module.check_mode
        self.new = self.old = b""
        if self.path:
            self.new = content_of(module.params["endpoint"])
            with contextlib.suppress(FileNotFoundError):
                self.old = content_of(self.path)
            self.folder, name = os.path.split(self.path)
            self.ready = os.path.join(self.folder, f".{name}.next")
        self.differs = self.new != self.old

    def __enter__(self):
        if self.differs and not self.is_check:
            os.makedirs(self.folder, mode=0o755, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.ready)
            fd = os.open(self.ready, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, 0o644)
                file.write(self.new)
                file.flush()
                os.fsync(fd)
        return self

    def __exit__(self, *_error):
        if self.differs and not self.is_check:
            with contextlib.suppress(OSError):
                os.unlink(self.ready)

    def place(self):
        """Move it there, for good."""
        if self.is_check:
            return
        os.replace(self.ready, self.path)
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def difference(self):
        """For --diff."""
        if not self.differs:
            return []
        before, after = (text.decode("utf-8", "replace") for text in (self.old, self.new))
        return [{"before": before, "after": after, "before_header": self.path, "after_header": self.path}]


def content_of(path):
    """The bytes of a file."""
    with open(path, "rb") as file:
        return file.read()


def would_change(value):
    """True where an engine would be started or stopped."""
    return value.get("action") in ("start", "restart")


def was_changed(value):
    """True where one was: an endpoint that was only asked again is unchanged."""
    return bool(value.get("attempts")) and value.get("action") not in ("nothing", "verify")


if __name__ == "__main__":
    main()
