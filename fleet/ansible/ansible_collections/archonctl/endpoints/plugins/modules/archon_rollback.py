#!/usr/bin/python
# Copyright: archonctl contributors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: archon_rollback
short_description: Go back to an earlier release of an endpoint, and verify it
version_added: 0.1.0
description:
  - Runs C(archonctl rollback). The release is verified too; if it does not hold, what ran before is started again.
  - With O(to) as a digest a second run changes nothing. Without it every run goes back one release further, or forth.
options:
  endpoint:
    description: The name of an installed endpoint.
    type: str
    required: true
  to:
    description: Which release, by its digest, or V(2) for the second last other one that held; empty for the last.
    type: str
    default: ""
  verify:
    description: How deep the verdict looks, as in M(archonctl.endpoints.archon_apply).
    type: str
    choices: [ledger, admission, full]
    default: full
  rollback:
    description: Whether what ran before is started again if the earlier release does not hold.
    type: bool
    default: true
attributes:
  check_mode:
    description: Says whether another release would run; which one is known only where O(to) is a digest.
    support: full
  diff_mode:
    description: The two digests.
    support: full
extends_documentation_fragment:
  - archonctl.endpoints.command
  - archonctl.endpoints.attributes
seealso:
  - module: archonctl.endpoints.archon_apply
"""

EXAMPLES = r"""
- name: Back to the last other release that held
  archonctl.endpoints.archon_rollback:
    endpoint: archon

- name: To this one, whatever ran in between
  archonctl.endpoints.archon_rollback:
    endpoint: archon
    to: 0a702ef1c1d2e3f4
"""

RETURN = r"""
outcome:
  description: One of unchanged, applied, rolled back, lost and failed; checked in check mode.
  returned: when the endpoint was looked at
  type: str
  sample: applied
release:
  description: The current release at the end.
  returned: when there is one
  type: str
  sample: 0a702ef1c1d2e3f4
"""

import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.archonctl.endpoints.plugins.module_utils.command import COMMON, ask


def main():
    """Go back, or say whether it would."""
    spec = dict(
        COMMON,
        endpoint={"type": "str", "required": True},
        to={"type": "str", "default": ""},
        verify={"type": "str", "choices": ["ledger", "admission", "full"], "default": "full"},
        rollback={"type": "bool", "default": True},
    )
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    endpoint, wanted = module.params["endpoint"], module.params["to"]
    before = current(module, endpoint)
    if module.check_mode:
        changed = not is_there(wanted, before)
        module.exit_json(
            changed=changed, outcome="checked", release=before, diff=difference(before, wanted if changed else before)
        )
    words = ["rollback", endpoint, *([wanted] if wanted else []), "--yes", "--verify", module.params["verify"]]
    answer = ask(module, *words, *([] if module.params["rollback"] else ["--no-rollback"]))
    value = {} if answer.is_error else answer.value
    release = value.get("release")
    changed = bool(value) and value.get("outcome") != "unchanged" and value.get("action") not in ("nothing", "verify")
    shown = {
        "changed": changed,
        "outcome": value.get("outcome"),
        "release": release,
        "diff": difference(before, release or before),
    }
    if answer.exit_code != 0:
        answer.fail(module, f"rollback {endpoint}", **shown)
    module.exit_json(**dict(answer.fields(), **shown))


def current(module, endpoint):
    """The digest of the release that is current, or an empty text."""
    looked = ask(module, "status", endpoint).value.get("endpoints") or [{}]
    return looked[0].get("release") or ""


def is_there(wanted, before):
    """True where the wanted release, named by its digest, is the current one."""
    return bool(re.fullmatch("[0-9a-fA-F]{4,64}", wanted)) and before.startswith(wanted.lower())


def difference(before, after):
    """For --diff."""
    return {"before": f"release {before}\n", "after": "release %s\n" % (after or "before it")}


if __name__ == "__main__":
    main()
