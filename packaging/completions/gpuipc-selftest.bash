# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Completion for bash. The words are those that `gpuipc-selftest --help` and `gpuipc-selftest COMMAND --help` say, so they
# are always the program's own.
_gpuipc_selftest() {
    local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local help commands command argument
    help=$("$program" --help 2>/dev/null) || return
    commands=$(sed -nE 's/^(usage:)? +gpuipc-selftest ([a-z]+).*/\2/p' <<<"$help" | sort -u)
    for command in "${COMP_WORDS[@]:1:COMP_CWORD-1}" ''; do
        if [ -n "$command" ] && grep -qxF -- "$command" <<<"$commands"; then
            help=$("$program" "$command" --help 2>/dev/null) || return
            break
        fi
    done
    # bash breaks --html=FILE at its sign (COMP_WORDBREAKS).
    if [ "$word" = = ]; then
        word=
    elif [ "$before" = = ]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    COMPREPLY=()
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(sed -nE 's/^  (--[a-z-]+=?).*/\1/p' <<<"$help")" -- "$word")
        if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
            compopt -o nospace
        fi
        return
    fi
    argument=
    if [[ $before =~ ^--[a-z-]+$ ]]; then
        argument=$(sed -nE "s/^  $before=([^ ]+).*/\1/p" <<<"$help")
    fi
    if [ -n "$argument" ]; then
        # "auto|cuda|PATH": what is small is a word as it stands.
        mapfile -t COMPREPLY < <(compgen -W "$(tr '|' '\n' <<<"$argument" | grep '^[a-z]')" -- "$word")
        if [[ $argument =~ FILE|PATH ]]; then
            compopt -o filenames
            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$word")
        fi
    elif [ -z "$command" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
    fi
}
complete -F _gpuipc_selftest gpuipc-selftest
