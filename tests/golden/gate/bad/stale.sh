#!/bin/bash
# archonctl: engine=radiance version=1.8.1
ARGS=(--model /m.rad
  --vram-weights-mib 25600
  --prefix-cache-host-mib 8192
)
exec /opt/radiance/bin/radiance "${ARGS[@]}" --host-pool-mib 45568x --max-num-seqs=3
