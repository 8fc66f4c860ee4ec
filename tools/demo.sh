#!/bin/bash
# The main job: 3,000 photographs, two epochs of decode, random crop, flip, shuffle and batch; a report and a contact sheet. usage: tools/demo.sh PHOTOS
set -euo pipefail
cd "$(dirname "$0")/.."
photos=${1:-build/photos}
pipeline=examples/pipelines/photos.json
set=(--set "0.files=$(realpath -m "$photos")/photos-*.tfrecord")

build/tools/make_photos --out "$photos"
rm -rf build/demo
echo
echo "cachew run $pipeline --epochs 2 --digest"
build/cachew run "$pipeline" "${set[@]}" --epochs 2 --digest
echo
echo "where the time goes (cachew explain $pipeline):"
build/cachew explain "$pipeline" "${set[@]}" --run 2
echo
build/cachew run "$pipeline" "${set[@]}" --batches 1 --save build/demo >/dev/null
echo "contact sheet of the first batch: $(ls build/demo/*.png)"
