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

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.archonctl.endpoints.plugins.module_utils.command import COMMON, ask

BUSY = "up-in-progress"


def main():
    """Preview, or change."""
    spec = dict(
        COMMON,
        endpoint={"type": "str", "required": True},
        verify={"type": "str", "choices": ["ledger", "admission", "full"], "default": "full"},
        rollback={"type": "bool", "default": True},
    )
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    endpoint = module.params["endpoint"]
    words = ["apply", endpoint, "--verify", module.params["verify"]]
    words += ["--check"] if module.check_mode else ["--yes"]
    answer = ask(module, *words, *([] if module.params["rollback"] else ["--no-rollback"]))
    value = {} if answer.is_error else answer.value
    changed = would_change(value) if module.check_mode else was_changed(value)
    found = {"changed": changed, "previewed": module.check_mode, "busy": answer.error.get("code") == BUSY}
    if value:
        files = ["\n".join([each["file"], *each["lines"]]) for each in value.get("differences") or []]
        found.update(outcome=value.get("outcome"), release=value.get("release"))
        found["diff"] = [{"prepared": f"{text}\n"} for text in files]
    if answer.exit_code != 0:
        answer.fail(module, f"apply {endpoint}", **found)
    module.exit_json(**dict(answer.fields(), **found))


def would_change(value):
    """True where an engine would be started or stopped."""
    return value.get("action") in ("start", "restart")


def was_changed(value):
    """True where one was: an endpoint that was only asked again is unchanged."""
    return bool(value.get("attempts")) and value.get("action") not in ("nothing", "verify")


if __name__ == "__main__":
    main()
