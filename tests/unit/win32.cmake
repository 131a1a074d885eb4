# SPDX-License-Identifier: MIT
# What only Windows has: UTF-16, waiting in milliseconds, an environment that is not the C library's.
unit_program(win32)
target_compile_definitions(test_unit_win32 PRIVATE ${system_definitions})
foreach(noun clock file process text library memory security)
  unit_add(win32 win32_${noun})
endforeach()
include(win32_library.cmake)

# The library and Windows: what it asks of the system, call by call, and what it does when a call fails or a peer breaks the rules.
add_executable(win32_peer_helper win32_peer_helper.c)
target_compile_definitions(win32_peer_helper PRIVATE ${system_definitions})
target_include_directories(win32_peer_helper PRIVATE ${PROJECT_SOURCE_DIR}/src/common
                                                     ${PROJECT_SOURCE_DIR}/src/win32)
target_link_libraries(win32_peer_helper PRIVATE gpuipc_test_support)

# Apart: win32_record.c stands between all of the program and the system's functions.
unit_program(win32_calls)
target_sources(test_unit_win32_calls PRIVATE win32_raw.c win32_record.c)
target_compile_definitions(test_unit_win32_calls PRIVATE ${system_definitions})
target_link_libraries(test_unit_win32_calls PRIVATE ntdll advapi32)
add_dependencies(test_unit_win32_calls win32_peer_helper unit_helper)
foreach(noun record arguments claim directory fault ledger ledger_process name rights system frame peer)
  unit_add(win32_calls win32_${noun})
endforeach()
