# SPDX-License-Identifier: MIT
# Completion for fish. The words are those that `gpuipc-selftest --help` and `gpuipc-selftest COMMAND --help` say, so they
# are always the program's own.

# __gpuipc_selftest_values HELP OPTION VALUE: what may stand for the value, behind OPTION=.
function __gpuipc_selftest_values -a help option value
    set -l argument (string match -rg -- "\n  $option=(\S+)" "$help")
    # "auto|cuda|PATH": what is small is a word as it stands.
    string match -r '^[a-z].*' -- (string split '|' -- "$argument")
    if string match -qr 'FILE|PATH' -- "$argument"
        __fish_complete_path "$value"
    end
end

function __gpuipc_selftest
    set -l before (commandline -opc)
    set -l word (commandline -ct)
    set -l help ($before[1] --help 2>/dev/null | string collect)
    set -l commands (string match -arg '\n(?:usage:)? +gpuipc-selftest ([a-z]+)' -- "$help" | sort -u)
    set -l chosen
    for one in $before[2..]
        if test -z "$chosen"; and contains -- $one $commands
            set chosen $one
            set help ($before[1] $one --help 2>/dev/null | string collect)
        end
    end
    if string match -qr '^--[a-z-]+=' -- $word
        set -l parts (string split -m 1 = -- $word)
        set -l values (__gpuipc_selftest_values "$help" $parts[1] "$parts[2]")
        printf '%s\n' $parts[1]=$values
    else if string match -q -- '-*' $word
        string match -arg '\n  (--[a-z-]+=?)' -- "$help"
    else if string match -qr '^--[a-z-]+$' -- $before[-1]; and string match -qr -- "\n  $before[-1]=" "$help"
        __gpuipc_selftest_values "$help" $before[-1] "$word"
    else if test -z "$chosen"
        printf '%s\n' $commands
    end
end

complete -c gpuipc-selftest -f -a '(__gpuipc_selftest)'
