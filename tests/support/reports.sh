#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# reports.sh fresh FOLDER   empties the folder of sanitizer reports; ctest's first step
# reports.sh check FOLDER   fails when a program of any test left a report there; ctest's last step
set -u
verb=$1 folder=$2
if [ "$verb" = fresh ]; then
    rm -rf "$folder" && mkdir -p "$folder"
    exit
fi
# A process that is killed while its sanitizer looks for leaks is no finding (tests/reports.h).
of_killed() { [ -s "$1" ] && ! grep -qvE '^$|==Unable to get registers from thread ' "$1"; }
mapfile -t reports < <(find "$folder" -type f | sort)
found=0
for report in "${reports[@]}"; do
    of_killed "$report" && continue
    printf -- '--- %s\n' "${report#"$folder"/}"
    head -c 16384 "$report"
    found=$((found + 1))
done
printf '%d sanitizer reports\n' "$found"
[ "$found" = 0 ]
