"""Whatever carries a line (container, journal, collector, launcher), the engine's own words are found in it."""

from __future__ import annotations

import pytest

from archonctl.ledger import read_ledger

VLLM = "GPU KV cache size: 178,880 tokens"
LLAMA = (
    "llama_kv_cache: size =   32.00 MiB ( 16384 cells,   4 layers,  2/2 seqs), "
    "K (f16):   16.00 MiB, V (f16):   16.00 MiB"
)
CARRIERS = (
    "2026-01-01T00:00:00.000000000Z stderr F INFO 01-30 03:18:12 [kv_cache_utils.py:395] {}",
    "2026-01-01T00:00:00.000000000Z stdout P {}",
    "2025-11-12T17:49:53.001Z  INFO kv_cache_utils._report_kv_cache_config: {}",
    "2026-04-19 09:37:48.123 | INFO     | vllm.v1.core.kv_cache_utils:get_kv:395 - {}",
    "INFO:vllm.v1.core.kv_cache_utils:{}",
    "<14>1 2026-01-01T00:00:00Z host vllm 123 - - {}",
    "<30>Sep 11 00:42:50 vllm[3110]: {}",
    "0|vllm  | {}",
    "[ 1234.567890] host vllm[33]: {}",
    "Mon 2026-09-11 00:42:50 CEST host vllm[123]: {}",
    "Sep 11 00:42:50.123456 host vllm[123]: {}",
    "MESSAGE={}",
    "09:37:48 {}",
    "[00:42:50] {}",
    "00:42:50.123 INFO {}",
    "I0410 16:58:08.485508 1 model.cc:849] {}",
    "\x1b[36m(ServeReplica:default:VLLMDeployment pid=123)\x1b[0m INFO 01-30 03:18:12 [kv.py:3] {}",
    "pod-abc-123 vllm INFO 01-30 03:18:12 [kv.py:3] {}",
    "[pod/vllm-0/vllm] {}",
    "vllm-server_1  | {}",
    "2026-01-01 00:00:00,123 - vllm.v1.core - INFO - {}",
    "2026-01-01 00:00:00,123 INFO vllm.v1.core.kv_cache_utils: {}",
    "2026/01/01 00:00:00 {}",
    "INFO 2026-01-01 00:00:00 {}",
    "{} [repeated 7x across cluster]",
    '{{"timestamp":"2026","level":"INFO","fields":{{"message":"{}"}},"target":"x"}}',
    '{{"time":"2026","stream":"stderr","_p":"F","log":"{}"}}',
    '2026-01-01T00:00:00Z {{"message":"{}"}}',
    '{{"textPayload":"{}"}}',
    '{{"jsonPayload":{{"message":"{}"}}}}',
    'time=2026 level=INFO name=x message="{}"',
    'ts=2026-01-01T00:00:00Z level=info caller=x.go:1 msg="{}"',
    "(APIServer pid=1) INFO: {}",
    "**{}**",
    "`{}`",
    "> {}",
    "    * {}",
    "[rank0]: {}",
    "[0]: {}",
    "[1,0]<stdout>:{}",
    "0: {}",
    "[36;20m{}",
    "(Worker_DP0_TP1_EP1 pid=14494) INFO 09-29 11:58:48 [x.py:864] {}",
    "2026-01-01T00:00:00.123Z app[worker.1]: {}",
    "[2026-01-01 00:00:00,123] INFO - x.py:44 - {}",
    "INFO     [vllm.v1.core] {}",
    "INFO 01-30 03:18:12.123 [kv_cache_utils.py:395] {}",
    "INFO 2026-01-30 03:18:12 [kv_cache_utils.py:395] {}",
    "INFO 01-30 03:18:12 __init__.py:207] {}",
    "[vllm] | {}",
    "[2026-09-11T00:42:50Z INFO  vllm::core] {}",
    "Sep 11 00:42:50 {}",
)
HEARSAY = (
    "user said: {}",
    "note: {}",
    "Received request cmpl-1: prompt: '{}'",
    "INFO 01-30 03:18:12 [logger.py:41] Received request cmpl-1: prompt: '{}'",
    "| {} |",
    "2026-01-01T00:00:00Z user wrote {}",
    'level=INFO msg="prompt was {}"',
    '{{"message":"he wrote {}"}}',
    "the log says {}",
)


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize(("line", "engine", "tokens"), [(VLLM, "vllm", 178880), (LLAMA, "llamacpp", 32768)])
def test_a_line_is_taken_out_of_its_carrier(carrier: str, line: str, engine: str, tokens: int) -> None:
    for asked in (None, engine):
        ledger = read_ledger([carrier.format(line)], asked)
        value = ledger.get("kv_tokens")
        assert ledger.engine == engine
        assert value is not None
        assert value.best == tokens


@pytest.mark.parametrize("text", HEARSAY)
@pytest.mark.parametrize("line", [VLLM, LLAMA])
def test_what_somebody_quotes_is_no_evidence(text: str, line: str) -> None:
    assert not read_ledger([text.format(line)]).figures
