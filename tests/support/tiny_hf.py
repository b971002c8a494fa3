"""Small Hugging Face folders that a real vLLM serves: config.json, a byte tokenizer, and weights where asked for.

One byte is one token. Without weights a server needs ``--load-format dummy``; with them it loads the file, whose
tensors are noise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

BOS, EOS, PAD, VOCABULARY = 256, 257, 258, 320
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Config = dict[str, object]


def _byte_alphabet() -> list[str]:
    """The printable stand-ins of the 256 bytes, as byte-level BPE has them since GPT-2."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = (chr(256 + n) for n in range(256 - len(plain)))
    return sorted(chr(b) if b in plain else next(rest) for b in range(256))


def _special(number: int, content: str) -> Config:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": content, "special": True, **flags}


def tokenizer() -> Config:
    """tokenizer.json: byte-level BPE without merges."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    names = ((BOS, "<|im_start|>"), (EOS, "<|im_end|>"), (PAD, "<|pad|>"))
    return {
        "version": "1.0",
        "added_tokens": [_special(*name) for name in names],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(_byte_alphabet())}, "merges": []},
    }


def tiny_config(
    arch: str,
    *,
    layers: int = 4,
    hidden: int = 128,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 64,
    ctx: int = 262144,
    window: int = 1024,
) -> Config:
    """config.json of one architecture: qwen3, llama, qwen3moe, gemma3, gpt-oss, deepseek2, qwen3next."""
    common: Config = {
        "vocab_size": VOCABULARY,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": ctx,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    }
    return common | _own(arch, common, layers, hidden, heads, head_dim, window)


def _own(arch: str, common: Config, layers: int, hidden: int, heads: int, head_dim: int, window: int) -> Config:
    experts: Config = {"num_experts_per_tok": 2, "moe_intermediate_size": hidden}
    every = {"gemma3": 6, "gpt-oss": 2}.get(arch, 1)
    kinds = ["full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(layers)]
    if arch == "qwen3":
        return {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False}
    if arch == "llama":
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    if arch == "qwen3moe":
        moe: Config = {"num_experts": 4, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
        return {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", **experts, **moe}
    if arch == "gemma3":
        ropes: Config = {
            "full_attention": {"rope_theta": 1000000.0, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        }
        own: Config = {"sliding_window": window, "layer_types": kinds, "query_pre_attn_scalar": head_dim}
        hidden_act = {"hidden_activation": "gelu_pytorch_tanh", "rope_parameters": ropes}
        return {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", **own, **hidden_act}
    if arch == "gpt-oss":
        own = {"sliding_window": 128, "layer_types": kinds, "num_local_experts": 4, "tie_word_embeddings": False}
        yarn = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0}
        own["rope_parameters"] = {**yarn, "truncate": False, "original_max_position_embeddings": 4096}
        return {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_experts_per_tok": 2, **own}
    if arch == "deepseek2":
        latent: Config = {
            "q_lora_rank": None,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 128,
            "v_head_dim": 128,
            "head_dim": 64,
            "num_key_value_heads": heads,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "topk_method": "greedy",
            "scoring_func": "softmax",
            "routed_scaling_factor": 1.0,
            "moe_layer_freq": 1,
        }
        return {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", **experts, **latent}
    if arch == "qwen3next":
        own = {"num_experts": 4, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True}
        kinds = ["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(layers)]
        state: Config = {
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "full_attention_interval": 4,
            "layer_types": kinds,
            "shared_expert_intermediate_size": hidden,
            "partial_rotary_factor": 0.25,
        }
        return {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", **experts, **own, **state}
    raise ValueError(f"no tiny config of {arch!r}")


def _qwen3_shapes(config: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    layers, hidden, heads, kv, dim, inner = (
        int(str(config[key]))
        for key in (
            "num_hidden_layers",
            "hidden_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "intermediate_size",
        )
    )
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, hidden)}
    for i in range(layers):
        head = f"model.layers.{i}"
        shapes |= {
            f"{head}.input_layernorm.weight": (hidden,),
            f"{head}.self_attn.q_proj.weight": (heads * dim, hidden),
            f"{head}.self_attn.k_proj.weight": (kv * dim, hidden),
            f"{head}.self_attn.v_proj.weight": (kv * dim, hidden),
            f"{head}.self_attn.o_proj.weight": (hidden, heads * dim),
            f"{head}.self_attn.q_norm.weight": (dim,),
            f"{head}.self_attn.k_norm.weight": (dim,),
            f"{head}.post_attention_layernorm.weight": (hidden,),
            f"{head}.mlp.gate_proj.weight": (inner, hidden),
            f"{head}.mlp.up_proj.weight": (inner, hidden),
            f"{head}.mlp.down_proj.weight": (hidden, inner),
        }
    return {**shapes, "model.norm.weight": (hidden,)}


def write_qwen3_weights(path: Path, config: Mapping[str, object]) -> None:
    """bfloat16 noise: the upper halves of float32."""
    random, parts, header, end = np.random.default_rng(0), list[bytes](), dict[str, object](), 0
    for name, shape in _qwen3_shapes(config).items():
        noise = random.normal(0, 0.05, shape).astype("<f4") + (len(shape) == 1)
        data = (np.ascontiguousarray(noise).view("<u4") >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + len(data)]}
        end += len(data)
        parts.append(data)
    head = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(parts))


def write_tiny_hf(folder: Path, arch: str, *, weights: bool = False, **geometry: int) -> Path:
    """A model folder. ``geometry``: see ``tiny_config``. ``weights`` for qwen3 only. Raises ValueError elsewhere."""
    config = tiny_config(arch, **geometry)
    folder.mkdir(parents=True, exist_ok=True)
    names = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|pad|>"}
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    files: dict[str, Config] = {
        "config.json": config,
        "generation_config.json": ids,
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config["max_position_embeddings"],
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT,
            **names,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
    if weights:
        if arch != "qwen3":
            raise ValueError(f"no weights of {arch!r}")
        write_qwen3_weights(folder / "model.safetensors", config)
    return folder
