#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PostgreSQL's programs for a test, a data folder for them, and their end.
#
#   postgres.sh programs          prints the folder of initdb and postgres; exits with 77 and says why
#                                 where there is none. CAIRN_TEST_POSTGRES names one to be taken
#                                 instead of the newest of Debian's
#   postgres.sh data FOLDER NAME  FOLDER/NAME: a data folder, a copy of one that is made once a build
#   postgres.sh guard FOLDER      goes on in the background until its standard input ends, which the
#                                 test holds the other end of; then, however the test has ended, all
#                                 processes that work in FOLDER end and FOLDER goes
#
# PostgreSQL refuses to run as root: there it runs as nobody.
set -u
here=$(cd "$(dirname "$0")" && pwd)

programs() {
    newest=${CAIRN_TEST_POSTGRES:-}
    if [ -z "$newest" ]; then
        newest=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
    fi
    if [ ! -x "$newest/initdb" ] || [ ! -x "$newest/postgres" ]; then
        echo "there is no PostgreSQL here ($newest): install Debian's package postgresql"
        exit 77
    fi
    echo "$newest"
}

# As the user that PostgreSQL is to run as.
as_owner() {
    if [ "$(id -u)" = 0 ]; then
        setpriv --reuid=nobody --regid="$(id -gn nobody)" --clear-groups "$@"
    else
        "$@"
    fi
}

# Texts are sorted as English ones, so that a statement that leaves the order to the database is
# found out; small files of the log, so that a copy is small.
data() {
    folder=$1 name=$2
    bin=$(programs) || exit $?
    # Another script or another release makes another one.
    kept=$here/postgres-data-$(printf '%s' "$bin" | cat - "$0" | cksum | cut -d' ' -f1)
    exec 9>"$here/postgres-data.lock"
    flock 9
    if [ -d "$kept" ]; then
        flock -u 9
        exec cp -a "$kept" "$folder/$name"
    fi
    if ! (cd "$folder" && as_owner "$bin/initdb" -D "$name" -U cairn -A trust -E UTF8 --no-sync \
        --locale=C.UTF-8 --locale-provider=icu --icu-locale=en --wal-segsize=1) \
        >"$folder/initdb.log" 2>&1; then
        cat "$folder/initdb.log"
        exit 1
    fi
    rm -rf "$here"/postgres-data-*
    cp -a "$folder/$name" "$kept.part" && mv "$kept.part" "$kept"
}

# Process ids of what works in FOLDER: PostgreSQL's processes all do. A zombie has no such link.
inside() {
    for process in /proc/[0-9]*; do
        case $(readlink "$process/cwd") in
        "$1"/*) echo "${process#/proc/}" ;;
        esac
    done 2>/dev/null
}

hold() {
    folder=$1
    read -r _
    # Of a server that was killed these are left in the system.
    segments=$(sed -n '7s/.* //p' "$folder"/*/postmaster.pid 2>/dev/null)
    for how in QUIT KILL; do
        tries=30
        while pids=$(inside "$folder") && [ -n "$pids" ] && [ "$tries" -gt 0 ]; do
            for pid in $pids; do kill "-$how" "$pid"; done
            for pid in $pids; do kill -CONT "$pid"; done
            sleep 0.1
            tries=$((tries - 1))
        done
    done
    for segment in $segments; do ipcrm -m "$segment"; done
    for mounted in "$folder"/*/; do
        mountpoint -q "$mounted" && umount -l "$mounted"
    done
    rm -rf --one-file-system "$folder"
}

case ${1:-} in
programs) programs ;;
data) data "$2" "$3" ;;
guard) exec setsid --fork sh "$0" hold "$2" >/dev/null 2>&1 ;;
hold) hold "$2" 2>/dev/null ;;
*)
    echo "usage: postgres.sh programs | data FOLDER NAME | guard FOLDER" >&2
    exit 2
    ;;
esac
