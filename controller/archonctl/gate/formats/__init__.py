"""A report in the forms that other tools read."""

from archonctl.gate.formats.github import github_text
from archonctl.gate.formats.junit import junit_text
from archonctl.gate.formats.sarif import sarif_value
from archonctl.gate.formats.value import report_value

__all__ = ["github_text", "junit_text", "report_value", "sarif_value"]
