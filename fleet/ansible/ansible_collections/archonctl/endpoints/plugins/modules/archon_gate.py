#!/usr/bin/python
# Copyright: archonctl contributors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: archon_gate
short_description: Judge declarations, units and scripts before anything is started
version_added: 0.1.0
description:
  - Runs C(archonctl gate) on files of the host, and fails where a start must not happen.
  - Starts nothing, asks no engine, changes nothing.
options:
  path:
    description: Files or folders on the host that are judged.
    type: list
    elements: path
    required: true
  strict:
    description: Whether warnings refuse too.
    type: bool
    default: false
  refuse:
    description: Whether a refusal fails the task; otherwise it is only told.
    type: bool
    default: true
attributes:
  check_mode:
    description: Nothing is ever changed, so there is no difference.
    support: full
  diff_mode:
    description: There is nothing to show a difference of.
    support: none
extends_documentation_fragment:
  - archonctl.endpoints.command
  - archonctl.endpoints.attributes
"""

EXAMPLES = r"""
- name: Judge every declaration of the host
  archonctl.endpoints.archon_gate:
    path:
      - /etc/archon
"""

RETURN = r"""
refused:
  description: Whether a start must not happen.
  returned: success
  type: bool
findings:
  description: Everything that was found, each with its code, place and what to do.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.archonctl.endpoints.plugins.module_utils.command import COMMON, ask


def main():
    """Judge, and say it."""
    spec = dict(
        COMMON,
        path={"type": "list", "elements": "path", "required": True},
        strict={"type": "bool", "default": False},
        refuse={"type": "bool", "default": True},
    )
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    words = ["gate", *module.params["path"], "--no-environment"]
    answer = ask(module, *words, *(["--strict"] if module.params["strict"] else []))
    findings = answer.value.get("findings") or []
    refused = answer.exit_code == 4
    if answer.is_error or (refused and module.params["refuse"]):
        errors = [f for f in findings if f.get("severity") == "error"] or findings
        first = errors[0] if errors else {}
        error = {key: first.get(key) for key in ("code", "message", "fix")}
        answer.fail(
            module, "gate", changed=False, refused=refused, findings=findings, **({"error": error} if first else {})
        )
    if answer.exit_code not in (0, 4):
        answer.fail(module, "gate", changed=False)
    module.exit_json(changed=False, refused=refused, findings=findings, **answer.fields())


if __name__ == "__main__":
    main()
