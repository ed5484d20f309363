# SPDX-License-Identifier: Apache-2.0
# What has to be installed, and how that is done. Sourced by ./test and ./quickstart, so that a
# package is named in one place. Every list is for Debian 12, and cairn_packages_elsewhere has the names of others.
# shellcheck shell=bash

# To build and to run. ccache keeps what was compiled: a clean clone on the same machine builds in seconds.
cairn_packages_build=(
    build-essential ccache cmake ninja-build pkg-config
    libcurl4-openssl-dev libmicrohttpd-dev libgnutls28-dev libjansson-dev libssl-dev libsqlite3-dev libpq-dev
    libexpat1-dev ca-certificates
)
# To test, on top of that.
cairn_packages_test=(libcunit1-dev python3 python3-venv python3-yaml curl procps strace abigail-tools iproute2
    shellcheck)
# To test the catalog in PostgreSQL, too; without it those tests are skipped, and say so.
cairn_packages_postgres=(postgresql)
# To test the loops that are written for 64-bit ARM, and with --full all of Cairn on it; without them these tests are
# skipped, and say so.
cairn_packages_arm64=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)
# To test what musl's headers and library lack; without it that test is skipped, and says so.
cairn_packages_musl=(musl-tools)
# To test images and a site of containers; without them those tests are skipped, and say so.
cairn_packages_docker=(docker.io docker-compose mmdebstrap lintian)
command -v kubectl >/dev/null || cairn_packages_docker+=(kubernetes-client)
# To look at the page of the server in a browser; without it that test is skipped, and says so.
cairn_packages_browser=(chromium chromium-driver fonts-dejavu-core)
# To stand before the server as sites have it; without one of them its tests are skipped, and say so.
cairn_packages_proxies=(nginx-light haproxy apache2 caddy varnish)
# For the second compiler, on top of that.
cairn_packages_clang=(clang clang-format)

# What Fedora and Alpine call them: Debian's name, Fedora's, Alpine's, several with commas between them; - where another
# one of the list has it, or nobody. Debian's compiler brings the sanitizers and the kernel's headers, Fedora's and Alpine's do not.
cairn_packages_names='
build-essential gcc,make build-base,bsd-compat-headers,linux-headers
ccache ccache ccache
cmake cmake cmake
ninja-build ninja-build samurai
pkg-config pkgconf-pkg-config pkgconf
libcurl4-openssl-dev libcurl-devel curl-dev
libmicrohttpd-dev libmicrohttpd-devel libmicrohttpd-dev
libgnutls28-dev gnutls-devel gnutls-dev
libjansson-dev jansson-devel jansson-dev
libssl-dev openssl-devel openssl-dev
libsqlite3-dev sqlite-devel sqlite-dev
libpq-dev libpq-devel libpq-dev
libexpat1-dev expat-devel expat-dev
ca-certificates ca-certificates ca-certificates
libcunit1-dev CUnit-devel,libasan,libubsan,libtsan cunit-dev
python3 python3 python3
python3-venv - -
python3-yaml python3-pyyaml py3-yaml
curl curl curl
procps procps-ng procps-ng
strace strace strace
abigail-tools libabigail -
iproute2 iproute iproute2
shellcheck ShellCheck shellcheck
clang-format clang-tools-extra clang-extra-tools
postgresql postgresql-server postgresql
gcc-aarch64-linux-gnu gcc-aarch64-linux-gnu -
libc6-dev-arm64-cross - -
qemu-user qemu-user qemu-aarch64
kubernetes-client - kubectl
mmdebstrap - -
lintian - -
musl-tools musl-gcc -
docker.io moby-engine docker
docker-compose docker-compose docker-cli-compose
chromium chromium chromium
chromium-driver chromedriver chromium-chromedriver
fonts-dejavu-core dejavu-sans-fonts font-dejavu
nginx-light nginx nginx
haproxy haproxy haproxy
apache2 httpd apache2
caddy caddy caddy
varnish varnish varnish
clang clang clang
'

# Prints how this system installs the Debian packages named: a command, or their names where it is none of these.
cairn_packages_elsewhere() {
    local package column=0 words=() debian fedora alpine
    if command -v dnf >/dev/null; then
        words=(dnf install) column=1
    elif command -v apk >/dev/null; then
        words=(apk add) column=2
    else
        printf 'the packages of Debian 12 are: %s' "$*"
        return 0
    fi
    for package in "$@"; do
        while read -r debian fedora alpine; do
            [ "$debian" = "$package" ] || continue
            local own=$fedora
            [ "$column" = 1 ] || own=$alpine
            [ "$own" = - ] || words+=("${own//,/ }")
        done <<<"$cairn_packages_names"
    done
    printf 'as root run: %s' "${words[*]}"
}

# Prints those of the packages named that are not installed.
cairn_packages_missing() {
    local package
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
            printf '%s\n' "$package"
    done
}

# Prints what is missing by looking for the programs and libraries themselves: for systems whose
# packages have other names.
cairn_parts_missing() {
    local program library
    for program in cc cmake ninja pkg-config; do
        command -v "$program" >/dev/null || printf '%s\n' "$program"
    done
    for library in jansson libcurl libmicrohttpd gnutls libcrypto libssl sqlite3 libpq expat "$@"; do
        pkg-config --exists "$library" 2>/dev/null || printf '%s\n' "$library"
    done
}

# Installs the Debian packages named, those that are missing only, and says so first. Elsewhere it
# names what is missing and fails. Messages begin with the caller's $cairn_setup_name.
cairn_packages_need() {
    local missing=() as_root=()
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        mapfile -t missing < <(cairn_parts_missing)
        [ "${#missing[@]}" = 0 ] && return 0
        printf '%s: this system has no apt-get; missing: %s\n' "$cairn_setup_name" "${missing[*]}" >&2
        printf '%s: %s\n' "$cairn_setup_name" "$(cairn_packages_elsewhere "$@")" >&2
        return 1
    fi
    mapfile -t missing < <(cairn_packages_missing "$@")
    [ "${#missing[@]}" = 0 ] && return 0
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            printf '%s: not root, and no sudo; as root run: apt-get install %s\n' \
                "$cairn_setup_name" "${missing[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    printf '%s: installing %s\n' "$cairn_setup_name" "${missing[*]}"
    "${as_root[@]}" apt-get update -qq ||
        printf '%s: apt-get update failed; trying with the lists that are here\n' "$cairn_setup_name"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null && return 0
    printf '%s: apt-get could not install them\n' "$cairn_setup_name" >&2
    return 1
}

# Prints the options that make cmake use ccache where it is installed, and the Python that is found
# first now, not the one of an earlier run, one a line.
cairn_cmake_options() {
    local python
    command -v ccache >/dev/null && printf '%s\n' -DCMAKE_C_COMPILER_LAUNCHER=ccache
    python=$(command -v python3) &&
        printf '%s\n' "-DCAIRN_PYTHON3=$python"
    return 0
}

# PostgreSQL's programs, without the server that Debian sets up and starts with them: the tests
# start their own. The file that says so goes away again; what is installed already is left alone.
cairn_packages_need_postgres() {
    local only_programs=/etc/postgresql-common/createcluster.d/cairn-tests.conf as_root=() status=0
    [ -z "$(cairn_packages_missing "${cairn_packages_postgres[@]}")" ] && return 0
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    if command -v apt-get >/dev/null && command -v "${as_root[@]:-true}" >/dev/null; then
        "${as_root[@]}" mkdir -p "${only_programs%/*}" &&
            printf 'create_main_cluster = off\n' | "${as_root[@]}" tee "$only_programs" >/dev/null
    fi
    cairn_packages_need "${cairn_packages_postgres[@]}" || status=1
    if [ -e "$only_programs" ]; then
        "${as_root[@]}" rm -f "$only_programs"
    fi
    return "$status"
}

# The proxies' programs, without the services that Debian starts with them: the tests start their own. The
# file that says so goes away again, and one of the machine's own is left alone.
cairn_packages_need_proxies() {
    local policy=/usr/sbin/policy-rc.d as_root=() made=0 status=0
    [ -z "$(cairn_packages_missing "${cairn_packages_proxies[@]}")" ] && return 0
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    if command -v apt-get >/dev/null && command -v "${as_root[@]:-true}" >/dev/null && [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null &&
            "${as_root[@]}" chmod 755 "$policy" && made=1
    fi
    if [ -e "$policy" ]; then
        cairn_packages_need "${cairn_packages_proxies[@]}" || status=1
    else
        status=1
    fi
    if [ "$made" = 1 ]; then
        "${as_root[@]}" rm -f "$policy"
    fi
    return "$status"
}

# What a clone in another folder has compiled is found, too: paths count from the tree's root.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content

# Runs a command; prints what it said only when it fails.
cairn_quietly() {
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 || status=$?
    [ "$status" = 0 ] || cat "$log" >&2
    rm -f "$log"
    return "$status"
}

# What a caller adds to cmake's options; CAIRN_SETUP_CMAKE has one of a caller in another process.
cairn_cmake_extra=()
[ -z "${CAIRN_SETUP_CMAKE:-}" ] || cairn_cmake_extra+=("$CAIRN_SETUP_CMAKE")
cairn_configure_preset() {
    local options
    cairn_tree_fits "$1" || return 1
    mapfile -t options < <(cairn_cmake_options)
    cairn_quietly cmake --preset "$1" "${options[@]}" "${cairn_cmake_extra[@]}"
}

# Whether the preset can be built in this folder; else says what to do.
cairn_tree_fits() {
    local made
    if ! mkdir -p build 2>/dev/null || [ ! -w build ]; then
        printf '%s: this folder cannot be written to: %s\n' "$cairn_setup_name" "$PWD" >&2
        printf '%s: copy it to one that can, and run it there: cp -r %q FOLDER && cd FOLDER\n' "$cairn_setup_name" \
            "$PWD" >&2
        return 1
    fi
    [ -r "build/$1/CMakeCache.txt" ] || return 0
    made=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "build/$1/CMakeCache.txt")
    [ "$made" -ef . ] && return 0
    printf '%s: this folder was moved or copied: build/%s was made for %s\n' "$cairn_setup_name" "$1" "$made" >&2
    printf '%s: remove it and run this again: rm -rf %q\n' "$cairn_setup_name" "$PWD/build/$1" >&2
    return 1
}

# Builds one preset of CMakePresets.json.
cairn_build_preset() {
    local preset=$1
    shift
    # The preprocessor runs twice for what ccache has not, which is a quarter of the time. It pays where another build has the
    # same text, as these have of each other.
    case $preset in
    release | shipped | packages) ;;
    *) local -x CCACHE_DEPEND=1 ;;
    esac
    cairn_configure_preset "$preset" &&
        cairn_quietly cmake --build --preset "$preset" --parallel "$(nproc)" "$@"
}
