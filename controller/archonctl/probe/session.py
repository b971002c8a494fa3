"""What the legs of one probe share: the client, the declaration, and what earlier legs found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from archonctl.deployment.schema import Contract, Endpoint
from archonctl.engines.base import Api
from archonctl.ledger.values import BootLedger
from archonctl.probe.address import model_names
from archonctl.probe.answers import is_same_model
from archonctl.probe.client import Answer, Http
from archonctl.probe.faults import Fault
from archonctl.probe.limits import Limits
from archonctl.probe.pace import Pace
from archonctl.probe.prompts import PromptSource
from archonctl.probe.report import EngineReport
from archonctl.probe.shape import Shape
from archonctl.probe.values import Progress

OnProgress = Callable[[Progress], None]


@dataclass(slots=True)
class Session:
    """State of one probe run; lives inside ``probe_endpoint`` only."""

    http: Http
    endpoint: Endpoint
    api: Api
    ledger: BootLedger | None
    limits: Limits
    on_progress: OnProgress
    deadline_s: float | None = None
    """The caller's own bound on each capacity leg; None: derived."""
    when_idle: bool = False
    """Give up the moment that others' requests are seen."""
    log_name: str = "the boot log"
    """File or unit that the ledger was read from, for its proofs."""
    no_queue_metric: bool = False
    """True once the engine was found not to tell how many requests wait."""
    health: Answer | Fault | None = None
    model_answer: Answer | Fault | None = None
    model_list: object = None
    model: str = ""
    window: int | None = None
    """The largest prompt + answer of one sequence, as the engine states it."""
    report: EngineReport | None = None
    shape: Shape | None = None
    pace: Pace | None = None
    prompts: PromptSource = field(default_factory=PromptSource)
    facts: dict[str, int | float | str] = field(default_factory=dict)

    @property
    def contract(self) -> Contract:
        """The promise that is probed."""
        return self.endpoint.contract

    def must_be_the_model(self, named: str) -> None:
        """Raise Fault ``model-id-mismatch`` if an answer names another model than the one that was asked.

        A wrapper that falls back to another model says so there, if anywhere, and perhaps for long requests alone.
        """
        known = {"", self.model, *model_names(self.endpoint, self.api.id_from_file)}
        if named in known or is_same_model(self.model_list, self.model, named):
            return
        shown = self.http.excerpt(named, 200)
        raise Fault(
            "model-id-mismatch",
            f"{self.model} was asked, {shown} answered",
            expected=self.model,
            actual=shown,
            evidence=shown,
        )

    def tell(self, leg: str, done: int, total: int, text: str = "", left_s: float | None = None) -> None:
        """Report progress."""
        self.on_progress(Progress(leg, done, total, text, left_s))
