/* SPDX-License-Identifier: MIT */
/** @file A DLL that says how it was loaded; others need it. */
#include <windows.h>

static DWORD mode_while_loading;

__declspec(dllexport) DWORD plain_mode_while_loading(void);
__declspec(dllexport) DWORD plain_mode_while_loading(void) {
    return mode_while_loading;
}

BOOL WINAPI DllMain(HINSTANCE module, DWORD reason, LPVOID reserved) {
    (void)module;
    (void)reserved;
    if (reason == DLL_PROCESS_ATTACH) {
        mode_while_loading = GetThreadErrorMode();
    }
    return TRUE;
}
