"""SGLang behind the engine seam: plan and render. Starting it under archonctl is not verified in this release."""

from __future__ import annotations

from collections.abc import Mapping

from archonctl.deployment.schema import Endpoint
from archonctl.engines.base import Api, CommandLine, Forecast
from archonctl.engines.change import Variable
from archonctl.engines.sglang.forecast import forecast
from archonctl.host.profile import Host
from archonctl.model.geometry import ModelFacts

API = Api(
    health="/health",
    models="/v1/models",
    tokenize="/tokenize",
    completions="/v1/completions",
    chat="/v1/chat/completions",
    tokenize_field="prompt",
    checks_model_name=False,
    completion_extra={"ignore_eos": True},
    report="/get_server_info",
    report_format="sglang-server-info",
    busy="/metrics",
    metrics="/metrics",
    loading_statuses=frozenset({503}),
    id_from_file=True,
)
"""srt/entrypoints/http_server.py: /health answers 503 while it starts; /get_server_info (0.4, kept as an alias of
/server_info in 0.5) has max_total_num_tokens and the server's arguments; the metrics need --enable-metrics."""


class SglangAdapter:
    """The adapter of ``python -m sglang.launch_server``."""

    kind = "sglang"
    api = API
    oracle = None
    needs_model_header = True

    def forecast(
        self,
        endpoint: Endpoint,
        host: Host,
        model: ModelFacts | None,
        *,
        detail: bool = True,
    ) -> Forecast:
        """Tokens of the pool, from a boot that was seen or from the card less the weights; else unknown, with why.

        Raises DeclarationError for knobs that contradict each other or the contract.
        """
        return forecast(endpoint, host, model, detail=detail)

    def variables(self, endpoint: Endpoint, host: Host) -> Mapping[str, Variable]:
        """What a plan can be solved for. Raises DeclarationError as ``forecast``."""
        from archonctl.engines.sglang.variables import variables  # only --solve and a short contract ask

        return variables(endpoint, host)

    def command(self, endpoint: Endpoint) -> CommandLine:
        """argv for SGLang's server. Raises DeclarationError for a knob that cannot be rendered."""
        from archonctl.engines.sglang.command import command_line  # a plan renders nothing

        return command_line(endpoint)


ADAPTER = SglangAdapter()
