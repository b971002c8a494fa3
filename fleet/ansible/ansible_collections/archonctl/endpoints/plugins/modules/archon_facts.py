#!/usr/bin/python
# Copyright: archonctl contributors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: archon_facts
short_description: Cards, memory and endpoints of a host, as facts
version_added: 0.1.0
description:
  - Gathers what C(archonctl host show), C(archonctl status) and C(archonctl drift) say, as Ansible facts.
  - A host without archonctl is no failure; RV(ansible_facts.archon.installed) says so.
options:
  gather:
    description: What to look at.
    type: list
    elements: str
    choices: [host, endpoints, drift, lease]
    default: [host, endpoints]
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
- name: Look at the cards
  archonctl.endpoints.archon_facts:
    gather:
      - host

- name: Say how much memory they have
  ansible.builtin.debug:
    msg: "{{ archon.host.cards | map(attribute='total_mib') | sum }} MiB"
"""

RETURN = r"""
ansible_facts:
  description: Facts to be used in plays.
  returned: always
  type: dict
  contains:
    archon:
      description: What was gathered.
      type: dict
      returned: always
      contains:
        installed:
          description: Whether archonctl is installed.
          type: bool
          returned: always
        version:
          description: Its version.
          type: str
          returned: when it is installed
        host:
          description: The machine, in the form of C(archonctl.host/1).
          type: dict
          returned: when asked for
        endpoints:
          description: Every installed endpoint, in the form of C(archonctl.status/1).
          type: list
          elements: dict
          returned: when asked for
        lease:
          description: Whose rollout has the host, since when and until when; empty where none has.
          type: str
          returned: when asked for
        drift:
          description: Every installed endpoint, in the form of C(archonctl.drift/1).
          type: list
          elements: dict
          returned: when asked for
"""

import json
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.archonctl.endpoints.plugins.module_utils.command import COMMON, ask
from ansible_collections.archonctl.endpoints.plugins.module_utils.lease import FOLDER, LEASE, read, told

WORDS = {"host": ("host", "show"), "endpoints": ("status",), "drift": ("drift",)}
LISTING = "/usr/lib/archon/installed.json"
FINE = (0, 1, 3, 8)
"""How a look may end; a broken contract is a fact, too."""


def main():
    """Look, and tell."""
    spec = dict(
        COMMON,
        gather={
            "type": "list",
            "elements": "str",
            "choices": [*sorted(WORDS), "lease"],
            "default": ["host", "endpoints"],
        },
    )
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    program = module.params["executable"]
    facts = {"installed": os.access(program, os.X_OK)}
    if "lease" in module.params["gather"]:
        held = read(os.path.join(FOLDER, LEASE))
        facts["lease"] = told(held).rstrip(",") if held else ""
    if facts["installed"]:
        facts["version"] = version()
        for name in [name for name in module.params["gather"] if name in WORDS]:
            answer = ask(module, *WORDS[name])
            if answer.is_error or answer.exit_code not in FINE:
                answer.fail(module, " ".join(WORDS[name]), changed=False)
            facts[name] = answer.value["host" if name == "host" else "endpoints"]
    module.exit_json(changed=False, ansible_facts={"archon": facts})


def version():
    """The version that was installed; None where that is not written down."""
    try:
        with open(LISTING, encoding="utf-8") as file:
            return json.load(file)["version"]
    except (OSError, ValueError, TypeError, KeyError):
        return None


if __name__ == "__main__":
    main()
