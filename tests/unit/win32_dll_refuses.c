/* SPDX-License-Identifier: MIT */
/** @file A DLL that does not want to be loaded. */
#include <windows.h>

__declspec(dllexport) int refuses_anything(void);
__declspec(dllexport) int refuses_anything(void) {
    return 0;
}

BOOL WINAPI DllMain(HINSTANCE module, DWORD reason, LPVOID reserved) {
    (void)module;
    (void)reserved;
    return reason != DLL_PROCESS_ATTACH;
}
