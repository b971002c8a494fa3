"""Names of engines as people write them."""

from __future__ import annotations

import re

_ALSO = {
    "llama": "llamacpp",
    "llamaserver": "llamacpp",
    "llamaserverexe": "llamacpp",
    "llamacppserver": "llamacpp",
    "sgl": "sglang",
    "vllmopenai": "vllm",
}


def engine_name(text: str) -> str:
    """``llama.cpp``, ``llama-server`` or ``vLLM`` as the name of a table; what is no such name comes back as it is."""
    plain = re.sub(r"[\s._-]", "", text).lower()
    known = ("llamacpp", "radiance", "sglang", "vllm")
    return plain if plain in known else _ALSO.get(plain, text)
