#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# serve CREDENTIALS BUCKET: an S3 server on port 7480: one node of Ceph (monitor, disk, RADOS gateway)
# whose disk is a file in /data, with one user, whose keys stand in CREDENTIALS as AWS's tools keep
# them, and one bucket.
set -euo pipefail
credentials=$1 bucket=$2
conf=/data/ceph.conf log=/tmp/log pids=()
key=$(sed -n 's/^aws_access_key_id *= *//p' "$credentials")
secret=$(sed -n 's/^aws_secret_access_key *= *//p' "$credentials")
mkdir -p "$log" /data/{mon,osd,rgw} /tmp/run
fsid=/data/fsid
[ -s "$fsid" ] || cat /proc/sys/kernel/random/uuid >"$fsid"
cat >"$conf" <<CONF
[global]
fsid = $(cat "$fsid")
mon_host = [v2:127.0.0.1:7481]
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_msgr1 = false
ms_bind_port_min = 7482
ms_bind_port_max = 7489
keyring = /data/keyring
auth_allow_insecure_global_id_reclaim = false
run_dir = /tmp/run
admin_socket = /tmp/run/\$name.asok
log_file = $log/\$name.log
log_to_stderr = false
mon_cluster_log_file = $log/cluster.log
crash_dir = $log
debug_ms = 0/0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 2000
mon_warn_on_pool_no_redundancy = false
[mon]
mon_data = /data/mon
mon_data_avail_warn = 1
mon_data_avail_crit = 1
[osd]
osd_data = /data/osd
osd_objectstore = bluestore
bluestore_block_size = $((${GIB:-4} << 30))
osd_memory_target = 939524096
[client.rgw]
rgw_data = /data/rgw
rgw_frontends = beast endpoint=0.0.0.0:7480 tcp_nodelay=1
rgw_dns_name = ${S3_NAME:-s3}
rgw_rados_pool_pg_num_min = 8
rgw_dynamic_resharding = false
rgw_enable_usage_log = false
rgw_gc_obj_min_wait = 5
rgw_gc_processor_period = 10
rgw_gc_processor_max_time = 10
CONF
stop() {
    local at
    rm -f /tmp/ready
    for ((at = ${#pids[@]} - 1; at >= 0; at--)); do
        kill "${pids[at]}" 2>/dev/null || true
        wait "${pids[at]}" || true
    done
    exit 0
}
trap stop TERM INT
launch() { # COMMAND...
    "$@" >>"$log/out" 2>&1 &
    pids+=($!)
}
if [ ! -d /data/mon/store.db ]; then
    monmaptool --create --fsid "$(cat "$fsid")" --addv a '[v2:127.0.0.1:7481]' /data/monmap --clobber >/dev/null
    : >/data/keyring
    for name in mon. client.admin client.rgw osd.0; do
        ceph-authtool /data/keyring --gen-key -n "$name" --cap mon 'allow *' --cap osd 'allow *' >/dev/null
    done
    ceph-mon --conf "$conf" --mkfs -i a --monmap /data/monmap --keyring /data/keyring
fi
launch ceph-mon --conf "$conf" -i a -f
ceph --conf "$conf" --connect-timeout 60 osd stat >/dev/null
if [ ! -e /data/osd/whole ]; then
    ceph --conf "$conf" osd new "$(cat "$fsid")" 0 >/dev/null
    ceph-osd --conf "$conf" -i 0 --mkfs --osd-uuid "$(cat "$fsid")" >>"$log/out" 2>&1
    touch /data/osd/whole
fi
launch ceph-osd --conf "$conf" -i 0 -f
until ceph --conf "$conf" osd stat 2>/dev/null | grep -q ' 1 up'; do sleep 0.2; done
admin=(radosgw-admin --conf "$conf" -n client.rgw)
"${admin[@]}" user info --uid cairn >/dev/null 2>&1 ||
    "${admin[@]}" user create --uid cairn --display-name cairn --access-key "$key" --secret-key "$secret" \
        >/dev/null 2>>"$log/out"
launch radosgw --conf "$conf" -n client.rgw -f
put_bucket() {
    printf 'user = "%s:%s"\n' "$key" "$secret" |
        curl -s -o /dev/null -w '%{http_code}' -K - --max-time 20 --aws-sigv4 aws:amz:us-east-1:s3 \
            -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -X PUT "http://127.0.0.1:7480/$bucket"
}
until [ "$(put_bucket || true)" = 200 ]; do
    kill -0 "${pids[@]}" 2>/dev/null || { cat "$log/out" >&2; exit 1; }
    sleep 0.2
done
touch /tmp/ready
echo "radosgw: bucket $bucket is there"
# Any of them that ends ends the container.
wait -n "${pids[@]}" || true
echo 'radosgw: a daemon ended' >&2
tail -n 20 "$log/out" >&2
stop
