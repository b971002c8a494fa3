"""What the preflight script said, as values."""

from __future__ import annotations

import pytest

from archonctl.release.preflight_report import read_report, read_verdict, refusal_classes

GOOD = """\
ttm-preflight: skip: devices: this endpoint needs none
ttm-preflight: ok: ttm: have 4096 MiB (1048576 pages), need 4000 MiB (1024000 pages), margin +96 MiB (+24576 pages)
ttm-preflight: ok archon
"""
BAD = """\
something of another program
ttm-preflight: refused: ttm-cap-short: ttm pins at most this: have 2 MiB (512 pages), need 4 MiB (1024 pages); raise it
ttm-preflight: refused archon: ttm-cap-short
"""


def test_a_pass_is_its_last_word() -> None:
    report = read_report(GOOD)
    assert (report.outcome, report.refusals) == ("ok", ())
    assert report.said[-1] == "ok archon"


def test_a_refusal_has_its_code_and_its_sentence() -> None:
    report = read_report(BAD)
    assert report.outcome == "refused"
    assert report.refusals[0].code == "ttm-cap-short"
    assert "have 2 MiB" in report.refusals[0].message


@pytest.mark.parametrize("text", ["", "noise\n", GOOD.rsplit("ttm-preflight: ok archon", 1)[0]])
def test_a_run_without_a_last_word_proves_nothing(text: str) -> None:
    assert read_report(text).outcome == "unfinished"


def test_a_verdict_is_for_one_start_and_says_whether_to_try_again() -> None:
    verdict = read_verdict(f"ok 0123abcd\n{GOOD}")
    assert verdict is not None
    assert (verdict.invocation, verdict.report.outcome) == ("0123abcd", "ok")
    refused = read_verdict(f"refused - ttm-cap-short final\n{BAD}")
    assert refused is not None
    assert (refused.invocation, refused.passing, refused.report.outcome) == ("-", False, "refused")
    again = read_verdict(f"refused ab cards-held passing\n{BAD}")
    assert again is not None
    assert again.passing


@pytest.mark.parametrize("text", ["", "ok\n", f"ok ab\n{BAD}", f"refused ab x final\n{GOOD}", "ok ../x\n", "ok ab\n"])
def test_what_contradicts_itself_is_no_verdict(text: str) -> None:
    assert read_verdict(text) is None


def test_every_code_has_a_class() -> None:
    classes = refusal_classes()
    assert classes["ttm-cap-not-raised"] == "final"
    assert classes["vram-not-released"] == "passing"
