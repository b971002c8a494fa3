"""``archonctl fleet`` over real sshd, real systemd and the real llama-server on each of three machines.

The tests go on from each other in the order of the file, as an operator's day does: what one leaves runs in the next.
"""

from __future__ import annotations

import signal

import pytest

from archonctl.fleet.facts import facts_file, facts_folder
from archonctl.host.load import read_profile
from support.fleet_lab import HOLDS, LEASE, NAME, SECRET, SHORT, UNIT, Lab, lab

__all__ = ["lab"]
pytestmark = [pytest.mark.systemd, pytest.mark.engine, pytest.mark.timeout(900)]
QUICK = ("--verify", "admission")
WAITS = "until [ -e /srv/turn/go ]; do sleep 0.1; done"
UNTOUCHED = {"touched": False, "changed": False}


def test_a_first_rollout_installs_starts_and_verifies_and_the_same_again_changes_nothing(lab: Lab) -> None:
    lab.declare()
    lab.keep_secret("inventory", "h1", "/etc/archon/kept.key")
    done = lab.controller("apply", "inventory", *QUICK)
    assert (done.code, done.words) == (0, dict.fromkeys(("h1", "h2", "h3"), "holds")), done.talk
    assert lab.fleet.boxes["h1"]("stat", "-c", "%a %U %G", "/etc/archon/kept.key") == "640 root archon"
    assert SECRET not in done.talk + str(done.value)
    assert [each["endpoints"][0]["outcome"] for each in done.value["hosts"]] == ["applied"] * 3
    before = lab.fleet.boxes["h1"].show(UNIT, "MainPID", "InvocationID")
    again = lab.controller("apply", "inventory", *QUICK, "--limit", "h1")
    assert (again.code, again.host("h1")["changed"]) == (0, False), again.talk
    assert lab.fleet.boxes["h1"].show(UNIT, "MainPID", "InvocationID") == before
    lab.inventory("plain")


def test_check_shows_what_would_differ_and_leaves_the_host_as_it_is(lab: Lab) -> None:
    before, placed = lab.status("h2")["release"], lab.declared("h2")
    same = lab.controller("apply", "plain", "--check", "--limit", "h2")
    assert [each["action"] for each in same.host("h2")["endpoints"]] == ["nothing"], same.talk
    lab.declare()
    done = lab.controller("apply", "plain", "--check", "--limit", "h2")
    assert (done.code, done.words, done.host("h2")["touched"]) == (0, {"h2": "checked"}, False), done.talk
    (shown,) = done.host("h2")["endpoints"]
    assert shown["action"] == "restart"
    assert f"+{lab.batch}" in shown["differences"][0]["lines"]
    assert (lab.status("h2")["release"], lab.declared("h2")) == (before, placed)


def test_looks_tell_of_every_host_and_keep_what_it_has_as_a_profile(lab: Lab) -> None:
    status = lab.controller("status", "plain")
    assert (status.code, set(status.words.values())) == (0, {"holds"}), status.talk
    assert status.host("h3")["endpoints"][0]["listen"] == "127.0.0.1:18400"
    cache = {"XDG_CACHE_HOME": str(lab.fleet.folder / "alice@one" / "cache")}
    kept = facts_file(facts_folder([str(lab.fleet.folder / "plain")], cache), "h2")
    assert (read_profile(kept).ram_mib or 0) > 1000
    probed = lab.controller("probe", "plain", *QUICK)
    assert (probed.code, probed.host("h1")["endpoints"][0]["verdict"]) == (0, "holds"), probed.talk
    drop_in = f"/etc/systemd/system/{UNIT}.d/10-release.conf"
    lab.fleet.boxes["h2"]("sh", "-c", f"cp {drop_in} /srv/kept; echo '# by hand' >> {drop_in}; systemctl daemon-reload")
    drift = lab.controller("drift", "plain")
    assert (drift.code, drift.words) == (8, {"h1": "holds", "h2": "drift", "h3": "holds"}), drift.talk
    lab.fleet.boxes["h2"]("sh", "-c", f"cp /srv/kept {drop_in}; systemctl daemon-reload")


def test_a_router_is_told_of_the_hosts_as_they_are_now(lab: Lab) -> None:
    lab.inventory("routed", keys={"h3": "stranger"})
    path = lab.fleet.folder / "routed"
    for number in (1, 2, 3):
        route = f"archon_route=\"{{'{NAME}': '10.99.0.1{number}:18400'}}\""
        path.write_text(path.read_text().replace(f"\nh{number} ", f"\nh{number} {route} "))
    done = lab.controller("route", "routed", "--target", "nginx", "--out", str(lab.fleet.folder / "archon.conf"))
    assert (done.code, done.value["changed"]) == (0, True), done.talk
    seen = {each["host"]: (each["state"], each["weight"], each["tokens"]) for each in done.value["backends"]}
    assert seen == {"h1": ("verified", 1, 512), "h2": ("verified", 1, 512), "h3": ("unknown", 0, None)}
    assert "10.99.0.13:18400 down;" in (lab.fleet.folder / "archon.conf").read_text()


def test_an_upgrade_that_breaks_on_one_host_is_undone_there_and_goes_no_further(lab: Lab) -> None:
    old = {host: lab.status(host)["release"] for host in lab.fleet.boxes}
    lab.declare(lab.wrapper("new", {"h1": HOLDS, "h2": SHORT, "h3": HOLDS}))
    done = lab.controller("apply", "plain", *QUICK)
    assert (done.code, done.words) == (6, {"h1": "holds", "h2": "rolled back", "h3": "untouched"}), done.talk
    assert done.value["stopped_at"] == "h2"
    new, again = done.host("h2")["endpoints"][0]["attempts"]
    assert (new["verdict"], again["verdict"], again["release"]) == ("broken", "holds", old["h2"])
    assert done.host("h3") | UNTOUCHED == done.host("h3")
    now = {host: lab.status(host) for host in lab.fleet.boxes}
    assert [now[host]["word"] for host in now] == ["holds"] * 3
    assert [now[host]["release"] == old[host] for host in now] == [False, True, True]
    assert "/srv/turn/new" not in lab.declared("h2")
    back = lab.controller("rollback", "plain", *QUICK, "--limit", "h1", "--to", old["h1"][:8])
    assert (back.code, back.words, lab.status("h1")["release"]) == (0, {"h1": "holds"}, old["h1"]), back.talk


def test_a_refused_key_and_a_host_that_is_cut_off_are_told_apart_and_hide_nobody_else(lab: Lab) -> None:
    lab.inventory("refused", keys={"h2": "stranger"})
    lab.fleet.ip("link", "set", "v3", "down")
    try:
        status = lab.controller("status", "refused")
    finally:
        lab.fleet.ip("link", "set", "v3", "up")
    assert (status.code, status.words) == (3, {"h1": "holds", "h2": "unreachable", "h3": "unreachable"}), status.talk
    assert status.host("h2")["fault"]["code"] == "fleet-key-refused"
    assert status.host("h3")["fault"]["code"] == "fleet-host-unreachable"
    lab.declare()
    done = lab.controller("apply", "refused", *QUICK, "--canary", "h2", "--limit", "h1,h2")
    assert (done.code, done.words) == (3, {"h2": "unreachable", "h1": "untouched"}), done.talk


def test_where_one_host_is_refused_beforehand_nothing_is_touched_anywhere(lab: Lab) -> None:
    before = lab.status("h1")["release"]
    (lab.fleet.folder / "worse").mkdir(exist_ok=True)
    text = (lab.fleet.folder / f"{NAME}.toml").read_text().replace("threads = 1", "no-such-knob = 1")
    (lab.fleet.folder / "worse" / f"{NAME}.toml").write_text(text)
    done = lab.controller("apply", lab.inventory("worse.ini", h3=f"worse/{NAME}.toml"), "--limit", "h1,h3")
    assert (done.code, done.words) == (2, {"h1": "untouched", "h3": "refused"}), done.talk
    assert done.host("h3")["fault"]["code"] == "knob-unknown"
    assert lab.status("h1")["release"] == before


def test_where_one_host_gives_no_root_nothing_is_touched_anywhere_and_no_password_is_shown(lab: Lab) -> None:
    before, box = lab.status("h1")["release"], lab.fleet.boxes["h3"]
    home = "/home/op/.ssh"
    box("sh", "-c", f"useradd -m op; mkdir -p {home}; cp /root/.ssh/authorized_keys {home}; chown -R op {home}")
    path = lab.fleet.folder / lab.inventory("rootless")
    become = f"ansible_user=op ansible_become=true ansible_become_method=su ansible_become_password={SECRET}"
    path.write_text(path.read_text().replace("\nh3 ", f"\nh3 {become} "))
    lab.declare()
    done = lab.controller("apply", "rootless", *QUICK, "--limit", "h1,h3")
    assert (done.code, done.words) == (5, {"h1": "untouched", "h3": "refused"}), done.talk
    assert done.host("h3")["fault"]["code"] == "fleet-become-refused"
    assert SECRET not in done.talk + str(done.value)
    assert lab.status("h1")["release"] == before


def test_a_second_operator_hears_who_is_at_it_and_disturbs_nothing(lab: Lab) -> None:
    lab.declare(lab.wrapper("slow", {"h1": f"{WAITS}; {HOLDS}", "h2": HOLDS, "h3": HOLDS}))
    first = lab.controller.start("apply", "plain", *QUICK, "--limit", "h1,h3")
    lab.wait_phase("h1", "starting", first)
    same = lab.controller("apply", "plain", *QUICK)
    assert (same.code, same.value["error"]["code"]) == (5, "fleet-busy")
    assert "alice@one" in same.value["error"]["message"]
    second = lab.controller.by("bob@two")("apply", "plain", *QUICK, "--limit", "h1,h3")
    assert (second.code, set(second.words.values())) == (5, {"busy"}), second.talk
    assert {each["fault"]["code"] for each in second.value["hosts"]} == {"fleet-busy"}
    assert second.host("h3")["busy_with"] == "alice@one"
    seen = lab.controller.by("bob@two")("status", "plain", "--limit", "h3")
    assert seen.host("h3")["busy_with"].startswith("alice@one, since 2"), seen.talk
    third = lab.controller.by("bob@two")(
        "rollback", "plain", *QUICK, "--limit", "h1", "--take-over"
    )  # the lock is left
    assert (third.code, third.words, third.host("h1")["touched"]) == (5, {"h1": "busy"}, False), third.talk
    assert third.host("h1")["fault"]["code"] == "up-in-progress"
    assert third.host("h1")["busy_with"].endswith(", alice@one")
    h3 = lab.status("h3")["release"]
    lab.take_over("h3", "bob@two")  # as a rollout with --take-over does, which then goes on
    lab.fleet.boxes["h1"]("touch", "/srv/turn/go")
    done = lab.controller.finish(first)
    assert (done.code, done.words) == (5, {"h1": "holds", "h3": "busy"}), done.talk
    assert (done.host("h3")["busy_with"], lab.status("h3")["release"]) == ("bob@two", h3)
    lab.fleet.boxes["h1"]("rm", "/srv/turn/go")
    lab.fleet.boxes["h3"]("rm", LEASE)


def test_ctrl_c_says_what_was_done_where_and_the_host_in_flight_comes_to_its_own_end(lab: Lab) -> None:
    old, declared = lab.status("h1")["release"], lab.declared("h1")
    lab.declare(lab.wrapper("slow", dict.fromkeys(("h1", "h2"), f"{WAITS}; {HOLDS}")))
    process = lab.controller.start("apply", "plain", *QUICK, "--limit", "h1,h2")
    lab.wait_phase("h1", "starting", process)
    process.send_signal(signal.SIGINT)
    done = lab.controller.finish(process)
    assert (done.code, done.words) == (130, {"h1": "in flight", "h2": "untouched"}), done.talk
    assert done.host("h1")["touched"] is True
    assert lab.declared("h1") == declared
    lab.fleet.boxes["h1"]("touch", "/srv/turn/go")
    lab.wait_quiet("h1")
    now = lab.status("h1")
    assert (now["word"], now["release"] != old, now["remark"]) == ("holds", True, None)
    assert f"batch-size = {lab.batch}" in lab.declared("h1")


def test_a_killed_rollout_ends_at_its_host_leaves_what_held_and_is_taken_up_by_its_own_operator(lab: Lab) -> None:
    old, declared = lab.status("h2")["release"], lab.declared("h2")
    lab.declare(lab.wrapper("worse", {"h1": HOLDS, "h2": f"{WAITS}; {SHORT}"}))
    process = lab.controller.start("apply", "plain", *QUICK, "--limit", "h1,h2", "--canary", "h2")
    lab.wait_phase("h2", "starting", process)
    before = lab.status("h1")["release"]
    process.kill()
    process.communicate()
    assert lab.declared("h2") == declared
    other = lab.controller.by("bob@two")("apply", "plain", "--check", "--limit", "h1,h2")
    assert (other.code, set(other.words.values())) == (5, {"busy"}), other.talk
    lab.fleet.boxes["h2"]("touch", "/srv/turn/go")
    lab.wait_quiet("h2")
    lab.wait_ended()
    now = lab.status("h2")
    assert (now["word"], now["release"], now["remark"], lab.declared("h2")) == ("holds", old, None, declared)
    assert lab.status("h1")["release"] == before
    mine = lab.controller("apply", "plain", "--check", "--limit", "h1,h2")
    assert (mine.code, set(mine.words.values())) == (0, {"checked"}), mine.talk
    lab.release("h1", "h2")


def test_a_host_that_is_killed_while_it_is_changed_ends_the_rollout(lab: Lab) -> None:
    old = lab.status("h3")["release"]
    lab.declare(lab.wrapper("dying", {"h1": HOLDS, "h2": f"sleep 100; {HOLDS}", "h3": HOLDS}))
    process = lab.controller.start("apply", "plain", *QUICK)
    lab.wait_phase("h2", "starting", process)
    lab.fleet.boxes["h2"].kill()
    done = lab.controller.finish(process)
    assert (done.code, done.words) == (3, {"h1": "holds", "h2": "unreachable", "h3": "untouched"}), done.talk
    assert (done.value["stopped_at"], done.host("h2")["touched"]) == ("h2", True)
    assert "while it was being changed" in done.host("h2")["fault"]["message"]
    assert (lab.status("h3")["word"], lab.status("h3")["release"]) == ("holds", old)
