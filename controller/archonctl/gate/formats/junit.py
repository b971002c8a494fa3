"""JUnit XML: a test suite a file, a failing test case a finding that refuses."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from archonctl.findings import Finding
from archonctl.gate.values import GateReport

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML 1.0 document may hold."""


def junit_text(report: GateReport) -> str:
    """The document. A file without findings is one test case that passed."""
    root = Element("testsuites", name="archonctl gate")
    by_file: dict[str, list[Finding]] = {path: [] for path in report.files}
    for finding in report.findings:
        by_file.setdefault(finding.place.path, []).append(finding)
    failures = 0
    for path, findings in by_file.items():
        failures += _suite(root, path, findings, report.strict)
    root.set("tests", str(sum(max(1, len(found)) for found in by_file.values())))
    root.set("failures", str(failures))
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode")


def _suite(root: Element, path: str, findings: list[Finding], strict: bool) -> int:
    name = _clean(path or "archonctl")
    failing = [one for one in findings if one.severity == "error" or (strict and one.severity == "warning")]
    counts: dict[str, str] = {
        "tests": str(max(1, len(findings))),
        "failures": str(len(failing)),
        "errors": "0",
        "skipped": "0",
    }
    suite = SubElement(root, "testsuite", {"name": name, **counts})
    if not findings:
        SubElement(suite, "testcase", classname=name, name="gate")
    for one in findings:
        case = SubElement(suite, "testcase", classname=name, name=_clean(f"{one.code} {one.place}"))
        text = _clean(str(one))
        if one in failing:
            SubElement(case, "failure", message=_clean(one.message), type=one.code).text = text
        else:
            SubElement(case, "system-out").text = text
    return len(failing)


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
