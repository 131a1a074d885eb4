/* SPDX-License-Identifier: MIT */
/** @file See program.h. */
#include "program.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

#include "options.h"
#include "win32_words.h"
#include "wrap.h"

/* Not exit(), which tells every DLL of the end: the driver's may be what hangs. */
void program_end_now(int exit_code) {
    (void)TerminateProcess(GetCurrentProcess(), (UINT)exit_code);
    abort(); /* not reached: a process may always end itself */
}

static atomic_bool is_interrupted;

/* learn.microsoft.com, HandlerRoutine: it runs in a thread of its own; FALSE leaves it to the next one, which ends the
 * process. What closes the console or the session ends it anyhow. */
static BOOL WINAPI note_interrupt(DWORD event) {
    return (event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT) &&
           !atomic_exchange(&is_interrupted, true);
}

void program_watch_interrupt(void) {
    (void)SetConsoleCtrlHandler(note_interrupt, TRUE);
}

bool program_is_interrupted(void) {
    return atomic_load(&is_interrupted);
}

/* learn.microsoft.com, SetConsoleMode: consoles before Windows 10 cannot be made to, and are then no terminal. */
static unsigned columns_of(DWORD stream) {
    const HANDLE console = GetStdHandle(stream);
    CONSOLE_SCREEN_BUFFER_INFO info;
    DWORD mode;
    if (!GetConsoleMode(console, &mode) || !GetConsoleScreenBufferInfo(console, &info) ||
        !SetConsoleMode(console, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING)) {
        return 0;
    }
    return (unsigned)(info.srWindow.Right - info.srWindow.Left) + 1;
}

unsigned program_columns(void) {
    return columns_of(STD_OUTPUT_HANDLE);
}

unsigned program_error_columns(void) {
    return columns_of(STD_ERROR_HANDLE);
}

/* With the words that have been converted; those behind them stay NULL. */
static void words_destroy(char **words) {
    for (size_t i = 0; words[i] != NULL; i++) {
        free(words[i]);
    }
    free(words);
}

/* A console shows what is printed as UTF-8, and afterwards as before: it outlives this program. */
static int run_with_utf8(int count, char **words) {
    const UINT before = GetConsoleOutputCP(); /* 0: there is no console */
    (void)SetConsoleOutputCP(CP_UTF8);
    int code = program_run(count, words);
    if (before != 0) {
        (void)fflush(stdout);
        (void)SetConsoleOutputCP(before);
    }
    return code;
}

/* main() would have the words in the user's code page, which cannot say every path. */
int wmain(int count, wchar_t **wide) {
    /* A crash ends the process: no window that waits for somebody to press a button. */
    (void)SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX);
    char **words = calloc((size_t)count + 1, sizeof(*words));
    gpuipc_status status = words == NULL ? GPUIPC_ERR_OUT_OF_MEMORY : GPUIPC_OK;
    for (int i = 0; i < count && status == GPUIPC_OK; i++) {
        status = words_narrow(wide[i], &words[i]);
    }
    if (status != GPUIPC_OK) {
        wrap_complain("FAIL: no memory for its arguments");
        if (words != NULL) {
            words_destroy(words);
        }
        return EXIT_FAIL;
    }
    int code = run_with_utf8(count, words);
    words_destroy(words);
    return code;
}
