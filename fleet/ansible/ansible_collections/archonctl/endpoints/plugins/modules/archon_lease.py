#!/usr/bin/python
# Copyright: archonctl contributors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: archon_lease
short_description: Keep a second rollout off a host
version_added: 0.1.0
description:
  - A rollout takes a lease of every host before it touches any, so that a second one, from wherever, ends before it has
    touched anything and says who is at it. Each endpoint has archonctl's own lock besides.
  - A lease is a file below C(/run). It ends when it is released, when its time is over, at a reboot, and when somebody
    takes it who knows that its rollout is gone.
  - A rollout takes it again as the host's turn comes, so that one whose hosts were taken over ends there.
options:
  rollout:
    description: What tells this rollout from any other.
    type: str
    required: true
  operator:
    description: Who asks, for instance V(alice@deploy).
    type: str
    required: true
  seconds:
    description: How long it is kept if it is not released.
    type: int
    default: 7200
  gone:
    description: Rollouts that are known to be gone, as O(rollout) named them. A lease of theirs is taken over.
    type: list
    elements: str
    default: []
  take_over:
    description: Whether a lease of somebody else is taken over, whose rollout is known to be gone.
    type: bool
    default: false
  state:
    description: Whether to take it, or to release it if it is this rollout's.
    type: str
    choices: [taken, released]
    default: taken
  folder:
    description: Where it lies. The folder is made.
    type: path
    default: /run/archon/fleet
attributes:
  check_mode:
    description: A lease that another one has is told of all the same; none is taken.
    support: full
  diff_mode:
    description: Nothing of the host is changed that would last.
    support: none
extends_documentation_fragment:
  - archonctl.endpoints.attributes
author:
  - archonctl contributors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Take the host
  archonctl.endpoints.archon_lease:
    rollout: 4be6bdc4
    operator: alice@deploy
"""

RETURN = r"""
held_by:
  description: The operator of another rollout that has the host.
  returned: when another one has it
  type: str
  sample: bob@deploy
error:
  description: The same as a refusal, with C(code), C(message), C(where) and C(hint).
  returned: when another one has it
  type: dict
"""

import fcntl
import json
import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.archonctl.endpoints.plugins.module_utils.lease import LEASE, read, told


def main():
    """Take it, or let it go, one at a time; a folder that cannot be written is a refusal."""
    spec = {
        "rollout": {"type": "str", "required": True},
        "operator": {"type": "str", "required": True},
        "seconds": {"type": "int", "default": 7200},
        "gone": {"type": "list", "elements": "str", "default": []},
        "take_over": {"type": "bool", "default": False},
        "state": {"type": "str", "choices": ["taken", "released"], "default": "taken"},
        "folder": {"type": "path", "default": "/run/archon/fleet"},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        lease(module)
    except OSError as err:
        where, why = err.filename or module.params["folder"], err.strerror or str(err)
        hint = "root is needed: ansible_user: root, or ansible_become: true" if os.geteuid() else ""
        error = {
            "code": "state-unwritable",
            "message": f"the host cannot be leased: {why}",
            "where": where,
            "hint": hint,
        }
        module.fail_json(msg="{message}: {where}".format(**error), exit_code=5, error=error)


def lease(module):
    """Take it, or let it go; raises OSError."""
    folder = module.params["folder"]
    path = os.path.join(folder, LEASE)
    if module.check_mode:
        held = read(path)
        if module.params["state"] == "taken" and held and not may_take(module, held):
            refuse(module, path, held)
        module.exit_json(changed=False)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    guard = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(guard, fcntl.LOCK_EX)  # until this process ends
    held = read(path)
    if module.params["state"] == "released":
        if held.get("rollout") == module.params["rollout"]:
            os.unlink(path)
        module.exit_json(changed=False)
    if held and not may_take(module, held):
        refuse(module, path, held)
    take(module, path)
    module.exit_json(changed=False)


def may_take(module, held):
    """True for a lease of this very rollout, of one that is known to be gone, and where it is taken over."""
    mine = [module.params["rollout"], *module.params["gone"]]
    return module.params["take_over"] or held.get("rollout") in mine


def take(module, path):
    """Write it, whole."""
    now = time.time()
    value = {name: module.params[name] for name in ("rollout", "operator")}
    value.update(since=now, until=now + module.params["seconds"])
    staged = f"{path}.new"
    with open(staged, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(staged, path)


def refuse(module, path, held):
    """End as failed, saying who has it."""
    message = f"a rollout by {told(held)} has this host"
    hint = "wait for it; if it is known to be gone: --take-over (archon_take_over)"
    error = {"code": "fleet-busy", "message": message, "where": path, "hint": hint}
    module.fail_json(msg=f"fleet-busy: {message} ({hint})", held_by=held.get("operator"), exit_code=5, error=error)


if __name__ == "__main__":
    main()
