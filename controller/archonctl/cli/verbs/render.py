"""``archonctl render``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from archonctl.cli.endpoint import endpoint_of, loader_of
from archonctl.cli.output import Output
from archonctl.errors import UsageError
from archonctl.release.store import Written
from archonctl.release.values import Release


def run(args: Namespace, out: Output) -> int:
    """Render; write into one folder, or print."""
    from archonctl.release.store import write_folder

    folder = Path(args.out) if args.out else None
    release, chosen = _rendered(args, out, folder)
    written = write_folder(release, folder) if folder else None
    if out.json:
        out.value(_value(release, chosen, args.target, written))
    elif written is None:
        whole = args.target in ("systemd", "kubernetes", "all")
        whole = args.target in ("systemd", "kubernetes", "all")
        shown = chosen if whole else chosen[:1]  # a script says what its JSON says
        out.answer("\n".join(_text(release, shown, headed=len(shown) > 1)).rstrip("\n"))
        for note in release.notes:
            out.talk(f"note: {note}")
    else:
        out.answer("\n".join(_listing(release, chosen, written, out)))
    return 0


def _rendered(args: Namespace, out: Output, folder: Path | None) -> tuple[Release, tuple[str, ...]]:
    """What is written, and the files of the target in the order that they are shown."""
    from archonctl.release.render import command_of, render_release
    from archonctl.release.targets import KUBERNETES, files_of
    from archonctl.release.values import MANIFEST

    if args.target == KUBERNETES:
        from archonctl.fleet.kubernetes.render import render_kubernetes

        more = {"kubernetes.controller_image": args.controller_image} if args.controller_image else {}
        bundle, _ = render_kubernetes(loader_of(args, out)(more))
        return bundle, tuple(name for name in bundle.files if name != MANIFEST)
    if args.controller_image:
        why = f"--controller-image is of --target {KUBERNETES}, not of {args.target}"
        raise UsageError("command-line-invalid", why)
    loaded = endpoint_of(args, out)
    release = render_release(loaded, command_of(loaded), home=folder.absolute() if folder else None)
    return release, files_of(args.target, release)


def _value(release: Release, chosen: Iterable[str], target: str, written: Written | None) -> dict[str, object]:
    return {
        "schema": "archonctl.render/1",
        "endpoint": release.endpoint,
        "path": str(written.path) if written else None,
        "changed": written.changed if written else None,
        "digest": release.digest,
        "argv": list(release.argv),
        "env": dict(release.env),
        "unit": release.unit_name,
        "files": {name: file.sha256 for name, file in release.files.items()},
        "target": target,
        "texts": {name: release.files[name].content.decode("utf-8") for name in chosen},
        "notes": list(release.notes),
    }


def _text(release: Release, chosen: Iterable[str], *, headed: bool) -> Iterable[str]:
    for name in chosen:
        text = release.files[name].content.decode("utf-8")
        yield f"==> {name} <==\n{text}" if headed else text


def _listing(release: Release, chosen: Iterable[str], written: Written, out: Output) -> list[str]:
    state = "written" if written.changed else "unchanged"
    lines = [f"{out.paint(str(written.path), 'bold')}  {state}  {release.digest[:16]}"]
    lines += [f"  {name:<24} {len(release.files[name].content):>7,} bytes" for name in chosen]
    return [*lines, *(out.paint(f"  note: {note}", "dim") for note in release.notes)]
