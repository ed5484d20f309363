#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# serve PASSWORD_FILE: a PostgreSQL in /data with one database and one role, `cairn`, and that password.
set -euo pipefail
bin=/usr/local/postgresql
if [ ! -s /data/PG_VERSION ]; then
    rm -rf /data/*
    "$bin/initdb" -D /data -U cairn --pwfile="$1" --auth-local=peer --auth-host=scram-sha-256 \
        --encoding=UTF8 --locale=C.UTF-8 >/dev/null
    printf 'host all all all scram-sha-256\n' >>/data/pg_hba.conf
    printf 'CREATE DATABASE cairn;\n' | "$bin/postgres" --single -D /data postgres >/dev/null
fi
exec "$bin/postgres" -D /data -c listen_addresses='*' -c unix_socket_directories=/tmp
