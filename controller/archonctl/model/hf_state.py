"""The recurrent state of hybrid models from their config.json.

Shapes as vLLM 0.32.0 ``model_executor/layers/mamba/mamba_utils.py`` builds them; dtypes as the configs ask for them.
"""

from __future__ import annotations

from archonctl.model.geometry import Recurrent, RecurrentKind
from archonctl.model.hf_keys import HfKeys

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def recurrent_state(keys: HfKeys, kind: RecurrentKind) -> Recurrent:
    """State of one recurrent layer, in elements. Raises ModelError ``model-geometry-invalid`` for a missing size."""
    said = keys.word("mamba_ssm_dtype") or keys.word("mamba_ssm_cache_dtype")
    ssm = _BYTES.get(said.removeprefix("torch."), 0)
    if kind == "gated_delta_net":
        conv, dk, dv = (
            keys.whole(name) for name in ("linear_conv_kernel_dim", "linear_key_head_dim", "linear_value_head_dim")
        )
        k_heads, v_heads = keys.whole("linear_num_key_heads"), keys.whole("linear_num_value_heads")
        inner = v_heads * dv
        return Recurrent(
            (conv - 1) * (inner + 2 * k_heads * dk), inner * dk, conv, dk, inner, k_heads, v_heads, kind, ssm
        )
    if kind == "kda":
        part = keys.part("linear_attn_config")
        heads = part.maybe("num_heads") or keys.whole("linear_num_heads")
        dim = part.maybe("head_dim") if part.maybe("num_heads") else keys.whole("linear_head_dim")
        conv = part.maybe("short_conv_kernel_size") or keys.maybe("linear_conv_kernel_dim") or 4
        inner = heads * dim
        return Recurrent((conv - 1) * 3 * inner, inner * dim, conv, dim, inner, heads, heads, kind, ssm)
    if kind == "lightning":  # linear_attention_state_shape: one square a head, and no convolution
        heads = keys.whole("num_attention_heads")
        dim = keys.maybe("head_dim") or keys.whole("hidden_size") // heads
        return Recurrent(0, heads * dim * dim, 0, dim, heads * dim, 0, heads, kind, ssm)
    if kind == "short_conv":
        conv, width = keys.maybe("conv_L_cache") or 3, keys.maybe("conv_dim", "block_dim") or keys.whole("hidden_size")
        return Recurrent((conv - 1) * width, 0, conv, 0, width, 0, 0, kind, ssm)
    conv = keys.maybe("mamba_d_conv", "conv_kernel", "d_conv") or 4
    state = keys.whole("ssm_state_size", "mamba_d_state", "state_size")
    if kind == "mamba1":
        inner = keys.maybe("intermediate_size") if keys.maybe("state_size") else 0
        inner = inner or keys.maybe("mamba_expand", "expand") * keys.whole("hidden_size")
        return Recurrent((conv - 1) * inner, inner * state, conv, state, inner, 0, 0, kind, ssm)
    heads, dim = keys.whole("mamba_num_heads", "mamba_n_heads", "num_heads"), _dim(keys)
    groups = keys.maybe("n_groups", "mamba_n_groups") or 1
    inner = heads * dim
    if keys.model_type == "nemotron_h" and not ssm:
        ssm = 4  # NemotronHForCausalLMConfig of vLLM: float32 where the config asks for nothing
    return Recurrent(
        (conv - 1) * (inner + 2 * groups * state), inner * state, conv, state, inner, groups, heads, kind, ssm
    )


def _dim(keys: HfKeys) -> int:
    value = keys.config.get("mamba_d_head")
    if value == "auto":
        return keys.whole("mamba_expand") * keys.whole("hidden_size") // keys.whole("mamba_n_heads")
    return keys.whole("mamba_head_dim", "mamba_d_head", "head_dim")
