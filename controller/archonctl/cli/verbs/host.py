"""``archonctl host``."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from archonctl.cli.output import Output
from archonctl.errors import UsageError


def run(args: Namespace, out: Output) -> int:
    """Do one action: 0, or 1 where ``ttm`` found an error."""
    return {"show": _show, "save": _save, "ttm": _ttm}[args.action](args, out)


def _show(args: Namespace, out: Output) -> int:
    from archonctl.host.detect import detect_host

    host = detect_host(_root(args))
    if out.json:
        from archonctl.host.as_json import host_json

        out.value(host_json("show", host))
    else:
        from archonctl.cli.host_text import host_text

        out.answer(host_text(host, out))
    return 0


def _save(args: Namespace, out: Output) -> int:
    from archonctl.host.as_json import host_json
    from archonctl.host.detect import detect_host
    from archonctl.host.save import profile_text, save_profile

    host = detect_host(_root(args))
    text = profile_text(host)
    if args.file == "-" and not out.json:
        out.answer(text.rstrip("\n"))
        return 0
    if args.file != "-":
        save_profile(Path(args.file), text)
    if out.json:
        out.value(host_json("save", host, "" if args.file == "-" else args.file))
    else:
        out.answer(f"{args.file}: written; a declaration names it as host.profile")
    return 0


def _ttm(args: Namespace, out: Output) -> int:
    from archonctl.findings import refuses
    from archonctl.host.ttm import judge_ttm, read_ttm
    from archonctl.host.ttm_persist import propose, refuse_conflicts

    if args.write and not args.persist:
        raise UsageError("ttm-write-what", "--write goes with --persist", hint="archonctl host ttm ENDPOINT --persist")
    root = _root(args)
    floor_mib, target_mib = _wanted(args, out)
    state = read_ttm(root)
    findings = judge_ttm(state, root, floor_mib)
    persist = None
    if args.persist:
        persist = propose(state, root, _target(args, target_mib))
        if args.write and persist.new is not None:
            refuse_conflicts(state)
            _write(root, persist.path, persist.new)
    is_written = bool(args.write and persist and persist.new is not None)
    if out.json:
        from archonctl.host.as_json import ttm_json

        out.value(ttm_json(state, findings, floor_mib, persist, is_written=is_written))
    else:
        from archonctl.cli.host_text import ttm_text

        out.answer(ttm_text(state, findings, floor_mib, persist, out, is_written=is_written))
    return 1 if refuses(findings) else 0


def _wanted(args: Namespace, out: Output) -> tuple[int | None, int | None]:
    """Floor and target in MiB of the endpoint, where one is named."""
    if args.endpoint is None:
        return None, None
    from archonctl.cli.endpoint import endpoint_of
    from archonctl.host.load import load_host
    from archonctl.plan.build import plan_endpoint

    loaded = endpoint_of(args, out)
    floor_mib = plan_endpoint(loaded).forecast.host_need.ttm_floor_mib
    if floor_mib is None:
        out.talk(f"archonctl: {loaded.name} pins no memory through the GPU driver, so no floor is judged")
    return floor_mib, load_host(loaded).ttm_target_mib or floor_mib


def _target(args: Namespace, declared_mib: int | None) -> int:
    target = declared_mib if args.target is None else args.target
    if target is None or target < 1:
        hint = "name an endpoint that pins memory, or --target MIB"
        raise UsageError("ttm-no-target", "how much shall be allowed?", hint=hint)
    return int(target)


def _write(root: Path, path: str, text: str) -> None:
    from archonctl.release.disk import refusing, sync_folder, write_file
    from archonctl.release.values import ReleaseFile

    place = root / path.lstrip("/")
    with refusing(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_file(place, ReleaseFile(text.encode("utf-8")))
        sync_folder(place.parent)


def _root(args: Namespace) -> Path:
    root = Path(args.root)
    if not root.is_dir():
        raise UsageError("host-root-missing", f"{args.root[:200]!a} is no folder", where="--root")
    return root.absolute()
