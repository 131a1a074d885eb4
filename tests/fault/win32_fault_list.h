/* SPDX-License-Identifier: MIT */
/** @file Calls of Windows, and with what they fail. learn.microsoft.com names few codes for each; here is what its page says,
 *  and of "System Error Codes" what says that there is no memory, that a limit is reached, or that it may not be done. */
#ifndef GPUIPC_TEST_WIN32_FAULT_LIST_H
#define GPUIPC_TEST_WIN32_FAULT_LIST_H

#include <windows.h>

#define NO_MEMORY ERROR_NOT_ENOUGH_MEMORY, ERROR_NO_SYSTEM_RESOURCES

/** X(identifier, name, is_transient, codes). The first is what all later calls fail with. For PeekNamedPipe that is that the other
 *  end is closed. Windows never says so of a peer that lives and may just be taking what was exported to it; the sender then closes
 *  that in the peer. Under Wine that may hang in the scenario "serve": DuplicateHandle has a thread of the peer's do it, which
 *  has a handle of the order. Where that handle has got the number to be closed, it is closed with it. With a memory error
 *  first nothing hangs; but then what was exported stays in the peer, as it must where nobody says whether it has closed. */
#define WIN32_FAULT_LIST(X)                                                                        \
    X(CANCEL, "CancelIoEx", false, ERROR_NOT_FOUND)                                                \
    X(CLOSE, "CloseHandle", false, ERROR_INVALID_HANDLE)                                           \
    X(CONNECT_PIPE, "ConnectNamedPipe", false, NO_MEMORY, ERROR_NO_DATA)                           \
    X(SID_TEXT, "ConvertSidToStringSidW", false, ERROR_NOT_ENOUGH_MEMORY, ERROR_INVALID_SID,       \
      ERROR_INVALID_PARAMETER)                                                                     \
    X(DESCRIPTOR, "ConvertStringSecurityDescriptorToSecurityDescriptorW", false,                   \
      ERROR_NOT_ENOUGH_MEMORY, ERROR_INVALID_PARAMETER, ERROR_UNKNOWN_REVISION, ERROR_NONE_MAPPED) \
    X(CREATE_DIRECTORY, "CreateDirectoryW", false, ERROR_ACCESS_DENIED, ERROR_PATH_NOT_FOUND,      \
      ERROR_ALREADY_EXISTS, ERROR_DISK_FULL)                                                       \
    X(EVENT, "CreateEventW", false, NO_MEMORY)                                                     \
    X(NAMED_EVENT, "CreateEventW(named)", false, NO_MEMORY, ERROR_INVALID_HANDLE,                  \
      ERROR_ACCESS_DENIED)                                                                         \
    X(MEMORY, "CreateFileMappingW", false, NO_MEMORY, ERROR_COMMITMENT_LIMIT, ERROR_DISK_FULL)     \
    X(CREATE_FILE, "CreateFileW", false, ERROR_ACCESS_DENIED, ERROR_FILE_NOT_FOUND,                \
      ERROR_PATH_NOT_FOUND, ERROR_SHARING_VIOLATION, ERROR_TOO_MANY_OPEN_FILES, ERROR_FILE_EXISTS, \
      ERROR_NOT_ENOUGH_MEMORY)                                                                     \
    X(OPEN_PIPE, "CreateFileW(pipe)", false, ERROR_ACCESS_DENIED, ERROR_FILE_NOT_FOUND,            \
      ERROR_PIPE_BUSY, ERROR_NOT_ENOUGH_MEMORY)                                                    \
    X(PIPE, "CreateNamedPipeW", false, NO_MEMORY, ERROR_PIPE_BUSY, ERROR_ACCESS_DENIED,            \
      ERROR_INVALID_PARAMETER)                                                                     \
    X(DELETE, "DeleteFileW", false, ERROR_ACCESS_DENIED, ERROR_FILE_NOT_FOUND,                     \
      ERROR_SHARING_VIOLATION)                                                                     \
    X(DUPLICATE, "DuplicateHandle", false, NO_MEMORY, ERROR_ACCESS_DENIED, ERROR_INVALID_HANDLE)   \
    X(DUPLICATE_CLOSING, "DuplicateHandle(DUPLICATE_CLOSE_SOURCE)", false, NO_MEMORY,              \
      ERROR_ACCESS_DENIED, ERROR_INVALID_HANDLE)                                                   \
    X(FORMAT, "FormatMessageW", false, ERROR_MR_MID_NOT_FOUND, ERROR_NOT_ENOUGH_MEMORY)            \
    X(FREE_LIBRARY, "FreeLibrary", false, ERROR_MOD_NOT_FOUND)                                     \
    X(GET_ACE, "GetAce", false, ERROR_INVALID_PARAMETER)                                           \
    X(GET_ENVIRONMENT, "GetEnvironmentVariableW", false, ERROR_ENVVAR_NOT_FOUND)                   \
    X(GET_ATTRIBUTES, "GetFileAttributesW", false, ERROR_ACCESS_DENIED, ERROR_FILE_NOT_FOUND,      \
      ERROR_PATH_NOT_FOUND)                                                                        \
    X(GET_FILE, "GetFileInformationByHandle", false, ERROR_ACCESS_DENIED, ERROR_INVALID_FUNCTION)  \
    X(GET_SIZE, "GetFileSizeEx", false, ERROR_ACCESS_DENIED, ERROR_INVALID_FUNCTION)               \
    X(FULL_PATH, "GetFullPathNameW", false, ERROR_INVALID_NAME, ERROR_NOT_ENOUGH_MEMORY)           \
    X(GET_HANDLE, "GetHandleInformation", false, ERROR_INVALID_HANDLE)                             \
    X(MODULE_NAME, "GetModuleFileNameW", false, ERROR_MOD_NOT_FOUND, ERROR_NOT_ENOUGH_MEMORY)      \
    X(MODULE_AT, "GetModuleHandleExW", false, ERROR_MOD_NOT_FOUND)                                 \
    X(MODULE, "GetModuleHandleW", false, ERROR_MOD_NOT_FOUND)                                      \
    X(CLIENT_PROCESS, "GetNamedPipeClientProcessId", false, ERROR_INVALID_FUNCTION,                \
      ERROR_PIPE_LOCAL, ERROR_NOT_ENOUGH_MEMORY)                                                   \
    X(SERVER_PROCESS, "GetNamedPipeServerProcessId", false, ERROR_INVALID_FUNCTION,                \
      ERROR_PIPE_LOCAL, ERROR_NOT_ENOUGH_MEMORY)                                                   \
    X(SYMBOL, "GetProcAddress", false, ERROR_PROC_NOT_FOUND)                                       \
    X(HANDLE_COUNT, "GetProcessHandleCount", false, ERROR_ACCESS_DENIED)                           \
    X(GET_SECURITY, "GetSecurityInfo", false, ERROR_ACCESS_DENIED, ERROR_NOT_ENOUGH_MEMORY,        \
      ERROR_INVALID_HANDLE)                                                                        \
    X(SYSTEM_DIRECTORY, "GetSystemDirectoryW", false, ERROR_NOT_ENOUGH_MEMORY)                     \
    X(GET_TOKEN, "GetTokenInformation", false, NO_MEMORY, ERROR_ACCESS_DENIED)                     \
    X(IS_WOW64, "IsWow64Process", false, ERROR_ACCESS_DENIED, ERROR_NOT_ENOUGH_MEMORY)             \
    X(LOAD_LIBRARY, "LoadLibraryExW", false, ERROR_MOD_NOT_FOUND, ERROR_BAD_EXE_FORMAT,            \
      ERROR_NOT_ENOUGH_MEMORY, ERROR_DLL_INIT_FAILED)                                              \
    X(MAP, "MapViewOfFile", false, NO_MEMORY, ERROR_COMMITMENT_LIMIT)                              \
    X(MOVE, "MoveFileExW", false, ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION,                    \
      ERROR_FILE_NOT_FOUND, ERROR_DISK_FULL)                                                       \
    X(TO_WIDE, "MultiByteToWideChar", false, ERROR_NO_UNICODE_TRANSLATION,                         \
      ERROR_INSUFFICIENT_BUFFER)                                                                   \
    X(OPEN_EVENT, "OpenEventW", false, ERROR_FILE_NOT_FOUND, ERROR_ACCESS_DENIED, NO_MEMORY)       \
    X(OPEN_PROCESS, "OpenProcess", false, ERROR_ACCESS_DENIED, ERROR_INVALID_PARAMETER, NO_MEMORY) \
    X(OPEN_TOKEN, "OpenProcessToken", false, ERROR_ACCESS_DENIED, NO_MEMORY)                       \
    X(PEEK, "PeekNamedPipe", false, ERROR_BROKEN_PIPE, ERROR_NOT_ENOUGH_MEMORY)                    \
    X(READ_PIPE, "ReadFile(pipe)", false, NO_MEMORY, ERROR_NOT_ENOUGH_QUOTA,                       \
      ERROR_INVALID_USER_BUFFER, ERROR_BROKEN_PIPE)                                                \
    X(READ, "ReadFile", false, NO_MEMORY, ERROR_NOT_ENOUGH_QUOTA, ERROR_CRC)                       \
    X(CREATE_KEY, "RegCreateKeyExW", false, ERROR_ACCESS_DENIED, ERROR_NOT_ENOUGH_MEMORY,          \
      ERROR_CHILD_MUST_BE_VOLATILE)                                                                \
    X(OPEN_KEY, "RegOpenKeyExW", false, ERROR_FILE_NOT_FOUND, ERROR_ACCESS_DENIED,                 \
      ERROR_NOT_ENOUGH_MEMORY)                                                                     \
    X(CLOSE_KEY, "RegCloseKey", false, ERROR_INVALID_HANDLE)                                       \
    X(QUERY_KEY, "RegQueryInfoKeyW", false, ERROR_MORE_DATA, ERROR_ACCESS_DENIED,                  \
      ERROR_NOT_ENOUGH_MEMORY)                                                                     \
    X(REGISTER_WAIT, "RegisterWaitForSingleObject", false, NO_MEMORY)                              \
    X(SET_END, "SetEndOfFile", false, ERROR_DISK_FULL, ERROR_ACCESS_DENIED)                        \
    X(SET_PIPE, "SetNamedPipeHandleState", false, ERROR_PIPE_NOT_CONNECTED, ERROR_BROKEN_PIPE,     \
      ERROR_ACCESS_DENIED)                                                                         \
    X(ERROR_MODE, "SetThreadErrorMode", false, ERROR_INVALID_PARAMETER)                            \
    X(SLEEP, "SleepConditionVariableSRW", true, ERROR_TIMEOUT)                                     \
    X(UNMAP, "UnmapViewOfFile", false, ERROR_INVALID_ADDRESS)                                      \
    X(UNREGISTER_WAIT, "UnregisterWaitEx", false, ERROR_INVALID_HANDLE)                            \
    X(PAGES, "VirtualAlloc", false, ERROR_NOT_ENOUGH_MEMORY, ERROR_COMMITMENT_LIMIT)               \
    X(FREE_PAGES, "VirtualFree", false, ERROR_INVALID_PARAMETER)                                   \
    X(WAIT_MANY, "WaitForMultipleObjects", false, NO_MEMORY, ERROR_INVALID_HANDLE)                 \
    X(WAIT, "WaitForSingleObject", false, NO_MEMORY, ERROR_INVALID_HANDLE)                         \
    X(TO_NARROW, "WideCharToMultiByte", false, ERROR_NO_UNICODE_TRANSLATION,                       \
      ERROR_INSUFFICIENT_BUFFER)                                                                   \
    X(WRITE_PIPE, "WriteFile(pipe)", false, NO_MEMORY, ERROR_NOT_ENOUGH_QUOTA,                     \
      ERROR_INVALID_USER_BUFFER, ERROR_NO_DATA, ERROR_BROKEN_PIPE)                                 \
    X(WRITE, "WriteFile", false, ERROR_DISK_FULL, ERROR_HANDLE_DISK_FULL, ERROR_NOT_ENOUGH_QUOTA,  \
      NO_MEMORY)                                                                                   \
    X(THREAD, "_beginthreadex", false, ERROR_NOT_ENOUGH_MEMORY, ERROR_MAX_THRDS_REACHED)           \
    X(RANDOM, "BCryptGenRandom", false, FAULT_STATUS_INVALID_HANDLE, FAULT_STATUS_NO_MEMORY)       \
    X(QUERY_OBJECT, "NtQueryObject", false, FAULT_STATUS_INVALID_HANDLE,                           \
      FAULT_STATUS_ACCESS_DENIED)                                                                  \
    X(QUERY_SECTION, "NtQuerySection", false, FAULT_STATUS_INVALID_HANDLE,                         \
      FAULT_STATUS_ACCESS_DENIED)

/* ntstatus.h */
#define FAULT_STATUS_INVALID_HANDLE ((LONG)0xC0000008)
#define FAULT_STATUS_NO_MEMORY      ((LONG)0xC0000017)
#define FAULT_STATUS_ACCESS_DENIED  ((LONG)0xC0000022)
#define FAULT_STATUS_PIPE_BROKEN    0xC000014Bu
#define FAULT_STATUS_PIPE_CLOSING   0xC00000B1u

#endif
