# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Completion for bash. The words are those that `gpuipc-selftest --help` says, so they are always the program's own.
_gpuipc_selftest() {
    local word=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]} help
    help=$("$program" --help 2>/dev/null) || return
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(grep -oE -- '--[a-z][a-z-]+' <<<"$help" | sort -u)" -- "$word")
    elif ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$(sed -nE 's/^(usage:)? +gpuipc-selftest ([a-z]+).*/\2/p' <<<"$help" | sort -u)" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -F _gpuipc_selftest gpuipc-selftest
