"""A virtual machine with Debian's own kernel and its real ttm module, in software (QEMU TCG): no KVM, no disk image."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
TOOLS = ("qemu-system-x86_64", "busybox", "modprobe", "depmod", "cpio", "xz", "apt-get", "dpkg-deb")

_MODULES = ("virtio_pci", "9p", "9pnet_virtio", "overlay")
_COMMON = ("-accel", "tcg,thread=multi", "-cpu", "max", "-nodefaults", "-no-user-config", "-display", "none")
_QUIET = "console=ttyS0 panic=-1 quiet loglevel=3 mitigations=off"


def missing_tools() -> list[str]:
    """What must be installed first."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def get_kernel(folder: Path) -> Path:
    """Debian's kernel in ``folder``, downloaded once."""
    _run(HERE / "get-kernel.sh", folder, timeout=240)
    return folder


def run_guest(kernel: Path, out: Path, guest: str, *, timeout: float = 280) -> int:
    """Run the shell text ``guest`` as root under systemd, on this machine's own root; its exit status.

    ``out`` is the guest's /mnt/out.
    """
    out.mkdir(exist_ok=True)
    (out / "guest").write_text(guest, encoding="utf-8")
    status = out / "status"
    command = [
        *("-machine", "pc", "-smp", "2", "-m", "2048", "-vga", "std", "-no-reboot", "-serial", f"file:{out}/console"),
        *_kernel(kernel, out, "init-machine.sh", *_MODULES),
        *_share("root", Path("/"), readonly=True),
        *_share("kernel-modules", kernel / "lib/modules", readonly=True),
        *_share("out", out, readonly=False),
    ]
    with subprocess.Popen(["qemu-system-x86_64", *_COMMON, *command], stdin=subprocess.DEVNULL) as machine:
        try:
            _until(status, machine, timeout)
        finally:
            machine.kill()
    return int(status.read_text(encoding="ascii"))


def look(kernel: Path, out: Path, gib: int, *, timeout: float = 200) -> dict[str, int]:
    """Boot a machine with ``gib`` of memory that is only reserved: its ``total_kib`` and ``pages_limit``.

    ``alone`` is the limit with the module loaded and no device there yet.
    """
    command = [
        *("-machine", "pc,memory-backend=m0", "-m", f"{gib}G", "-smp", "1", "-vga", "std", "-no-reboot"),
        *("-object", f"memory-backend-ram,id=m0,size={gib}G,reserve=off", "-serial", "stdio"),
        *_kernel(kernel, out, "init-look.sh", "ttm", "bochs"),
    ]
    said = _run("qemu-system-x86_64", *_COMMON, *command, timeout=timeout)
    pairs = (line.strip().partition("=") for line in said.splitlines() if "=" in line)
    return {name: int(value) for name, _, value in pairs if value.isdigit()}


def _kernel(kernel: Path, out: Path, init: str, *modules: str) -> list[str]:
    image = out / f"{init}.img"
    _run(HERE / "mk-initramfs.sh", kernel, image, HERE / init, *modules, timeout=60)
    binary = next((kernel / "boot").glob("vmlinuz-*"))
    return ["-kernel", str(binary), "-initrd", str(image), "-append", _QUIET]


def _share(tag: str, path: Path, *, readonly: bool) -> list[str]:
    how = "readonly=on" if readonly else "readonly=off"
    return [
        *("-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap,{how}"),
        *("-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
    ]


def _until(status: Path, machine: subprocess.Popen[bytes], timeout: float) -> None:
    """Wait for the guest's status; that it powers off afterwards is of no interest."""
    waited = 0.0
    while not (status.exists() and status.read_text(encoding="ascii").strip()):
        try:
            machine.wait(0.2)
            raise AssertionError(f"the machine ended early; see {status.parent}/console")
        except subprocess.TimeoutExpired:
            waited += 0.2
        if waited > timeout:
            console = (status.parent / "console").read_text(encoding="utf-8", errors="replace")
            raise AssertionError(f"no status after {timeout:g} s; console:\n{console[-3000:]}")


def _run(*words: str | Path, timeout: float) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{words[0]}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout
