# SPDX-License-Identifier: MIT
# The emulated driver: what the conformance suite, which also runs on a real GPU, cannot test.
set_source_files_properties(${system}_environment.c ${system}_outputs.c PROPERTIES COMPILE_DEFINITIONS
                            "${system_definitions}")

function(emulated_helper_add name)
  add_executable(${name} ${name}.c emulated_helper_open.c ${system}_outputs.c)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/common)
  target_link_libraries(${name} PRIVATE gpuipc_test_support)
endfunction()
emulated_helper_add(emulated_helper)
emulated_helper_add(emulated_peer)

# What many of them contain, compiled once.
add_library(emulated_support OBJECT emulated_test.c ${system}_environment.c)
add_library(emulated_peer_support OBJECT peer_process.c)
foreach(support emulated_support emulated_peer_support)
  target_include_directories(${support} PRIVATE ${PROJECT_SOURCE_DIR}/src/common
                             ${PROJECT_SOURCE_DIR}/src/emulated)
  target_link_libraries(${support} PRIVATE gpuipc_test_support PkgConfig::CRITERION)
endforeach()

# emulated_add(UNIT [SOURCE...])
function(emulated_add unit)
  gpuipc_add_test(unit ${unit} SOURCES test_${unit}.c $<TARGET_OBJECTS:emulated_support> ${ARGN}
                  LIBRARIES gpuipc_test_support)
  add_dependencies(test_unit_${unit} gpuipc_emulated emulated_helper)
endfunction()
foreach(unit dead entry fault graph host_function live managed memory module more pinned process stream word)
  emulated_add(emulated_${unit})
endforeach()
foreach(unit fabric ipc_event legacy pool)
  emulated_add(emulated_${unit} $<TARGET_OBJECTS:emulated_peer_support>)
  add_dependencies(test_unit_emulated_${unit} emulated_peer)
endforeach()
emulated_add(emulated_machine ${PROJECT_SOURCE_DIR}/src/emulated/machine.c
             ${PROJECT_SOURCE_DIR}/src/emulated/machine_key.c)
emulated_add(emulated_nvml ${PROJECT_SOURCE_DIR}/src/emulated/machine.c
             ${PROJECT_SOURCE_DIR}/src/emulated/machine_key.c)
add_dependencies(test_unit_emulated_nvml gpuipc_emulated_nvml)
target_compile_definitions(test_unit_emulated_nvml PRIVATE
                           NVML_FILE="$<TARGET_FILE_NAME:gpuipc_emulated_nvml>")
gpuipc_add_test(unit emulated_rights SOURCES test_emulated_rights.c
                ${PROJECT_SOURCE_DIR}/src/emulated/handle_rights.c)

emulated_add(${system}_emulated)
target_compile_definitions(test_unit_${system}_emulated PRIVATE ${system_definitions})
if(NOT WIN32)
  emulated_helper_add(posix_emulated_helper)
  target_compile_definitions(posix_emulated_helper PRIVATE ${system_definitions})
  add_dependencies(test_unit_posix_emulated posix_emulated_helper)
  emulated_add(posix_emulated_pool $<TARGET_OBJECTS:emulated_peer_support>)
  target_compile_definitions(test_unit_posix_emulated_pool PRIVATE ${system_definitions})
  add_dependencies(test_unit_posix_emulated_pool emulated_peer)
endif()

add_executable(emulated_threads emulated_threads.c)
target_include_directories(emulated_threads PRIVATE ${PROJECT_SOURCE_DIR}/src/common
                           ${PROJECT_SOURCE_DIR}/src/emulated)
target_link_libraries(emulated_threads PRIVATE gpuipc_static)
add_dependencies(emulated_threads gpuipc_emulated)
gpuipc_test_command(command unit.emulated_threads emulated_threads)
add_test(NAME unit.emulated_threads COMMAND ${command})
set_tests_properties(unit.emulated_threads PROPERTIES TIMEOUT 120)

add_test(NAME unit.emulated_symbols
  COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DOBJDUMP=${CMAKE_OBJDUMP} -DWINDOWS=${WIN32}
          -DLIBRARY=$<TARGET_FILE:gpuipc_emulated> -DLEAST=90
          "-DNAMES=cu[A-Z][A-Za-z0-9]*(_v[0-9]+)?|gpuipc_emulated_[a-z_]+"
          -P ${CMAKE_CURRENT_SOURCE_DIR}/emulated_symbols.cmake)
add_test(NAME unit.emulated_nvml_symbols
  COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DOBJDUMP=${CMAKE_OBJDUMP} -DWINDOWS=${WIN32}
          -DLIBRARY=$<TARGET_FILE:gpuipc_emulated_nvml> -DLEAST=13
          "-DNAMES=nvml[A-Z][A-Za-z0-9]*(_v[0-9]+)?"
          -P ${CMAKE_CURRENT_SOURCE_DIR}/emulated_symbols.cmake)
