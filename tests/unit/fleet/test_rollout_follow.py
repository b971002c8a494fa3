"""What a host's word is, from the lines that Ansible tells of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.fleet.rollout.follow import HostFollower
from archonctl.fleet.rollout.happenings import Happening, happening_of
from archonctl.fleet.rollout.run import explained, host_pattern
from archonctl.fleet.rollout.values import EXIT, WORST_FIRST, Action, FleetResult, HostResult, worst_of

APPLY, PREVIEW = "From the running release to the declared one, or back", "Preview it on the host"


def line(module: str, task: str = "t", event: str = "result", status: str = "ok", **result: object) -> Happening:
    """A line as the callback writes it, read again."""
    value = {"event": event, "at": 2.0, "host": "h", "task": f"archonctl.endpoints.apply : {task}", "status": status}
    found = happening_of(json.dumps({**value, "action": f"archonctl.endpoints.{module}", "result": result}))
    assert found is not None
    return found


def after(*lines: Happening, action: Action = "apply", check: bool = False, interrupted: bool = False) -> HostResult:
    follower = HostFollower("h", action, check=check)
    for each in lines:
        follower.see(each)
    return follower.result(interrupted=interrupted)


def applied(exit_code: int, outcome: str, **more: object) -> Happening:
    value = {"endpoint": "e", "outcome": outcome, "attempts": [{"codes": ["capacity-short"]}]}
    status = "ok" if exit_code == 0 else "failed"
    return line("archon_apply", APPLY, status=status, exit_code=exit_code, value=value, msg="why", **more)


BEGIN = line("archon_apply", APPLY, event="begin")


@pytest.mark.parametrize(
    ("exit_code", "outcome", "word"),
    [(0, "applied", "holds"), (6, "rolled back", "rolled back"), (7, "lost", "lost"), (1, "failed", "broken")],
)
def test_the_hosts_own_answer_is_its_word(exit_code: int, outcome: str, word: str) -> None:
    found = after(BEGIN, applied(exit_code, outcome, changed=True))
    assert (found.word, found.exit_code, found.touched, found.changed) == (word, exit_code, True, True)
    assert found.fault is None if exit_code == 0 else found.fault is not None and found.fault.code == "capacity-short"


def test_of_two_endpoints_the_worse_counts_in_either_order() -> None:
    for pair in (
        (applied(0, "applied"), applied(6, "rolled back")),
        (applied(6, "rolled back"), applied(0, "applied")),
    ):
        assert after(BEGIN, *pair).word == "rolled back"
    assert after(BEGIN, applied(6, "rolled back"), applied(7, "lost")).word == "lost"


def test_a_refusal_beforehand_touches_nothing_and_keeps_its_code() -> None:
    error = {"code": "knob-unknown", "message": "no such flag", "where": "e.toml:1", "hint": "take it out"}
    refused = line("archon_apply", PREVIEW, status="failed", exit_code=4, error=error, previewed=True)
    found = after(line("archon_apply", PREVIEW, event="begin"), refused)
    assert (found.word, found.exit_code, found.touched) == ("refused", 4, False)
    assert found.fault is not None
    assert (found.fault.code, found.fault.where) == ("knob-unknown", "e.toml:1")


def test_who_has_the_endpoint_is_told() -> None:
    message = "archonctl (pid 12, alice@one) is starting or supervising e"
    busy = line(
        "archon_apply", APPLY, status="failed", exit_code=5, error={"code": "up-in-progress", "message": message}
    )
    found = after(BEGIN, busy)
    assert (found.word, found.busy_with, found.touched) == ("busy", "pid 12, alice@one", False)
    lease = line("archon_lease", status="failed", held_by="bob@two", error={"code": "fleet-busy", "message": "m"})
    assert (after(lease).word, after(lease).busy_with) == ("busy", "bob@two")


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("root@h: Permission denied (publickey).", "fleet-key-refused"),
        ("Host key verification failed.", "fleet-host-key-unknown"),
        ("Missing sudo password", "fleet-become-refused"),
        ("ssh: connect to host h port 22: No route to host", "fleet-host-unreachable"),
    ],
)
def test_why_a_host_cannot_be_reached_is_told_apart(said: str, code: str) -> None:
    found = after(line("archon_facts", status="unreachable", msg=said), action="status")
    assert (found.word, found.exit_code, found.fault and found.fault.code) == ("unreachable", 3, code)


@pytest.mark.parametrize("said", ["Incorrect sudo password", "Missing sudo password", "sudo: a password is required"])
def test_a_host_that_gives_no_root_is_refused_with_what_to_set(said: str) -> None:
    found = after(line("archon_lease", status="failed", msg=f"{said}"))
    assert (found.word, found.exit_code, found.fault and found.fault.code) == ("refused", 5, "fleet-become-refused")
    silent = after(line("archon_lease", status="failed", msg="no json", module_stderr=f"1\n/bin/sh: 1: {said}\n"))
    assert silent.fault is not None
    assert (silent.fault.code, said in silent.fault.message) == ("fleet-become-refused", True)
    error = {"code": "state-unwritable", "message": "m", "where": "/run/archon", "hint": "root is needed"}
    unwritable = after(line("archon_lease", status="failed", error=error, exit_code=5))
    assert (unwritable.word, unwritable.fault and unwritable.fault.hint) == ("refused", "root is needed")


@pytest.mark.parametrize(
    "said",
    [
        "Error processing keyword 'become_pass': Attempt to use undecryptable variable",
        "Attempting to decrypt but no vault secrets found.",
        "Decryption failed (no vault secrets were found that could decrypt).",
    ],
)
@pytest.mark.parametrize("status", ["failed", "unreachable"])
def test_a_vault_that_nothing_opens_is_told_with_what_opens_it(said: str, status: str) -> None:
    found = after(line("archon_facts", status=status, msg=f"Task failed: {said}"), action="status")
    assert found.fault is not None
    assert (found.fault.code, "--vault-password-file" in found.fault.hint) == ("fleet-vault-closed", True)


@pytest.mark.parametrize(("status", "leased"), [("ok", True), ("failed", False), ("unreachable", False)])
def test_only_a_host_that_was_leased_has_to_be_let_go(status: str, leased: bool) -> None:
    follower = HostFollower("h", "apply")
    assert follower.leased is False
    follower.see(line("archon_lease", event="begin"))
    assert follower.leased is True
    follower.see(line("archon_lease", status=status))
    assert follower.leased is leased
    follower.see(line("archon_lease", "Let the host go where any host is refused", status="skipped"))
    assert follower.leased is leased


def test_a_host_that_is_lost_while_it_is_changed_stays_touched() -> None:
    found = after(BEGIN, line("archon_apply", APPLY, status="unreachable", msg="Connection timed out"))
    assert (found.word, found.touched) == ("unreachable", True)
    assert found.fault is not None
    assert "while it was being changed" in found.fault.message


def test_after_a_signal_what_was_being_changed_is_in_flight_and_the_rest_untouched() -> None:
    assert after(BEGIN, interrupted=True).word == "in flight"
    assert after(interrupted=True).word == "untouched"
    assert after(BEGIN, applied(0, "applied"), interrupted=True).word == "holds"


def test_a_task_that_was_skipped_touched_nothing() -> None:
    assert after(BEGIN, line("archon_apply", APPLY, status="skipped")).touched is False


def test_a_host_that_others_held_back_is_untouched_with_the_reason() -> None:
    found = after(line("ansible.builtin.fail", "Touch nothing where any host is refused", status="failed", msg="b"))
    assert (found.word, found.exit_code, found.fault and found.fault.code) == ("untouched", 0, "fleet-held-back")


@pytest.mark.parametrize(("word", "expected"), [("holds", "holds"), ("down", "broken"), ("unverified", "no evidence")])
def test_a_look_says_what_the_endpoints_are(word: str, expected: str) -> None:
    facts = {"archon": {"installed": True, "host": {"ram_mib": 1}, "endpoints": [{"endpoint": "e", "word": word}]}}
    found = after(line("archon_facts", ansible_facts=facts), action="status")
    assert (found.word, found.exit_code, found.facts_at) == (expected, EXIT[found.word], 2.0)


def test_unknown_is_not_fine_where_nothing_was_seen() -> None:
    assert after(action="status").word == "no evidence"
    bare = line("archon_facts", ansible_facts={"archon": {"installed": False}})
    assert after(bare, action="drift").word == "no evidence"


def test_each_item_of_a_loop_is_a_verdict() -> None:
    items = [
        {"exit_code": code, "value": {"endpoint": name}, "failed": bool(code)} for name, code in (("a", 0), ("b", 1))
    ]
    found = after(line("archon_probe", status="failed", results=items), action="probe")
    assert (found.word, [each["endpoint"] for each in found.endpoints]) == ("broken", ["a", "b"])


def test_a_loop_whose_items_tell_nothing_fails_all_the_same_and_says_why_it_cannot_say_more() -> None:
    censored = {"censored": "no_log", "changed": False}
    failed = line("ansible.builtin.copy", "Place API keys", status="failed", results=[censored], **censored)
    found = after(failed, line("ansible.builtin.fail", "Touch nothing where any host is refused", status="failed"))
    assert (found.word, found.exit_code) == ("failed", 5)
    assert found.fault is not None
    assert (found.fault.where, "archon_secrets" in found.fault.hint) == ("Place API keys", True)


@pytest.mark.parametrize("name", ["gpu1", "a b", "2001:db8::1", "gpu.example:22"])
def test_ansible_reads_a_host_as_it_is_named(name: str) -> None:
    from ansible.inventory.manager import split_host_pattern

    assert split_host_pattern([host_pattern(name)]) == [name]


def test_hosts_that_nobody_came_to_are_no_success_where_nothing_explains_it() -> None:
    held, left = HostResult("a", "holds", 0), HostResult("b", "untouched", 0)
    found = explained((held, left), "ansible-playbook ended with 4")
    assert [(host.word, host.exit_code) for host in found] == [("holds", 0), ("failed", 5)]
    assert found[1].fault is not None
    assert (found[1].fault.code, found[1].fault.message[-4:]) == ("fleet-ansible-failed", "th 4")
    assert explained((HostResult("a", "refused", 4), left), "")[1] == left


@given(st.lists(st.sampled_from(WORST_FIRST)))
def test_the_worst_code_stands_for_all_in_any_order(codes: list[int]) -> None:
    worst = worst_of(codes)
    assert worst == worst_of(reversed(codes)) == worst_of([*codes, worst])
    assert worst in (*codes, 0)
    assert (worst == 0) == (set(codes) <= {0})


@pytest.mark.parametrize(("word", "code"), [("untouched", 130), ("unreachable", 130), ("rolled back", 6), ("lost", 7)])
def test_a_signal_is_the_exit_code_unless_something_is_worse_than_unknown(word: Any, code: int) -> None:
    assert FleetResult("apply", (HostResult("h", word, EXIT[word]),), signal=2).exit_code == code


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_no_line_breaks_the_reader(value: object) -> None:
    for text in (json.dumps(value), json.dumps({"event": "result", "result": value, "host": value}), str(value)):
        found = happening_of(text)
        if found is not None:
            after(found)
