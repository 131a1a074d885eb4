# SPDX-License-Identifier: MIT
# The library and Windows: what it asks of the system, call by call, and what it does when a call fails
# or a peer breaks the rules. win32_record.c stands between the program and the system's functions, so
# it has to be in the program itself.
add_library(win32_test_support OBJECT win32_raw.c win32_record.c)
target_compile_definitions(win32_test_support PRIVATE ${system_definitions})
target_include_directories(win32_test_support PRIVATE ${PROJECT_SOURCE_DIR}/src/common
                                                      ${PROJECT_SOURCE_DIR}/src/win32)
target_link_libraries(win32_test_support PRIVATE gpuipc_test_support PkgConfig::CRITERION)

function(gpuipc_add_win32_test unit)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBRARIES")
  gpuipc_add_test(unit ${unit}
                  SOURCES test_${unit}.c os_pair.c $<TARGET_OBJECTS:win32_test_support>
                  LIBRARIES ${arg_LIBRARIES} gpuipc_test_support)
  target_compile_definitions(test_unit_${unit} PRIVATE ${system_definitions})
  target_include_directories(test_unit_${unit} PRIVATE ${PROJECT_SOURCE_DIR}/src/win32)
  target_link_libraries(test_unit_${unit} PRIVATE ntdll advapi32)
  add_dependencies(test_unit_${unit} win32_peer_helper)
endfunction()

add_executable(win32_peer_helper win32_peer_helper.c)
target_compile_definitions(win32_peer_helper PRIVATE ${system_definitions})
target_include_directories(win32_peer_helper PRIVATE ${PROJECT_SOURCE_DIR}/src/common
                                                     ${PROJECT_SOURCE_DIR}/src/win32)
target_link_libraries(win32_peer_helper PRIVATE gpuipc_test_support)

foreach(unit win32_record win32_arguments win32_claim win32_directory win32_fault win32_ledger
             win32_ledger_process win32_name win32_rights win32_system)
  gpuipc_add_win32_test(${unit})
endforeach()
# These go through the whole library, on the emulated driver.
foreach(unit win32_frame win32_peer)
  gpuipc_add_win32_test(${unit} LIBRARIES gpuipc_core_fixture)
endforeach()
list(APPEND unit_helper_users win32_name)
