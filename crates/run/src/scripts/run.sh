#!/usr/bin/env bash
# Supervises a job on this machine. `ringleader help run` says what happens when it fails.
set -euo pipefail
exec ringleader run \
    --job @NAME@ \
    --policy "$(dirname "$0")/policy.toml" \
    --checkpoints @CHECKPOINTS@@OPTIONS@ \
    -- @COMMAND@
