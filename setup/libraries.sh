# SPDX-License-Identifier: Apache-2.0
# Builds libcurl and libpq for the wheel of the programs, from the source packages of the installed ones, without what
# Cairn never uses: a distribution's libcurl links LDAP, Kerberos, SSH and RTMP, its libpq LDAP and Kerberos. What cannot
# be built is named, and the wheel gets the system's library. Sourced by python/wheel.
# shellcheck shell=bash
. setup/sources.sh

# Built libraries are kept here; a failure counts for an hour.
cairn_libraries_kept=$(realpath -m "${CAIRN_WHEEL_LIBRARIES:-build/wheel-libraries}")

# http and https with OpenSSL. No authorities are built in: common/http finds the system's when a program runs. Names of
# hosts beyond ASCII need a locale, which the programs do not set, so libidn2 would never be used.
cairn_libraries_curl_options=(
    --disable-static --disable-dependency-tracking --enable-versioned-symbols --with-openssl --enable-threaded-resolver
    --without-ca-bundle --without-ca-path --without-zlib --without-brotli --without-zstd --without-nghttp2 --without-libidn2
    --without-libpsl --without-librtmp --without-libssh --without-libssh2 --without-libgsasl --without-gssapi
    --disable-ftp --disable-file --disable-ldap --disable-ldaps --disable-rtsp --disable-dict --disable-telnet
    --disable-tftp --disable-pop3 --disable-imap --disable-smb --disable-smtp --disable-gopher --disable-mqtt
    --disable-websockets --disable-proxy --disable-cookies --disable-netrc --disable-http-auth --disable-crypto-auth
    --disable-ntlm --disable-tls-srp --disable-doh --disable-alt-svc --disable-hsts --disable-manual
)
# The folder of pg_service.conf is Debian's.
cairn_libraries_pq_options=(
    --with-openssl --without-ldap --without-gssapi --without-readline --without-zlib --without-icu --without-lz4
    --without-zstd --without-pam --without-systemd --without-perl --without-python --without-tcl --without-libxml
    --sysconfdir=/etc/postgresql-common
)

# Both build in the folder of an unpacked source and leave the library in the folder above. The flags are those of a Debian
# package, without the folder's name: the bytes are the same in any folder, and ccache has them.
cairn_libraries_configure() { # OPTIONS...
    local DEB_BUILD_MAINT_OPTIONS='hardening=+all reproducible=-fixfilepath' cc=cc
    export DEB_BUILD_MAINT_OPTIONS
    ! command -v ccache >/dev/null || cc='ccache cc'
    ./configure --quiet CC="$cc" CFLAGS="$(dpkg-buildflags --get CFLAGS) -g0" CPPFLAGS="$(dpkg-buildflags --get CPPFLAGS)" \
        LDFLAGS="$(dpkg-buildflags --get LDFLAGS) -Wl,-s" "$@"
}
cairn_libraries_build_curl() {
    local patch
    # Debian's last patches make its libcurls over GnuTLS and NSS.
    while read -r patch; do
        patch -s -R -p1 <"debian/patches/$patch" || return 1
    done < <(tac debian/patches/series | grep -E '^[0-9]+_(gnutls|nss)\.patch$')
    cairn_libraries_configure "${cairn_libraries_curl_options[@]}" &&
        make -s -j"$(nproc)" -C lib libcurl.la && cp lib/.libs/libcurl.so.4 ..
}
cairn_libraries_build_pq() {
    cairn_libraries_configure "${cairn_libraries_pq_options[@]}" &&
        make -s -j"$(nproc)" -C src/interfaces/libpq all && cp src/interfaces/libpq/libpq.so.5 ..
}

# Builds in the current folder. PACKAGE has the headers with which the programs were compiled.
cairn_libraries_make() { # NAME PACKAGE FOLDER
    cairn_sources_installed "$2" && dpkg-source -x ./*.dsc unpacked && (cd unpacked && "cairn_libraries_build_$1") &&
        mkdir out && mv "lib$1".so.* out/ && sed -n 's/^Version: //p' ./*.dsc | head -n 1 >out/version &&
        mkdir -p "${3%/*}" && mv out "$3.$$" || return 1
    # Another run may have been faster.
    mv -T "$3.$$" "$3" 2>/dev/null || rm -rf "$3.$$"
}

# Prints the folder of one library if it could be built, and on standard error what the wheel gets.
cairn_libraries_one() { # NAME PACKAGE
    local key folder work
    key=$(cat setup/libraries.sh setup/sources.sh <(cc --version) <(dpkg-query -W libssl-dev "$2" 2>/dev/null) | sha256sum)
    folder=$cairn_libraries_kept/$1-${key:0:16}
    if [ ! -d "$folder" ] && [ -z "$(find "$folder.missing" -mmin -60 2>/dev/null)" ]; then
        work=$(mktemp -d)
        if ! (cd "$work" && cairn_libraries_make "$1" "$2" "$folder") >"$work/log" 2>&1; then
            mkdir -p "$cairn_libraries_kept"
            tail -n 1 "$work/log" >"$folder.missing"
        fi
        rm -rf "$work"
    fi
    if [ -d "$folder" ]; then
        printf 'python/wheel: lib%s %s of its own\n' "$1" "$(cat "$folder/version")" >&2
        printf '%s\n' "$folder"
    else
        printf "python/wheel: no lib%s of its own, the wheel gets the system's: %s\n" "$1" "$(cat "$folder.missing")" >&2
    fi
}

# Prints the folders of the libraries that could be built.
cairn_libraries_get() {
    cairn_libraries_one curl libcurl4-openssl-dev
    cairn_libraries_one pq libpq-dev
}
