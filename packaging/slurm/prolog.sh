#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prolog= of slurm.conf, on each node of a job before it begins, as root: the uploader runs and can do its work.
# Another status than 0 drains the node and queues the job again, which is right for a node that cannot save.
systemctl is-active --quiet cairn-uploader || systemctl start cairn-uploader
for _ in 1 2 3 4 5 6 7 8 9 10; do
    said=$(cairn health --ready uploader 2>&1) && exit 0
    sleep 1
done
echo "cairn: $said" >&2
exit 1
