#!/usr/bin/python
# Copyright: archonctl contributors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: archon_install
short_description: Install archonctl, its units and accounts on a host
version_added: 0.1.0
description:
  - Installs from a file that lies on the host, either the Debian package that C(archonctl install --deb) writes, which
    carries everything that it needs, or a wheel.
  - A wheel is installed into a temporary virtual environment, from which C(archonctl install) places everything. Its
    requirements come from O(find_links), or from the host's configured index.
  - What endpoints keep in C(/var/lib/archon) and C(/etc/archon) is never touched.
options:
  source:
    description: The C(.deb) or C(.whl) on the host. Needed where O(state=present).
    type: path
  find_links:
    description: A folder of the host with the wheels of what a wheel requires; no index is asked then.
    type: path
  state:
    description: Whether it shall be there.
    type: str
    choices: [present, absent]
    default: present
  force:
    description: Whether to install a wheel again whose version is installed.
    type: bool
    default: false
  python:
    description: The Python of the host that a wheel is installed with, and that archonctl runs on.
    type: path
    default: /usr/bin/python3
attributes:
  check_mode:
    description: Compares what is installed with the file, and says what would be done.
    support: full
  diff_mode:
    description: Version and digest of what is installed.
    support: full
extends_documentation_fragment:
  - archonctl.endpoints.command
  - archonctl.endpoints.attributes
"""

EXAMPLES = r"""
- name: Install from the package that was copied before
  archonctl.endpoints.archon_install:
    source: /var/tmp/archonctl_0.1.0_amd64.deb

- name: Take it away; endpoints, releases and histories stay
  archonctl.endpoints.archon_install:
    state: absent
"""

RETURN = r"""
version:
  description: The version that is installed at the end; in check mode the one that would be.
  returned: when it is there
  type: str
  sample: 0.1.0
"""

import hashlib
import json
import os
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.archonctl.endpoints.plugins.module_utils.command import COMMON, ask
from ansible_collections.archonctl.endpoints.plugins.module_utils.package import listing_of

LISTING = "/usr/lib/archon/installed.json"
"""What the last install placed, file by file with its digest."""


def main():
    """Compare, then place or take away."""
    spec = dict(
        COMMON,
        source={"type": "path"},
        find_links={"type": "path"},
        state={"type": "str", "choices": ["present", "absent"], "default": "present"},
        force={"type": "bool", "default": False},
        python={"type": "path", "default": "/usr/bin/python3"},
    )
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True, required_if=[("state", "present", ["source"])])
    before = placed()
    if module.params["state"] == "absent":
        take_away(module, before)
    source = module.params["source"]
    if not os.path.isfile(source):
        module.fail_json(msg=f"{source} is not on this host")
    if source.endswith(".deb"):
        wanted, is_same = of_package(module, source, before)
        place = place_package
    elif source.endswith(".whl"):
        wanted = {"version": os.path.basename(source).split("-")[1]}
        is_same = wanted["version"] == before.get("version") and not module.params["force"]
        place = place_wheel
    else:
        module.fail_json(msg=f"{source} is neither a .deb nor a .whl")
    if is_same:
        module.exit_json(changed=False, version=before["version"])
    if module.check_mode:
        module.exit_json(changed=True, version=wanted["version"], diff=difference(before, wanted))
    place(module, source)
    after = placed()
    module.exit_json(changed=after != before, version=after.get("version"), diff=difference(before, after))


def placed():
    """The listing of what is installed; empty where nothing is, or it cannot be read."""
    try:
        with open(LISTING, encoding="utf-8") as file:
            value = json.load(file)
        return value if isinstance(value, dict) else {}
    except (OSError, ValueError):
        return {}


def of_package(module, source, before):
    """The listing within a Debian package, and whether it is what is installed."""
    wanted = listing_of(source, LISTING)
    if wanted is None:
        module.fail_json(msg=f"{source} is no package of archonctl")
    status = module.run_command(["dpkg-query", "-W", "-f", "${Status}", "archonctl"])[1]
    return wanted, wanted == before and status.endswith("ok installed")


def place_package(module, source):
    """dpkg, which says itself what is missing."""
    environ = {"DEBIAN_FRONTEND": "noninteractive"}
    code, out, err = module.run_command(["dpkg", "-i", source], environ_update=environ)
    if code:
        module.fail_json(msg=f"dpkg -i {source}: exit {code}: {(err or out).strip()[-500:]}", changed=False)


def place_wheel(module, source):
    """A temporary environment that places itself."""
    python, links = module.params["python"], module.params["find_links"]
    with tempfile.TemporaryDirectory(prefix="archonctl-") as folder:
        pip = [os.path.join(folder, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        module.run_command([python, "-m", "venv", folder], check_rc=True)
        module.run_command([*pip, *(["--no-index", "--find-links", links] if links else []), source], check_rc=True)
        module.params["executable"] = os.path.join(folder, "bin", "archonctl")
        answer = ask(module, "install")
    if answer.exit_code:
        answer.fail(module, "install", changed=False)


def take_away(module, before):
    """Uninstall, where there is anything to."""
    if not before:
        module.exit_json(changed=False)
    if not module.check_mode:
        status = module.run_command(["dpkg-query", "-W", "-f", "${Status}", "archonctl"])[1]
        if status.endswith("ok installed"):
            module.run_command(["dpkg", "--remove", "archonctl"], check_rc=True)
        else:
            answer = ask(module, "install", "--uninstall")
            if answer.exit_code:
                answer.fail(module, "install --uninstall", changed=False)
    module.exit_json(changed=True, diff=difference(before, {}))


def difference(before, after):
    """For --diff."""
    return {"before": describe(before), "after": describe(after)}


def describe(listing):
    """Version, and a digest over all files, in one line."""
    if not listing:
        return "not installed\n"
    text = json.dumps(listing.get("files"), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest() if listing.get("files") else "?"
    return "archonctl {}, files {}\n".format(listing.get("version"), digest[:16])


if __name__ == "__main__":
    main()
