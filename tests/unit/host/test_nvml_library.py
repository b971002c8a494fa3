"""nvidia-ml-py itself, over a driver library of ours in C that says what it is told to, nonsense included."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LIBRARY = r"""
#include <stdlib.h>
#include <string.h>
typedef unsigned long long u64;
static u64 said(const char *name) { const char *text = getenv(name); return text ? strtoull(text, 0, 10) : 0; }
int nvmlInitWithFlags(unsigned flags) { return (int)said("INIT"); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "said by the library"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { strcpy(out, "580.82.07"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *out) { *out = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) { *out = out; return 0; }
int nvmlDeviceGetName(void *card, char *out, unsigned size) { strcpy(out, "NVIDIA H200"); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *card, int *major, int *minor) { *major = 9; *minor = 0; return 0; }
struct v1 { u64 total, free, used; };
struct v2 { unsigned version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo(void *card, struct v1 *out) {
    out->total = said("TOTAL"); out->free = said("FREE"); return (int)said("MEMORY");
}
#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(void *card, struct v2 *out) {
    if (out->version != (sizeof(struct v2) | 2 << 24)) return 25;
    out->total = said("TOTAL"); out->reserved = said("RESERVED"); out->free = said("FREE"); return (int)said("MEMORY");
}
#endif
"""
"""Without MIG and PCI calls: what an old driver lacks costs no card."""
ASK = """
import json, pathlib, sys, pynvml
from archonctl.host.detect import detect_host
host = detect_host(pathlib.Path(sys.argv[1]), page_bytes=4096, nvml=pynvml)
print(json.dumps([[[card.total_mib, card.free_mib, card.target] for card in host.cards], list(host.notes)]))
"""
GIB, MOST = 1 << 30, (1 << 64) - 1


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``new/libnvidia-ml.so.1`` and ``old/libnvidia-ml.so.1``."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(LIBRARY)
    for name, flags in (("new", []), ("old", ["-DOLD"])):
        (folder / name).mkdir()
        out = folder / name / "libnvidia-ml.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", *flags, "-o", str(out), str(folder / "nvml.c")], check=True)
    return folder


def ask(library: Path, root: Path, **said: int) -> tuple[list[list[Any]], list[str]]:
    env = {**os.environ, "LD_LIBRARY_PATH": str(library), **{name: str(value) for name, value in said.items()}}
    run = subprocess.run([sys.executable, "-c", ASK, str(root)], env=env, capture_output=True, text=True, check=True)
    cards, notes = json.loads(run.stdout)
    return cards, notes


@pytest.mark.parametrize(
    ("kind", "said", "cards", "refused"),
    [
        ("new", {"TOTAL": 141 * GIB, "RESERVED": GIB, "FREE": 139 * GIB}, [[143_360, 142_336, "9.0"]], ""),
        ("old", {"TOTAL": 141 * GIB, "FREE": 139 * GIB}, [[144_384, 142_336, "9.0"]], ""),
        ("new", {"TOTAL": 141 * GIB, "FREE": 142 * GIB}, [[144_384, None, "9.0"]], "bytes free of"),
        ("old", {"TOTAL": 141 * GIB, "FREE": MOST}, [[144_384, None, "9.0"]], "bytes free of"),
        ("new", {"TOTAL": 141 * GIB, "RESERVED": MOST, "FREE": GIB}, [[144_384, 1024, "9.0"]], "bytes reserved of"),
        ("new", {"TOTAL": 0}, [], "is no card's memory"),
        ("new", {"TOTAL": MOST, "FREE": MOST}, [], "is no card's memory"),
        ("old", {"TOTAL": 1 << 63, "FREE": 5}, [], "is no card's memory"),
        ("new", {"MEMORY": 3}, [], "the card is left out"),
        ("new", {"INIT": 9}, [], "NVMLError"),
    ],
)  # fmt: skip
def test_the_real_binding_is_read_and_nonsense_is_refused_by_name(
    libraries: Path, tmp_path: Path, kind: str, said: dict[str, int], cards: list[list[Any]], refused: str
) -> None:
    seen, notes = ask(libraries / kind, tmp_path, **said)
    assert seen == cards
    about = [note for note in notes if "NVML" in note]
    assert about == [] if not refused else any(refused in note for note in about)


def test_without_a_driver_library_there_are_no_cards_and_a_note(tmp_path: Path) -> None:
    cards, notes = ask(tmp_path, tmp_path)
    assert cards == []
    assert any("NVML" in note for note in notes)
