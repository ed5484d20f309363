# SPDX-License-Identifier: Apache-2.0
# This tree once more, in a folder whose name has a space and letters beyond ASCII, as people have them.
# Sourced by .ci/run.
# shellcheck shell=bash

# Prints the names of the tree's files, each ended by a zero byte: what git knows and does not ignore, or all but
# build/ where this is no clone.
cairn_folder_list() {
    local name
    if git rev-parse -q --verify HEAD >/dev/null 2>&1; then
        git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' name; do
            if [ -e "$name" ] || [ -L "$name" ]; then printf '%s\0' "$name"; fi
        done
    else
        find . -mindepth 1 \( -path ./build -o -path ./.quickstart \) -prune -o ! -type d -print0
    fi
}

# cairn_folder_copy FOLDER: the files as they are here, with their times, instead of what was there; its build/ stays.
cairn_folder_copy() {
    mkdir -p "$1" || return 1
    find "$1" -mindepth 1 -maxdepth 1 ! -name build ! -name .git -exec rm -rf {} +
    cairn_folder_list | tar --null --verbatim-files-from -cf - -T - | tar -C "$1" -xf -
}

# cairn_folder_fill FOLDER: a copy that knows the clone's history, and in its build/ what was fetched here. Its own
# builds stay, and are made again only where a source changed.
cairn_folder_fill() {
    local folder=$1 commit kept
    if commit=$(git rev-parse -q --verify HEAD 2>/dev/null); then
        if [ ! -e "$folder/.git" ] ||
            [ ! "$(git -C "$folder" rev-parse --show-toplevel 2>/dev/null)" -ef "$folder" ]; then
            rm -rf "$folder"
            git worktree add -q -f --detach --no-checkout "$folder" "$commit" || return 1
        fi
        # Its own index and HEAD; the clone's stay as they are.
        git -C "$folder" reset -q "$commit" || return 1
    fi
    cairn_folder_copy "$folder" && mkdir -p "$folder/build" || return 1
    # What setup/extras.sh fetched, and what parts of the whole run showed.
    for kept in venv venv-torch axe typescript prometheus sigv4-vectors libmicrohttpd wheel-libraries clients full.json; do
        if [ -e "build/$kept" ] && [ ! -e "$folder/build/$kept" ]; then
            ln -sfn "$PWD/build/$kept" "$folder/build/$kept"
        fi
    done
}
