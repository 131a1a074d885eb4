/* SPDX-License-Identifier: MIT */
/** @file A DLL that needs another one, which is not beside it unless a test puts it there. */
#include <windows.h>

__declspec(dllimport) DWORD plain_mode_while_loading(void);

__declspec(dllexport) DWORD needs_plain(void);
__declspec(dllexport) DWORD needs_plain(void) {
    return plain_mode_while_loading();
}
