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

# emulated_add(UNIT [SOURCE...])
function(emulated_add unit)
  gpuipc_add_test(unit ${unit} SOURCES test_${unit}.c emulated_test.c ${system}_environment.c ${ARGN}
                  LIBRARIES gpuipc_test_support)
  add_dependencies(test_unit_${unit} gpuipc_emulated emulated_helper)
endfunction()
foreach(unit dead entry fault live memory more process stream)
  emulated_add(emulated_${unit})
endforeach()
emulated_add(emulated_machine ${PROJECT_SOURCE_DIR}/src/emulated/machine.c)
gpuipc_add_test(unit emulated_rights SOURCES test_emulated_rights.c
                ${PROJECT_SOURCE_DIR}/src/emulated/handle_rights.c)

emulated_add(${system}_emulated)
target_compile_definitions(test_unit_${system}_emulated PRIVATE ${system_definitions})
if(NOT WIN32)
  emulated_helper_add(posix_emulated_helper)
  target_compile_definitions(posix_emulated_helper PRIVATE ${system_definitions})
  add_dependencies(test_unit_posix_emulated posix_emulated_helper)
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
          -DLIBRARY=$<TARGET_FILE:gpuipc_emulated> -P ${CMAKE_CURRENT_SOURCE_DIR}/emulated_symbols.cmake)
