#!/usr/bin/python
# Copyright: archonctl contributors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: archon_probe
short_description: Verify a running endpoint by its boot log and by full-height requests
version_added: 0.1.0
description:
  - Runs C(archonctl verify), which asks the engine that an installed unit runs, and keeps the verdict on the host.
  - Fails unless the contract holds.
options:
  endpoint:
    description: The name of an installed endpoint.
    type: str
    required: true
  leg:
    description: How deep, as in M(archonctl.endpoints.archon_apply).
    type: str
    choices: [ledger, admission, full]
    default: full
  when_idle:
    description: Whether to wait until nobody uses the engine, and to give way the moment that somebody does.
    type: bool
    default: false
attributes:
  check_mode:
    description: Can run in check mode.
    details:
      - No request is sent; the last verdict on the running start is told.
    support: partial
  diff_mode:
    description: Nothing of the endpoint is changed.
    support: none
extends_documentation_fragment:
  - archonctl.endpoints.command
  - archonctl.endpoints.attributes
"""

EXAMPLES = r"""
- name: Ask the running engine for what it promised
  archonctl.endpoints.archon_probe:
    endpoint: archon
    leg: admission
"""

RETURN = r"""
verdict:
  description: One of holds, broken and no evidence; in check mode also what C(archonctl status) knows besides.
  returned: when there is one
  type: str
  sample: holds
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.archonctl.endpoints.plugins.module_utils.command import COMMON, ask


def main():
    """Ask the engine; in check mode only what is known of it."""
    spec = dict(
        COMMON,
        endpoint={"type": "str", "required": True},
        leg={"type": "str", "choices": ["ledger", "admission", "full"], "default": "full"},
        when_idle={"type": "bool", "default": False},
    )
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    endpoint = module.params["endpoint"]
    if module.check_mode:
        answer = ask(module, "status", endpoint)
        looked = answer.value.get("endpoints") or [{}]
        verdict = looked[0].get("word")
    else:
        words = ["verify", endpoint, "--leg", module.params["leg"]]
        answer = ask(module, *words, *(["--when-idle"] if module.params["when_idle"] else []))
        verdict = answer.value.get("verdict")
    if answer.exit_code != 0:
        answer.fail(module, f"probe {endpoint}", changed=False, verdict=verdict)
    module.exit_json(changed=False, verdict=verdict, **answer.fields())


if __name__ == "__main__":
    main()
