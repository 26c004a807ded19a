#!/bin/sh
# A screenshot of the HTML report of the README's example (cases/skipped-allreduce). Needs chromium and a built program. Writes docs/report.png.
set -eu
cd "$(dirname "$0")/.."
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo "no chromium here; apt-get install chromium" >&2
  exit 1
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${1:-target/debug/ringleader}" diagnose --fail-on never --html "$folder/report.html" cases/skipped-allreduce/evidence >/dev/null
"$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$folder/profile" \
  --window-size=1180,"${HEIGHT:-1500}" --screenshot="$PWD/docs/report.png" "file://$folder/report.html" >/dev/null 2>&1
size=$(wc -c <docs/report.png)
[ "$size" -lt 250000 ] || { echo "docs/report.png has $size bytes" >&2; exit 1; }
echo "docs/report.png: $size bytes"
