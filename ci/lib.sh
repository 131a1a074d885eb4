# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# What the scripts of this folder share. Sourced, never run.

# They read the words of other programs, and the figures in them: in the user's language both may differ.
export LC_ALL=C.UTF-8

# shellcheck disable=SC2034 # for the scripts that source this
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() {
    printf '== %s\n' "$*"
}

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# How many jobs to run at once.
jobs_count() {
    nproc 2>/dev/null || echo 2
}

# quietly COMMAND...: prints the command's output only when the command fails.
quietly() {
    local output code=0
    output=$("$@" 2>&1 </dev/null) || code=$?
    [ "$code" -eq 0 ] || printf '%s\n' "$output" >&2
    return "$code"
}

# need_packages PACKAGE...
# Installs the Debian or Ubuntu packages that are missing, and prints one line that names them. When none is missing, it
# uses no network. The output of apt-get appears only when apt-get fails.
need_packages() {
    local missing=() package
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        say "no apt-get here: taking for granted what these Debian packages bring: $*"
        return
    fi
    for package in "$@"; do
        if ! dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed; then
            missing+=("$package")
        fi
    done
    if [ "${#missing[@]}" -eq 0 ]; then
        say "nothing to install"
        return
    fi

    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            die "these packages are missing: ${missing[*]}
Installing them needs root, and there is no sudo here. As root, run
    apt-get update && apt-get install -y --no-install-recommends ${missing[*]}
and start this script again."
        fi
        as_root=(sudo)
    fi
    say "installing with apt-get: ${missing[*]}"
    as_root+=(env DEBIAN_FRONTEND=noninteractive)
    quietly "${as_root[@]}" apt-get -q update || die "apt-get update failed (output above)"
    quietly "${as_root[@]}" apt-get -q install -y --no-install-recommends "${missing[@]}" ||
        die "apt-get install failed (output above)"
}

# changed PATH...: prints the files below these paths that differ from the commit that ci/all-passed names, where all legs
# passed last. Without that file, without that commit in the history, or under ci/test --all, it prints all of them.
changed() {
    local base=
    if [ -z "${GPUIPC_CI_ALL:-}" ] && [ -f "$root/ci/all-passed" ]; then
        base=$(cat "$root/ci/all-passed")
    fi
    if [ -n "$base" ] && git -C "$root" merge-base --is-ancestor "$base" HEAD 2>/dev/null; then
        git -C "$root" diff --name-only "$base" -- "$@"
        git -C "$root" ls-files --others --exclude-standard -- "$@"
    else
        (cd "$root" && find "$@" -type f)
    fi
}

# ---- checks that go on after the first finding --------------------------------------------------
problems=0

problem() {
    printf 'PROBLEM: %s\n' "$*"
    problems=$((problems + 1))
}

# refuse SENTENCE GREP-COMMAND...: what the command finds is a problem.
refuse() {
    local sentence=$1 found code=0
    shift
    found=$("$@") || code=$?
    case $code in
    0) problem "$sentence"$'\n'"$found" ;;
    1) ;;
    *) die "'$*' answered $code" ;;
    esac
}

# demand SENTENCE COMMAND...: the command must succeed; its words are shown when it does not.
demand() {
    local sentence=$1 words
    shift
    if ! words=$("$@" 2>&1); then
        problem "$sentence"$'\n'"$words"
    fi
}

# end_findings WORDS: fails when there was one, or says these.
end_findings() {
    [ "$problems" -eq 0 ] || die "$problems problems"
    echo "$*"
}

# c_files FOLDER...: the C files below these folders that exist, one a line.
c_files() {
    find "$@" -name '*.[ch]' -type f ! -path '*/test_package/build/*' | sort
}
