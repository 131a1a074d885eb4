# SPDX-License-Identifier: MIT
# The emulated driver: what the conformance suite, which also runs on a real GPU, cannot test.
set_source_files_properties(${system}_outputs.c PROPERTIES COMPILE_DEFINITIONS "${system_definitions}")

function(emulated_helper_add name)
  add_executable(${name} ${name}.c emulated_helper_open.c ${system}_outputs.c)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/common)
  target_link_libraries(${name} PRIVATE gpuipc_test_support)
endfunction()
emulated_helper_add(emulated_helper)
emulated_helper_add(emulated_peer)

unit_program(emulated)
# Parts of the emulated driver itself are in the program, which else loads it.
target_sources(test_unit_emulated PRIVATE emulated_test.c peer_process.c ${PROJECT_SOURCE_DIR}/src/emulated/machine.c
               ${PROJECT_SOURCE_DIR}/src/emulated/machine_key.c ${PROJECT_SOURCE_DIR}/src/emulated/handle_rights.c)
add_dependencies(test_unit_emulated gpuipc_emulated gpuipc_emulated_nvml emulated_helper emulated_peer)
foreach(noun dead entry fabric fault graph host_function ipc_event legacy live machine managed memory module more nvml pinned pool
        process rights stream word)
  unit_add(emulated emulated_${noun})
endforeach()
set_source_files_properties(test_emulated_nvml.c PROPERTIES COMPILE_DEFINITIONS
                            NVML_FILE="$<TARGET_FILE_NAME:gpuipc_emulated_nvml>")
unit_add(emulated ${system}_emulated)
set_source_files_properties(test_${system}_emulated.c PROPERTIES COMPILE_DEFINITIONS "${system_definitions}")
if(NOT WIN32)
  emulated_helper_add(posix_emulated_helper)
  target_compile_definitions(posix_emulated_helper PRIVATE ${system_definitions})
  add_dependencies(test_unit_emulated posix_emulated_helper)
  unit_add(emulated posix_emulated_pool)
  set_source_files_properties(test_posix_emulated_pool.c PROPERTIES COMPILE_DEFINITIONS "${system_definitions}")
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
