# Copyright: archonctl contributors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations


class ModuleDocFragment:
    """What all modules that call the installed command have in common."""

    DOCUMENTATION = r"""
options:
  executable:
    description:
      - The installed command on the host.
    type: path
    default: /usr/bin/archonctl
  operator:
    description:
      - Who asks, as it is written into the endpoint's lock and history on the host, for instance V(alice@deploy).
      - Where it is left out, the host knows only the account that it was done under.
    type: str
    default: ""
  timeout:
    description:
      - Seconds after which the command is interrupted, once, as by Ctrl-C. A change that is under way is undone by it
        then, and has as long again for that; what still runs after that is left half done, and the next apply
        finishes it.
      - Loading a large model takes minutes.
    type: int
    default: 3600
requirements:
  - archonctl on the host (see M(archonctl.endpoints.archon_install))
author:
  - archonctl contributors (!UNKNOWN)
"""

    RETURN = r"""
exit_code:
  description: The exit code of the command; the table is in archonctl(1).
  returned: when the command was run
  type: int
  sample: 0
word:
  description: The exit code as a word.
  returned: when the command was run
  type: str
  sample: holds
value:
  description: The command's own answer under its published schema.
  returned: when the command answered
  type: dict
error:
  description: Why it was refused, with C(code), C(message), C(where) and C(hint). C(archonctl explain CODE) has more.
  returned: when it was refused
  type: dict
also:
  description: Further refusals of the same kind.
  returned: when there is more than one
  type: list
  elements: dict
timed_out:
  description: Whether it had to be interrupted.
  returned: when the command was run
  type: bool
talk:
  description: The last lines that the command said on the way.
  returned: on failure
  type: list
  elements: str
"""
