#!/bin/bash
# The main job: 3,000 photographs, two epochs of decode, random crop, flip, shuffle and batch, through a service with two workers, one of which is killed on
# the way; the digest is that of the same job in one process. Then a report and a contact sheet. usage: tools/demo.sh PHOTOS
set -euo pipefail
cd "$(dirname "$0")/.."
photos=${1:-build/photos}
pipeline=examples/pipelines/photos.json
set=(--set "0.files=$(realpath -m "$photos")/photos-*.tfrecord")
field() { python3 -c "import json, sys; o = json.loads(sys.stdin.readline()); print($1)"; }

build/tools/make_photos --out "$photos"
rm -rf build/demo
mkdir -p build/demo

echo
echo "cachew run $pipeline --epochs 2 --digest"
build/cachew run "$pipeline" "${set[@]}" --epochs 2 --digest | tee build/demo/local.txt

echo
echo "cachew up --workers 2"
coproc up { exec build/cachew up --workers 2 --listen 127.0.0.1:0 2>build/demo/up.txt; }
up_pid=$up_PID
trap 'kill "$up_pid" 2>/dev/null || true' EXIT
read -r -t 30 ready <&"${up[0]}"
service=$(field 'o["ready"]["address"]' <<<"$ready")
victim=$(field 'o["ready"]["workers"][1]["pid"]' <<<"$ready")

echo "cachew run $pipeline --epochs 2 --digest --service $service --job demo"
: >build/demo/log.jsonl
build/cachew run "$pipeline" "${set[@]}" --epochs 2 --digest --service "$service" --job demo --log build/demo/log.jsonl >build/demo/service.txt &
job=$!
until [ "$(wc -l <build/demo/log.jsonl)" -ge 20 ] || ! kill -0 "$job" 2>/dev/null; do sleep 0.02; done # a line per batch
kill -9 "$victim"
echo "worker with pid $victim killed with -9, after 20 batches"
wait $job
cat build/demo/service.txt
kill "$up_pid"
wait "$up_pid"
trap - EXIT
if [ "$(grep '^digest' build/demo/local.txt)" != "$(grep '^digest' build/demo/service.txt)" ]; then
    echo "demo: the digests differ" >&2
    exit 1
fi
echo "the digest is the local one: no batch was lost, none came twice, all in order"

echo
echo "where the time goes (cachew explain $pipeline):"
build/cachew explain "$pipeline" "${set[@]}" --run 2
echo
build/cachew run "$pipeline" "${set[@]}" --batches 1 --save build/demo >/dev/null
echo "contact sheet of the first batch: $(ls build/demo/*.png)"
