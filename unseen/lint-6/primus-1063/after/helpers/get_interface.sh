#!/bin/bash
# Prints the interface that holds the first address of this host.
set -euo pipefail
command -v ip >/dev/null || exit 1
address=$(hostname -I | awk '{print $1}')
ip -o -4 addr show | awk -v a="${address}/" 'index($4, a) == 1 {print $2; exit}'
