# SPDX-License-Identifier: Apache-2.0
# Source packages, out of the archives from which this machine's apt has the binary packages. All of it lies in the
# current folder; nothing of the system changes. Sourced by extras.sh and libraries.sh.
# shellcheck shell=bash

# Prints a line of sources.list for each archive that offers a binary package; with SUITE: that suite of those archives.
cairn_sources_lines() { # PACKAGE [SUITE]
    apt-cache madison "$1" | awk -F ' *[|] *' -v suite="${2:-}" '$3 ~ / Packages$/ {
        split($3, words, " ")
        at = match(words[2], "/[^/]*$")
        own = substr(words[2], 1, at - 1)
        if (suite != "" && own ~ /-/) next # updates and fixes, whose archive need not have that suite
        print "deb-src", words[1], suite != "" ? suite : own, substr(words[2], at + 1)
    }' | sort -u
}

# apt-get or apt-cache over the sources.list of this folder.
cairn_sources_apt() { # PROGRAM ARGUMENTS...
    local program=$1
    shift
    timeout 120 "$program" -qq -o "Dir::Etc::SourceList=$PWD/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$PWD/lists" -o "Dir::Cache=$PWD/cache" \
        -o Acquire::Retries=0 -o Acquire::http::Timeout=20 "$@" </dev/null
}

# Reads the lists of the archives of a binary package.
cairn_sources_lists() { # PACKAGE [SUITE]
    mkdir -p lists/partial cache/archives/partial
    cairn_sources_lines "$@" >sources.list
    [ -s sources.list ] || { echo "apt knows no archive that has $1" >&2; return 1; }
    cairn_sources_apt apt-get update
}

# Downloads the source package of an installed binary package: the newest that is there, and none older than what is
# installed, which would bring back faults that are fixed. An archive may list a source that it does not have.
cairn_sources_installed() { # PACKAGE
    local name least version
    read -r name least < <(dpkg-query -W -f '${source:Package} ${source:Version}\n' "$1") || return 1
    cairn_sources_lists "$1" || return 1
    while read -r version; do
        dpkg --compare-versions "$version" ge "$least" || break
        cairn_sources_apt apt-get source --download-only "$name=$version" && return 0
        rm -f ./*.dsc # one that came without its sources
    done < <(cairn_sources_apt apt-cache showsrc --only-source "$name" | sed -n 's/^Version: //p' | sort -ruV)
    echo "no archive gave the source of $name $least or a newer one" >&2
    return 1
}
