#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Epilog= of slurm.conf, on each node of a job after it has ended, as root. The uploader goes on sending what was
# staged whether anybody waits or not; this waits, so that a node is not switched off, and its memory with it,
# while it is the only one that has a checkpoint. It never fails: Slurm would drain the node.
#   CAIRN_EPILOG_WAIT   seconds at most (300)
#   CAIRN_EPILOG=drain  on nodes that one job has for itself: the uploader is drained and stopped as well
wait=${CAIRN_EPILOG_WAIT:-300}
if [ "${CAIRN_EPILOG:-}" = drain ]; then
    # Its own sentence goes to the same log, before this one.
    cairn uploader drain --wait --timeout "${wait}s" --progress none ||
        echo "cairn: the uploader of this node was not drained (status $?) and is stopped;" \
            "of what ended trainers had staged only what the store has is kept" >&2
    systemctl stop cairn-uploader || echo "cairn: cairn-uploader was not stopped (status $?)" >&2
    exit 0
fi
until=$(($(date +%s) + wait))
while [ "$(date +%s)" -lt "$until" ]; do
    said=$(cairn uploader status --json 2>/dev/null) || exit 0
    case "$said" in
    *'"unfinished": 0'*) exit 0 ;;
    esac
    sleep 1
done
echo "cairn: saves of this node are still being sent after $wait s; they go on" >&2
exit 0
