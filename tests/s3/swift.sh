#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A second real S3 server for tests: OpenStack Swift with its s3api, all in one folder and on
# 127.0.0.1 alone. Debian 12, root; FOLDER needs extended attributes. 15 s to install, 4 s to start.
#
#   tests/s3/swift.sh start FOLDER PORT; eval "$(tests/s3/swift.sh env FOLDER PORT)"; ...
#   tests/s3/swift.sh stop FOLDER PORT        (data stay in FOLDER)
#
# Takes PORT to PORT+4.
here=$(dirname "$(realpath "$0")")
. "$here/server.sh"
conf=$folder/conf
user=$access:$access # the user of an account, and both together are the access key

environment() { say_environment "$user"; }
down() { end proxy object container account cache; }

# The path of swift.conf is written into Swift; this says another before anything reads it.
write_launcher() {
    cat >"$conf/serve.py" <<'PYTHON'
import sys

import swift.common.utils

folder, kind = sys.argv[1:]
swift.common.utils.SWIFT_CONF_FILE = folder + "/swift.conf"
from swift.common.wsgi import run_wsgi  # noqa: E402

options = {}
if kind == "object":
    from swift.obj import server
    options["global_conf_callback"] = server.global_conf_callback
sys.exit(run_wsgi(f"{folder}/{kind}.conf", f"{kind}-server", verbose=True, capture_stdout=False,
                  capture_stderr=False, **options))
PYTHON
}

write_storage() { # KIND PORT
    cat >"$conf/$1.conf" <<CONF
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = $2
workers = 1
user = $(id -un)
swift_dir = $conf
devices = $folder/devices
mount_check = false
disable_fallocate = true
log_level = WARNING
[pipeline:main]
pipeline = $1-server
[app:$1-server]
use = egg:swift#$1
disk_chunk_size = 1048576
network_chunk_size = 1048576
recon_cache_path = $folder/cache
CONF
    [ -e "$conf/$1.ring.gz" ] && return 0
    (
        cd "$conf"
        swift-ring-builder "$1.builder" create 4 1 1
        swift-ring-builder "$1.builder" add "r1z1-127.0.0.1:$2/d1" 1
        swift-ring-builder "$1.builder" rebalance || [ $? = 1 ] # 1 is a warning
    ) >/dev/null
}

write_proxy() {
    local filter
    cat >"$conf/proxy.conf" <<CONF
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = $port
workers = 2
user = $(id -un)
swift_dir = $conf
log_level = WARNING
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck memcache listing_formats bulk s3api tempauth copy slo dlo versioned_writes symlink proxy-server
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
object_chunk_size = 1048576
client_chunk_size = 1048576
CONF
    for filter in catch_errors gatekeeper healthcheck listing_formats bulk copy dlo symlink; do
        printf '[filter:%s]\nuse = egg:swift#%s\n' "$filter" "$filter"
    done >>"$conf/proxy.conf"
    cat >>"$conf/proxy.conf" <<CONF
[filter:memcache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:$((port + 4))
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
s3_acl = true
storage_domain = localhost
max_upload_part_num = 10000
[filter:tempauth]
use = egg:swift#tempauth
user_${access}_${access} = $secret .admin
[filter:slo]
use = egg:swift#slo
max_manifest_segments = 10000
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_versioned_writes = true
CONF
}

# curl signs no key with a colon in it.
make_bucket() {
    /usr/bin/python3 - "$port" "$user" "$secret" "$bucket" 2>/dev/null <<'PYTHON'
import datetime
import hashlib
import hmac
import http.client
import sys

port, access, secret, bucket = sys.argv[1:]
now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
scope = f"{now[:8]}/us-east-1/s3/aws4_request"
empty = hashlib.sha256(b"").hexdigest()
headers = {"host": f"127.0.0.1:{port}", "x-amz-content-sha256": empty, "x-amz-date": now}
names = ";".join(headers)
lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
canonical = f"PUT\n/{bucket}\n\n{lines}\n{names}\n{empty}"
wanted = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
key = b"AWS4" + secret.encode()
for text in (*scope.split("/"), wanted):
    key = hmac.new(key, text.encode(), "sha256").digest()
headers["Authorization"] = (f"AWS4-HMAC-SHA256 Credential={access}/{scope}, "
                            f"SignedHeaders={names}, Signature={key.hex()}")
connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
connection.request("PUT", f"/{bucket}", b"", headers)
sys.exit(0 if connection.getresponse().status in (200, 409) else 1)  # 409: it is there
PYTHON
}

up() {
    local kind number=0
    need swift-proxy-server:swift-proxy swift-account-server:swift-account \
        swift-container-server:swift-container swift-object-server:swift-object memcached:memcached
    mkdir -p "$conf" "$folder/devices/d1" "$folder/cache"
    write_launcher
    printf '[swift-hash]\nswift_hash_path_prefix = cairn\nswift_hash_path_suffix = cairn\n%s\n' \
        '[storage-policy:0]
name = one
default = yes' >"$conf/swift.conf"
    for kind in account container object; do
        number=$((number + 1))
        write_storage "$kind" "$((port + number))"
    done
    write_proxy
    run cache memcached -u "$(id -un)" -l 127.0.0.1 -p "$((port + 4))" -U 0 -m 64 \
        -P "$folder/run/memcached.pid"
    for kind in account container object proxy; do
        run "$kind" /usr/bin/python3 "$conf/serve.py" "$conf" "$kind"
    done
    watched='cache account container object proxy'
    await 30 'Swift' make_bucket
}

main
