"""The engine's own boot log, read as evidence."""

from archonctl.ledger.reader import LedgerReader, read_ledger
from archonctl.ledger.values import BootLedger, Change, Reading, Remark

__all__ = ["BootLedger", "Change", "LedgerReader", "Reading", "Remark", "read_ledger"]
