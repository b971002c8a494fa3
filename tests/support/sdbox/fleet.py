"""Several machines with a real systemd and a real sshd, on a bridge in the network namespace of the controller."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from support.sdbox.box import Box

SSH = (
    "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "
    "-o ConnectTimeout=10 -o ServerAliveInterval=2 -o ServerAliveCountMax=5"
)


@dataclass
class Fleet:
    """``count`` boxes ``h1``, ``h2`` ... at 10.99.0.11, 10.99.0.12 ...; ``folder`` holds them, keys and inventories."""

    folder: Path
    count: int
    binds: Sequence[str] = ()
    boxes: dict[str, Box] = field(default_factory=dict)

    @property
    def lan(self) -> list[str]:
        """What runs a command as the controller."""
        return ["nsenter", f"--net={self.folder / 'lan.ns'}", "--"]

    def ip(self, *words: str) -> None:
        """``ip`` on the controller's side: ``link set v2 down`` cuts off h2."""
        subprocess.run([*self.lan, "ip", *words], check=True)

    def up(self) -> Fleet:
        """Boot all of them at once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "lan.ns").touch()
        subprocess.run(["unshare", f"--net={self.folder / 'lan.ns'}", "true"], check=True)
        for words in ("link set lo up", "link add br0 type bridge", "addr add 10.99.0.1/24 dev br0", "link set br0 up"):
            self.ip(*words.split())
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f"]
        subprocess.run([*keygen, self.folder / "id"], check=True)
        subprocess.run([*keygen, self.folder / "stranger"], check=True)
        for number in range(1, self.count + 1):
            self.boxes[f"h{number}"] = Box(self.folder / f"h{number}", self.binds)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._boot, self.boxes))
        return self

    def _boot(self, name: str) -> None:
        box, number = self.boxes[name].up(), name.removeprefix("h")
        pid = (self.folder / name / "pid1").read_text().strip()
        self.ip("link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", pid)
        self.ip("link", "set", f"v{number}", "master", "br0", "up")
        box("ip", "addr", "add", f"10.99.0.1{number}/24", "dev", "eth0")
        box("ip", "link", "set", "eth0", "up")
        box.put("/root/.ssh/authorized_keys", (self.folder / "id.pub").read_text(), "600")
        box("chmod", "700", "/root/.ssh")
        fresh = "rm -f /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key"
        box("sh", "-c", f"{fresh}; systemctl start ssh")

    def inventory(self, name: str, hosts: Mapping[str, str] | None = None) -> Path:
        """Write an inventory: each host with more variables; all of the fleet without."""
        wanted = hosts if hosts is not None else dict.fromkeys(self.boxes, "")
        lines = ["[fleet]"]
        for host, more in wanted.items():
            address = f"10.99.0.1{host.removeprefix('h')}"
            lines.append(f"{host} ansible_host={address} {more}")
        key = f"ansible_ssh_private_key_file={self.folder / 'id'}"
        lines += ["[fleet:vars]", "ansible_user=root", key, "ansible_python_interpreter=/usr/bin/python3"]
        lines += [f"ansible_ssh_common_args='{SSH}'", ""]
        path = self.folder / name
        path.write_text("\n".join(lines))
        return path

    def down(self) -> None:
        """Power off, and take the network away."""
        try:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda box: box.down(), self.boxes.values()))
        finally:
            subprocess.run(["umount", self.folder / "lan.ns"], check=False)


def why_no_fleet() -> str:
    """What this machine lacks for a fleet; empty if nothing."""
    missing = [tool for tool in ("ip", "ssh", "ssh-keygen") if shutil.which(tool) is None]
    if not os.access("/usr/sbin/sshd", os.X_OK):
        missing.append("sshd")
    return f"needs {', '.join(missing)}" if missing else ""
