"""What a plan needs to know of the model that a declaration names."""

from __future__ import annotations

from dataclasses import replace

from archonctl.deployment.remote import refuse_remote
from archonctl.deployment.schema import Endpoint
from archonctl.engines import adapter
from archonctl.model.geometry import ModelFacts


def load_model(endpoint: Endpoint, *, network: bool = True) -> ModelFacts | None:
    """The facts of the artefact: from its manifest if one is declared, else from the file where the law needs it.

    Without ``network`` a model that is not on this machine raises ModelError ``model-remote-only``.
    """
    if endpoint.model.manifest:
        from archonctl.model.manifest import read_manifest

        return read_manifest(endpoint.model.manifest)
    if adapter(endpoint.engine.kind).needs_model_header:
        if not network:
            refuse_remote(endpoint.model.path, "nothing is asked of the network here")
        from archonctl.model.inspect import inspect_model

        facts = inspect_model(endpoint.model.path)
        if projector := _beside(endpoint, "mmproj", "mm"):
            facts = replace(facts, projector_bytes=inspect_model(projector).weight_bytes)
        if draft := _beside(endpoint, "spec-draft-model", "model-draft", "md"):
            facts = replace(facts, draft=inspect_model(draft))
        return facts
    return None


def _beside(endpoint: Endpoint, *knobs: str) -> str:
    """The file of a projector or a draft model that llama-server loads beside the model; "" where none is declared."""
    if endpoint.engine.kind != "llamacpp":
        return ""
    return next((str(v) for key, v in endpoint.engine.knobs.items() if key.replace("_", "-") in knobs), "")
