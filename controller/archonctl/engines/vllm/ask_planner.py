"""Run by the Python of a vLLM: its own configuration, its own layers and its own cache planner, without weights.

    PYTHON ask_planner.py BYTES BLOCK_TOKENS ENGINE_FLAGS...

BYTES is the memory of one rank for the cache. BLOCK_TOKENS 0 plans for the platform of this vLLM; else for a GPU that
need not be here: blocks of that size, two batches in flight, states in the model's dtype. The model is built on the
"meta" device, once a pipeline stage, in process groups of which this process is the only member. One JSON object on
stdout. Written for vLLM 0.32.0 (engine/arg_utils.py, v1/worker/gpu_model_runner.py ``get_kv_cache_spec``,
v1/engine/core.py ``_initialize_kv_caches``); another version may say that it has no such thing.
"""

# mypy: ignore-errors
# ruff: noqa: ARG005, BLE001
import copy
import inspect
import json
import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def configured(flags, block):
    """A VllmConfig as ``vllm serve`` makes it; flags of the HTTP front are left out."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
    known, _ = parser.parse_known_args(flags)
    config = AsyncEngineArgs.from_cli_args(known).create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
    if block:
        config.cache_config.block_size = block
        config.cache_config.user_specified_block_size = True
        config.cache_config.mamba_ssm_cache_dtype = known.mamba_ssm_cache_dtype
        if own := MODELS_CONFIG_MAP.get(config.model_config.architecture):
            own.verify_and_update_config(config)  # the CPU platform had overwritten what the model asks for
        lookup = str((known.speculative_config or {}).get("method")) in ("ngram", "suffix")
        more = int(known.async_scheduling is not False and not lookup)
        # The newer model runner, which a card gets, needs Triton, which a CPU has not.
        stages = config.parallel_config.pipeline_parallel_size
        type(config).max_concurrent_batches = property(lambda self: stages + more)
    return config


def alone():
    """Let process groups form without their other members: nothing is ever sent."""
    import torch.distributed as dist
    import vllm.distributed.parallel_state as state

    form, make = dist.new_group, state.GroupCoordinator.__init__
    signature = inspect.signature(make)
    silent = ("use_device_communicator", "use_message_queue_broadcaster")

    def lone(self, *words, **named):
        bound = signature.bind(self, *words, **named)
        bound.arguments.update(dict.fromkeys(silent, False))
        make(*bound.args, **bound.kwargs)

    dist.new_group = lambda ranks=None, **_: form(ranks, backend="fake")
    state.GroupCoordinator.__init__ = lone
    state.in_the_same_node_as = lambda group, source_rank=0: [True] * dist.get_world_size(group)


def stage(config, number, block):
    """Specs of one pipeline stage's layers, and the layouts that its backends take."""
    import torch.distributed as dist
    import vllm.distributed.parallel_state as state
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from vllm.config import set_current_vllm_config

    parallel = config.parallel_config
    world, parallel.rank = parallel.world_size, number * parallel.tensor_parallel_size
    sizes = [parallel.tensor_parallel_size, parallel.pipeline_parallel_size, parallel.prefill_context_parallel_size]
    with set_current_vllm_config(config):
        dist.init_process_group("fake", rank=parallel.rank, world_size=world, store=FakeStore())
        state.init_distributed_environment(world, parallel.rank, local_rank=0, backend="fake")
        state.initialize_model_parallel(*sizes, parallel.decode_context_parallel_size, backend="fake")
        found = layers(config, block)
        state.destroy_model_parallel()
        state.destroy_distributed_environment()
    return found


def layers(config, block):
    """Build the model and ask its layers, as a worker does."""
    import torch
    from vllm.config import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.platforms import current_platform
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.attention.backend import MultipleOf
    from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts
    from vllm.v1.kv_cache_interface import AttentionSpec
    from vllm.v1.worker.utils import customize_attention_spec

    with set_default_torch_dtype(config.model_config.dtype), torch.device("meta"):
        initialize_model(config)
    every = get_layers_from_vllm_config(config, AttentionLayerBase)
    backends = [layer.get_attn_backend() for layer in every.values()]
    if block:
        for backend in backends:
            backend.get_supported_kernel_block_sizes = staticmethod(lambda spec=None: [MultipleOf(16)])
            backend.supports_block_size = classmethod(lambda cls, size: True)
    current_platform.update_block_size_for_backend(config)
    specs = {}
    for (name, layer), backend in zip(every.items(), backends, strict=True):
        spec = None if getattr(layer, "kv_sharing_target_layer_name", None) else layer.get_kv_cache_spec(config)
        if spec is not None:
            specs[name] = customize_attention_spec(backend, spec) if isinstance(spec, AttentionSpec) else spec
    return specs, [layout.name for layout in get_supported_kv_cache_layouts(backends)], config


def planned(memory, block, flags):
    """What the planner makes of it, or the words in which it refuses."""
    import vllm.v1.core.kv_cache_utils as planner
    from vllm.config import set_current_vllm_config
    from vllm.v1.attention.backends.utils import resolve_kv_cache_layout

    config = configured(flags, block)
    alone()
    stages = [stage(copy.deepcopy(config), at, block) for at in range(config.parallel_config.pipeline_parallel_size)]
    workers, config = [specs for specs, _, _ in stages], stages[0][2]
    said = {"block_tokens": config.cache_config.block_size, "max_model_len": config.model_config.max_model_len}
    with set_current_vllm_config(config):
        resolve_kv_cache_layout(config, [names for _, names, _ in stages], [s for w in workers for s in w.values()])
        try:
            made = planner.get_kv_cache_configs(config, workers, [memory] * len(workers))
        except (ValueError, NotImplementedError) as err:
            return {**said, "refused": str(err)}
        tokens, concurrency = planner.get_kv_cache_capacity(config, made[0])
        sizes = [planner._pool_bytes_per_block(config, each.kv_cache_groups) for each in made]
    said["max_model_len"] = config.model_config.max_model_len
    grouped = {"groups": len(made[0].kv_cache_groups), "block_bytes": max(sizes)}
    return {**said, **grouped, "blocks": made[0].num_blocks, "tokens": tokens, "concurrency": round(concurrency, 2)}


def main():
    """Plan, or end with 1 and one line that says why not."""
    try:
        import vllm

        version = getattr(vllm, "__version__", "")
    except ImportError as err:
        print(f"{sys.executable} has no vLLM that can be imported: {err}", file=sys.stderr)
        return 1
    try:
        found = planned(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    except Exception as err:  # whatever this vLLM lacks or refuses is one line for a caller
        said = (str(err).strip() or type(err).__name__).splitlines()
        words = next((line.strip() for line in said if line.strip() and "validation error" not in line), said[0])
        print(f"vLLM {version}: {type(err).__name__}: {words}", file=sys.stderr)
        return 1
    print(json.dumps({"version": version, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
