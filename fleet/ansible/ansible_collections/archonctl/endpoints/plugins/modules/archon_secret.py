#!/usr/bin/python
# Copyright: archonctl contributors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: archon_secret
short_description: Place an API key, which nobody else can read at any moment
version_added: 0.1.0
description:
  - Writes a file beside its place with no permissions for others, gives it its owner and group, and moves it there,
    whole.
  - C(ansible.builtin.copy) makes a new file readable for all first, and leaves it so where the owner or group is
    wrong.
options:
  path:
    description: Where it lies. The folder has to be there.
    type: path
    required: true
  content:
    description: What is in it. Never shown.
    type: str
    required: true
  owner:
    description: An account of the host.
    type: str
    default: root
  group:
    description: A group of the host.
    type: str
    default: archon
  mode:
    description: Permissions, octal.
    type: str
    default: "0640"
  replace:
    description: Whether a file that is there is replaced; a running engine has read it.
    type: bool
    default: true
attributes:
  check_mode:
    description: Compares.
    support: full
  diff_mode:
    description: It would show the secret.
    support: none
extends_documentation_fragment:
  - archonctl.endpoints.attributes
author:
  - archonctl contributors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Place the key
  archonctl.endpoints.archon_secret:
    path: /etc/archon/chat.key
    content: "{{ vaulted_key }}"
"""

RETURN = r""" # """

import contextlib
import grp
import os
import pwd
import tempfile

from ansible.module_utils.basic import AnsibleModule


def main():
    """Compare, then place."""
    spec = {
        "path": {"type": "path", "required": True},
        "content": {"type": "str", "required": True, "no_log": True},
        "owner": {"type": "str", "default": "root"},
        "group": {"type": "str", "default": "archon"},
        "mode": {"type": "str", "default": "0640"},
        "replace": {"type": "bool", "default": True},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    wanted = module.params
    is_there = os.path.lexists(wanted["path"])
    if is_there and not wanted["replace"]:
        module.exit_json(changed=False)
    try:
        content = wanted["content"].encode()
        access = (pwd.getpwnam(wanted["owner"]).pw_uid, grp.getgrnam(wanted["group"]).gr_gid, int(wanted["mode"], 8))
        if is_there and present(wanted["path"]) == (content, *access):
            module.exit_json(changed=False)
        if not module.check_mode:
            place(wanted["path"], content, *access)
    except (OSError, KeyError, ValueError) as err:
        module.fail_json(msg="{}: {}".format(wanted["path"], err))
    module.exit_json(changed=True)


def present(path):
    """Content, owner, group and permissions of the file that is there."""
    with open(path, "rb") as file:
        stat = os.fstat(file.fileno())
        return file.read(), stat.st_uid, stat.st_gid, stat.st_mode & 0o7777


def place(path, content, uid, gid, mode):
    """Write it whole; what is there stays where anything fails."""
    fd, staged = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".archon-")  # 0600
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchown(fd, uid, gid)
            os.fchmod(fd, mode)
            file.write(content)
            file.flush()
            os.fsync(fd)
        os.replace(staged, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        raise


if __name__ == "__main__":
    main()
