# SPDX-License-Identifier: Apache-2.0
# What radosgw.sh and swift.sh share: keys, installing, and processes that belong to one folder.
# Sourced with $1 = start|stop|env, $2 = folder, $3 = port; the caller then defines up, down and env.
# shellcheck shell=bash
set -euo pipefail
verb=${1:-} folder=${2:-} port=${3:-}
if [[ ! $verb =~ ^(start|stop|env)$ || -z $folder || ! $port =~ ^[0-9]+$ ]]; then
    printf 'usage: %s start|stop|env FOLDER PORT\n' "$0" >&2
    exit 2
fi
folder=$(realpath -m "$folder")
access=${CAIRN_TEST_ACCESS:-cairnlabkey}
secret=${CAIRN_TEST_SECRET:-cairnlabsecret0123456789}
bucket=${CAIRN_TEST_BUCKET:-lab}

say_environment() { # ACCESS-KEY
    printf "export %s='%s'\n" AWS_ENDPOINT_URL "http://127.0.0.1:$port" AWS_ACCESS_KEY_ID "$1" \
        AWS_SECRET_ACCESS_KEY "$secret" AWS_REGION us-east-1 CAIRN_TEST_BUCKET "$bucket" \
        CAIRN_TEST_S3_URL "s3://$bucket/cairn-test"
}

# Installs PROGRAM:PACKAGE pairs whose program is missing. Packages must not start their services.
need() {
    local pair missing=() guard=/usr/sbin/policy-rc.d guarded=0 status=0
    for pair in "$@"; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
    done
    [ "${#missing[@]}" = 0 ] && return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        printf '%s: not here, and cannot be installed: %s\n' "$0" "${missing[*]}" >&2
        exit 77
    fi
    if [ ! -e "$guard" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$guard" && chmod +x "$guard"
        guarded=1
    fi
    printf '%s: installing %s\n' "$0" "${missing[*]}" >&2
    apt_install "${missing[@]}" || { apt-get update -qq && apt_install "${missing[@]}"; } || status=$?
    [ "$guarded" = 0 ] || rm -f "$guard"
    return "$status"
}

apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq install -y \
        --no-install-recommends "$@" >/dev/null
}

# A pid counts only while its command line still names this folder.
is_running() { # NAME
    local pid
    pid=$(cat "$folder/run/$1" 2>/dev/null) && [ -n "$pid" ] &&
        tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$folder/"
}

run() { # NAME COMMAND...
    local name=$1
    shift
    is_running "$name" && return 0
    setsid "$@" </dev/null >>"$folder/log/$name.out" 2>&1 &
    echo $! >"$folder/run/$name"
}

end() { # NAME...
    local name pid
    for name in "$@"; do
        if is_running "$name"; then
            pid=$(cat "$folder/run/$name")
            kill -- "-$pid" 2>/dev/null || kill "$pid" 2>/dev/null || true
            for _ in $(seq 200); do is_running "$name" && sleep 0.1 || break; done
            is_running "$name" && kill -9 -- "-$pid"
        fi
        rm -f "$folder/run/$name"
    done
    return 0
}

give_up() {
    printf '%s: %s\n' "$0" "$*" >&2
    tail -n 5 "$folder"/log/*.out >&2 || true
    exit 1
}

# Polls COMMAND... until it succeeds; gives up when one of the processes in $watched is gone.
await() { # SECONDS WHAT COMMAND...
    local tries=$(($1 * 10)) what=$2 name
    shift 2
    for _ in $(seq "$tries"); do
        "$@" && return 0
        for name in $watched; do
            is_running "$name" || give_up "$name ended"
        done
        sleep 0.1
    done
    give_up "$what: not within the time"
}

main() {
    case $verb in
    env) environment ;;
    stop) down ;;
    start)
        mkdir -p "$folder/run" "$folder/log"
        up
        ;;
    esac
}
