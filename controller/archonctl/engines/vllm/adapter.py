"""vLLM behind the engine seam. It was started under archonctl on a CPU; on a GPU not yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from archonctl.deployment.schema import Endpoint
from archonctl.engines.base import Api, CardShare, CommandLine, Forecast
from archonctl.engines.change import Variable
from archonctl.engines.oracle import Oracle
from archonctl.engines.vllm.assess import Assessment, assess
from archonctl.engines.vllm.cards import beside_unknown, demands_by_card
from archonctl.engines.vllm.levers import levers as find_levers
from archonctl.engines.vllm.rules import version_of
from archonctl.engines.vllm.terms import explain
from archonctl.host.profile import Host
from archonctl.memory.interval import GIB, MIB, Interval
from archonctl.model.geometry import ModelFacts

API = Api(
    health="/health",
    models="/v1/models",
    tokenize="/tokenize",
    completions="/v1/completions",
    chat="/v1/chat/completions",
    tokenize_field="prompt",
    checks_model_name=True,
    over_window_statuses=frozenset({400}),
    completion_extra={"ignore_eos": True},
    report="/metrics",
    report_format="vllm-metrics",
    busy="/metrics",
    metrics="/metrics",
    loading_statuses=frozenset(),
    id_from_file=True,
)
"""The OpenAI server of vLLM 0.32.0: the port is closed until it is ready; an unknown model id gets 404."""
VERIFIED = "0.32.0"


class VllmAdapter:
    """The adapter of ``vllm serve``."""

    kind = "vllm"
    api = API
    needs_model_header = True

    @property
    def oracle(self) -> Oracle:
        """The planner of the installed vLLM."""
        from archonctl.engines.vllm.oracle import ORACLE  # only --oracle asks

        return ORACLE

    def forecast(self, endpoint: Endpoint, host: Host, model: ModelFacts | None, *, detail: bool = True) -> Forecast:
        """Concurrent tokens as vLLM counts them for requests of contract.len, and what would mend a short contract.

        Raises DeclarationError for knobs that contradict each other or the contract, or that this version refuses.
        """
        if endpoint.engine.knobs or endpoint.engine.env:
            from archonctl.engines.vllm.command import check_knobs  # the flags of all versions, only where one is set

            check_knobs(endpoint)
        now = assess(endpoint, host, model)
        demands, rule = demands_by_card(now, host, model)
        return Forecast(
            method=_method(now),
            kv_tokens=now.kv_tokens,
            seqs_limit=now.seqs_limit,
            seq_len_limit=now.seq_len_limit,
            cards=tuple(_cards(now, host)),
            demands=demands,
            card_rule=rule,
            levers=find_levers(now, host, model) if detail else (),
            notes=tuple(_notes(now)),
            not_modelled=(*_not_modelled(now, host, model), *beside_unknown(now, host, model)),
            problems=now.problems,
            methods=_methods(now),
            terms=explain(now, host, model) if detail else (),
        )

    def variables(self, endpoint: Endpoint, host: Host) -> Mapping[str, Variable]:
        """What a plan can be solved for. Raises DeclarationError as ``forecast``."""
        from archonctl.engines.vllm.variables import variables  # only --solve and a short contract ask

        return variables(endpoint, host)

    def command(self, endpoint: Endpoint) -> CommandLine:
        """argv for ``vllm serve``. Raises DeclarationError for a knob that cannot be rendered."""
        from archonctl.engines.vllm.command import command_line

        return command_line(endpoint)


ADAPTER = VllmAdapter()


def _method(now: Assessment) -> str:
    if now.kv_tokens is None:
        return "unknown: " + (_too_wide(now) or _unknown(now))
    groups, settings = now.groups, now.settings
    tables = f"{len(groups)} cache group{'s' * (len(groups) > 1)}, block {groups[0].block_tokens}"
    source = f"{settings.blocks_override:,} blocks by override" if settings.blocks_override else now.memory.method
    return f"vLLM's grouping ({tables}) over {source}"


def _unknown(now: Assessment) -> str:
    return now.memory.method if now.groups else "the model's geometry has no law here"


def _too_wide(now: Assessment) -> str:
    wide = now.range_tokens
    if wide is None:
        return ""
    return (
        f"from the card and the weights alone it is {int(wide.low):,} to {int(wide.high):,} tokens, "
        f"on both sides of the contract ({now.memory.method})"
    )


def _methods(now: Assessment) -> dict[str, Interval]:
    """The figure that vLLM will print, where it is another than the one that is judged."""
    if now.best is None or now.kv_tokens is None or now.best.plan.kv_tokens == now.best.tokens:
        return {}
    return {"what vLLM will print": Interval.exact(now.best.plan.kv_tokens)}


def _cards(now: Assessment, host: Host) -> Iterator[CardShare]:
    if now.settings.cpu:
        ceilings = [mib for mib in (host.available_mib, host.cgroup_limit_mib) if mib is not None]
        yield _share(now, 0, "RAM", host.ram_mib, min(ceilings, default=host.ram_mib), now.settings.ranks)
        return
    for card in host.cards:
        if card.index not in [each.index for each in host.cards[: now.settings.ranks]]:
            yield CardShare(card.index, card.name, card.total_mib, None, None, None, None, None)
            continue
        # A stated cache is taken whatever the share of the card: there is no ceiling then.
        ceiling = None if now.settings.kv_memory_bytes else card.total_mib * now.settings.utilisation
        yield _share(now, card.index, card.name, card.total_mib, ceiling, 1)


def _share(now: Assessment, index: int, name: str, total: float | None, ceiling: float | None, ranks: int) -> CardShare:
    sizes = [demand.bytes / MIB for demand in now.demands if demand.cls == "kv_cache"]
    pool = sizes[0] if sizes else None
    needed = now.needed_bytes / MIB * ranks or None
    return CardShare(
        index=index,
        name=name,
        total_mib=total,
        ceiling_mib=ceiling,
        slab_mib=now.weights.best / MIB * ranks if now.weights else None,
        pool_mib=pool,
        pool_needed_mib=needed,
        margin_mib=pool - needed if pool is not None and needed is not None else None,
        outside_mib=now.rest.share.best / MIB if now.memory.blind and now.rest else None,
    )


def _notes(now: Assessment) -> Iterator[str]:
    settings, contract, best = now.settings, now.endpoint.contract, now.best
    if not now.endpoint.engine.version:
        yield f"engine.version is not declared; the rules are those of {VERIFIED} and later"
    elif version_of(now.endpoint.engine.version) is None:
        yield f"engine.version {now.endpoint.engine.version!r} names no release; the rules are those of {VERIFIED}"
    if not settings.cpu:
        yield f"vLLM {VERIFIED} was started under archonctl on a CPU; on a GPU this release is not verified"
    if now.needed_bytes and not settings.no_law:
        how = "" if settings.cpu else f": kv-cache-memory-bytes = {now.needed_bytes} states exactly that"
        yield f"the contract needs {now.needed_bytes / GIB:.2f} GiB of cache on each rank{how}"
    if best and now.kv_tokens:
        yield (
            f"tokens are concurrency x {contract.len:,}: {best.plan.blocks:,} blocks are "
            f"{best.tokens / contract.len:.2f} requests of that length, and {best.seqs:,} whole ones beside the block "
            "that vLLM holds back"
        )
    if now.drift != 1:
        yield f"the law gives {now.drift:.1%} of what that boot said; the range is widened by it"
    if len(now.groups) > 1 and not settings.declares("max-num-batched-tokens"):
        yield (
            f"max-num-batched-tokens {settings.batched_tokens:,} is written: behind a window vLLM keeps that many "
            "tokens more, so more of them means fewer sequences"
        )
    if not settings.cpu and not settings.declares("gpu-memory-utilization") and not settings.kv_memory_bytes:
        yield f"gpu-memory-utilization {settings.utilisation:g} is taken as this version's default, and written"


def _not_modelled(now: Assessment, host: Host, model: ModelFacts | None) -> Iterator[str]:
    if model is None or model.geometry is None:
        yield f"the cache: {model.geometry_reason if model else 'the model was not read'}"
    if not now.settings.cpu and now.memory.boot is None:
        yield "activations, graphs and the driver's context exactly: they are estimates, and vLLM measures them at boot"
    yield "what other programs hold of the memory while the engine boots"
    if now.settings.extras:
        yield f"memory and tokens that {', '.join(now.settings.extras)} take"
    if model is not None and not model.tensor_bytes:
        yield "the weights: the folder has none to count"
    if not host.cards and not now.settings.cpu:
        yield "the cards: none is known"
