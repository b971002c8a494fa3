"""radiance behind the seam of ``engines.base``: capacity law, command line, HTTP surface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from archonctl.deployment.schema import Endpoint
from archonctl.engines.base import Api, CommandLine, Forecast
from archonctl.engines.change import Variable
from archonctl.engines.radiance.forecast import assess
from archonctl.engines.radiance.levers import levers as find_levers
from archonctl.host.profile import Host
from archonctl.model.geometry import ModelFacts

API = Api(
    health="/health",
    models="/v1/models",
    tokenize="/tokenize",
    completions="/v1/completions",
    chat="/v1/chat/completions",
    tokenize_field="prompt",
    # one server serves one model: the name in a request is accepted and not looked at
    checks_model_name=False,
    report="/server_info",
    report_format="radiance-server-info",
    busy="/load",
    metrics="/metrics",
    id_from_file=False,
)
"""Source: radiance docs/GUIDE.md, endpoints and request fields. Its model id is the name inside the container file."""


class RadianceAdapter:
    """The adapter; stateless."""

    kind = "radiance"
    api = API
    oracle = None
    needs_model_header = False
    """A .rad file's layout is not public: what the law needs comes from a declared manifest."""

    def forecast(self, endpoint: Endpoint, host: Host, model: ModelFacts | None, *, detail: bool = True) -> Forecast:
        """Capacity by the law of the version's era, with levers where the contract does not hold.

        Raises DeclarationError ``engine-version-missing``, ``engine-version-invalid``, ``kv-dtype-unknown`` and
        ``boot-bad-value``, ``knob-bad-value`` and, for a name that no version has, ``knob-unknown``. Knobs that only
        this version does not take are problems of the forecast.
        """
        manifest = model.rad if model is not None else None
        now = assess(endpoint, host, manifest, detail=detail)
        if not detail:
            return now
        found = find_levers(endpoint, host, now, lambda other: assess(other, host, manifest))
        return replace(now, levers=found)

    def variables(self, endpoint: Endpoint, host: Host) -> Mapping[str, Variable]:
        """What a plan can be solved for. Raises DeclarationError as ``forecast``."""
        from archonctl.engines.radiance.variables import variables  # only --solve and a short contract ask

        return variables(endpoint, host)

    def command(self, endpoint: Endpoint) -> CommandLine:
        """argv for the declared image or binary.

        Raises DeclarationError for a knob that cannot be rendered and for an image without a digest.
        """
        from archonctl.engines.radiance.command import command_line  # a plan renders nothing

        return command_line(endpoint)


ADAPTER = RadianceAdapter()
