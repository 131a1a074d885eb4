# SPDX-License-Identifier: MIT
# Completion for fish. The words are those that `gpuipc-selftest --help` says, so they are always the program's own.
complete -c gpuipc-selftest -n __fish_use_subcommand -f -a "(gpuipc-selftest --help | string replace -rf '^(?:usage:)? +gpuipc-selftest ([a-z]+).*' '\$1' | sort -u)"
complete -c gpuipc-selftest -n 'string match -q -- "-*" (commandline -ct)' -f -a "(gpuipc-selftest --help | string match -ra -- '--[a-z][a-z-]+' | sort -u)"
