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
mapfile -t reports < <(find "$folder" -type f | sort)
for report in "${reports[@]}"; do
    printf -- '--- %s\n' "${report#"$folder"/}"
    head -c 16384 "$report"
done
printf '%d sanitizer reports\n' "${#reports[@]}"
[ "${#reports[@]}" = 0 ]
