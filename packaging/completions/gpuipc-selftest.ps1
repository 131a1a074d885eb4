# SPDX-License-Identifier: MIT
# Completion for PowerShell: load it in your profile (. gpuipc-selftest.ps1). The words are those that
# `gpuipc-selftest --help` says, so they are always the program's own.
Register-ArgumentCompleter -Native -CommandName gpuipc-selftest -ScriptBlock {
    param($word, $ast, $cursor)
    $help = (& $ast.CommandElements[0].Value --help) -join "`n"
    if ($word -like '-*') {
        $words = [regex]::Matches($help, '--[a-z][a-z-]+').Value
    } else {
        $words = [regex]::Matches($help, '(?m)^(?:usage:)? +gpuipc-selftest ([a-z]+)') | ForEach-Object { $_.Groups[1].Value }
    }
    $words | Sort-Object -Unique | Where-Object { $_ -like "$word*" } |
        ForEach-Object { [System.Management.Automation.CompletionResult]::new($_) }
}
