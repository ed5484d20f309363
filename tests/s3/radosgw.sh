#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real S3 server for tests: Ceph's RADOS Gateway with one monitor and one store, all in one folder
# and on 127.0.0.1 alone. Debian 12, root; 10 s to install, 5 s to start.
#
#   tests/s3/radosgw.sh start FOLDER PORT; eval "$(tests/s3/radosgw.sh env FOLDER PORT)"; ...
#   tests/s3/radosgw.sh stop FOLDER PORT      (data stay in FOLDER)
#
# Takes PORT to PORT+9. CAIRN_TEST_LIFECYCLE_DAY_S=10 shortens the days of life cycle rules.
here=$(dirname "$(realpath "$0")")
. "$here/server.sh"
conf=$folder/ceph.conf

environment() { say_environment "$access"; }
down() { end gateway osd mon; rm -f "$folder"/run/*.asok; }

write_conf() {
    [ -s "$folder/cluster-id" ] || cat /proc/sys/kernel/random/uuid >"$folder/cluster-id"
    cat >"$conf" <<CONF
[global]
fsid = $(cat "$folder/cluster-id")
mon_host = [v2:127.0.0.1:$((port + 1))]
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_msgr1 = false
ms_bind_port_min = $((port + 2))
ms_bind_port_max = $((port + 9))
keyring = $folder/keyring
run_dir = $folder/run
admin_socket = $folder/run/\$name.asok
log_file = $folder/log/\$name.log
mon_cluster_log_file = $folder/log/cluster.log
crash_dir = $folder/log
log_to_stderr = false
auth_allow_insecure_global_id_reclaim = false
# One copy, few placement groups, no waiting for company.
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 2000
paxos_propose_interval = 0.05
paxos_min_wait = 0.02
[mon]
mon_data = $folder/mon
mon_data_avail_warn = 1
mon_data_avail_crit = 1
[osd]
osd_data = $folder/osd
osd_objectstore = bluestore
bluestore_block_size = $((8 << 30))
osd_memory_target = 1073741824
[client.gateway]
rgw_data = $folder/gateway
# Without tcp_nodelay each small answer takes 40 ms.
rgw_frontends = beast endpoint=127.0.0.1:$port tcp_nodelay=1
rgw_dns_name = localhost
rgw_rados_pool_pg_num_min = 8
rgw_dynamic_resharding = false
rgw_gc_obj_min_wait = 5
rgw_gc_processor_period = 10
rgw_lc_debug_interval = ${CAIRN_TEST_LIFECYCLE_DAY_S:--1}
CONF
}

# cephx and not "none": without authentication the gateway does not reach the monitor.
make_monitor() {
    local name
    [ -d "$folder/mon/store.db" ] && return 0
    monmaptool --create --clobber --fsid "$(cat "$folder/cluster-id")" \
        --addv a "[v2:127.0.0.1:$((port + 1))]" "$folder/monmap" >/dev/null
    : >"$folder/keyring"
    for name in mon. client.admin client.gateway osd.0; do
        ceph-authtool "$folder/keyring" --gen-key -n "$name" --cap mon 'allow *' \
            --cap osd 'allow *' >/dev/null
    done
    ceph-mon --conf "$conf" --mkfs -i a --monmap "$folder/monmap" --keyring "$folder/keyring"
}

make_osd() {
    [ -e "$folder/osd/made" ] && return 0
    ceph --conf "$conf" osd new "$(cat "$folder/cluster-id")" 0 >/dev/null
    ceph-osd --conf "$conf" -i 0 --mkfs --osd-uuid "$(cat "$folder/cluster-id")" \
        >>"$folder/log/osd.out" 2>&1
    touch "$folder/osd/made"
}

osd_is_up() { ceph --conf "$conf" osd stat 2>/dev/null | grep -q ' 1 up'; }

make_user() {
    local admin=(timeout 120 radosgw-admin --conf "$conf" -n client.gateway)
    "${admin[@]}" user info --uid cairn >/dev/null 2>&1 ||
        "${admin[@]}" user create --uid cairn --display-name cairn --access-key "$access" \
            --secret-key "$secret" >/dev/null 2>>"$folder/log/gateway.out"
}

# 200 also when the bucket is there already.
make_bucket() {
    local status
    status=$(curl -s -o /dev/null -w '%{http_code}' --max-time 20 --noproxy '*' -X PUT \
        --aws-sigv4 aws:amz:us-east-1:s3 -u "$access:$secret" \
        -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "http://127.0.0.1:$port/$bucket") || true
    [ "$status" = 200 ]
}

up() {
    need radosgw:radosgw ceph-mon:ceph-mon ceph-osd:ceph-osd curl:curl
    mkdir -p "$folder/mon" "$folder/osd" "$folder/gateway"
    write_conf
    make_monitor
    run mon ceph-mon --conf "$conf" -i a -f
    timeout 60 ceph --conf "$conf" --connect-timeout 50 osd stat >/dev/null ||
        give_up 'the monitor does not answer'
    make_osd
    run osd ceph-osd --conf "$conf" -i 0 -f
    watched='mon osd'
    await 60 'the store' osd_is_up
    make_user
    run gateway radosgw --conf "$conf" -n client.gateway -f
    watched='mon osd gateway'
    await 60 'the gateway' make_bucket
}

main
