# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# What the scripts of this folder share. Sourced, never run.

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

# need_packages PACKAGE...
# Installs the Debian or Ubuntu packages that are missing, after saying which. Touches neither the
# network nor anything else when none is.
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
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q update
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -q install -y --no-install-recommends "${missing[@]}"
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
