#!/bin/sh
# A screenshot of the page of `ringleader watch --serve`: a simulated job of three ranks, one of them stopped.
# Needs chromium and a built program. Writes docs/watch.png.
set -eu
cd "$(dirname "$0")/.."
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo "no chromium here; apt-get install chromium" >&2
  exit 1
}
RINGLEADER_PAGE_PNG=$PWD/docs/watch.png RINGLEADER_BROWSER=$browser \
  cargo test -p ringleader --test it watch::page:: -- --nocapture
size=$(wc -c <docs/watch.png)
[ "$size" -lt 200000 ] || { echo "docs/watch.png has $size bytes" >&2; exit 1; }
echo "docs/watch.png: $size bytes"
