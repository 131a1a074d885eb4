/* SPDX-License-Identifier: MIT */
/** @file Makes the DLL that it is linked into stay in the process until that ends, as the linker's
 *  option -z nodelete does on Linux: FreeLibrary() would take away the code from under its threads.
 *  Not part of the library, which starts no thread of its own. */
#include <windows.h>

/** Of the functions that must not be called from here, where the loader's lock is held, this is none:
 *  learn.microsoft.com, "Dynamic-Link Library Best Practices". */
BOOL WINAPI DllMain(HINSTANCE module, DWORD reason, void *reserved) {
    HMODULE pinned;
    (void)reserved;
    return reason != DLL_PROCESS_ATTACH ||
           GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
                                  GET_MODULE_HANDLE_EX_FLAG_PIN,
                              (const wchar_t *)(const void *)module, &pinned);
}
