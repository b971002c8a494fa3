"""``archonctl render``."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from archonctl.cli.endpoint import endpoint_of
from archonctl.cli.output import Output


def run(args: Namespace, out: Output) -> int:
    """Render and write into one folder."""
    from archonctl.release.render import command_of, render_release
    from archonctl.release.store import write_folder

    loaded = endpoint_of(args, out)
    folder = Path(args.out)
    release = render_release(loaded, command_of(loaded), home=folder.absolute())
    written = write_folder(release, folder)
    if out.json:
        out.value(
            {
                "schema": "archonctl.render/1",
                "endpoint": release.endpoint,
                "path": str(written.path),
                "changed": written.changed,
                "digest": release.digest,
                "argv": list(release.argv),
                "env": dict(release.env),
                "unit": release.unit_name,
                "files": {name: file.sha256 for name, file in release.files.items()},
                "notes": list(release.notes),
            }
        )
        return 0
    state = "written" if written.changed else "unchanged"
    lines = [f"{out.paint(str(written.path), 'bold')}  {state}  {release.digest[:16]}"]
    lines += [f"  {name:<24} {len(file.content):>7,} bytes" for name, file in sorted(release.files.items())]
    lines += [out.paint(f"  note: {note}", "dim") for note in release.notes]
    out.answer("\n".join(lines))
    return 0
