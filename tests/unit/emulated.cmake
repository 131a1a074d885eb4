# SPDX-License-Identifier: MIT
# The emulated driver: what the conformance suite, which also runs on a real GPU, cannot test.
if(WIN32)
  message(STATUS "unit.emulated_* is not built: its environment and its helper are not written for Windows yet")
  return()
endif()

add_executable(emulated_helper emulated_helper.c)
target_compile_definitions(emulated_helper PRIVATE _GNU_SOURCE)
target_include_directories(emulated_helper PRIVATE ${PROJECT_SOURCE_DIR}/src/common)
target_link_libraries(emulated_helper PRIVATE gpuipc_test_support)

# setenv(3)
set_source_files_properties(emulated_test.c PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)
foreach(unit dead entry fault live machine memory more process stream)
  set(sources test_emulated_${unit}.c emulated_test.c)
  if(unit STREQUAL machine)
    list(APPEND sources ${PROJECT_SOURCE_DIR}/src/emulated/machine.c)
  endif()
  gpuipc_add_test(unit emulated_${unit} SOURCES ${sources} LIBRARIES gpuipc_test_support)
  add_dependencies(test_unit_emulated_${unit} gpuipc_emulated emulated_helper)
endforeach()

add_executable(emulated_threads emulated_threads.c)
target_include_directories(emulated_threads PRIVATE ${PROJECT_SOURCE_DIR}/src/common
                           ${PROJECT_SOURCE_DIR}/src/emulated)
target_link_libraries(emulated_threads PRIVATE gpuipc_static)
add_dependencies(emulated_threads gpuipc_emulated)
gpuipc_test_command(command unit.emulated_threads emulated_threads)
add_test(NAME unit.emulated_threads COMMAND ${command})
set_tests_properties(unit.emulated_threads PROPERTIES TIMEOUT 120)

add_test(NAME unit.emulated_symbols
  COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DLIBRARY=$<TARGET_FILE:gpuipc_emulated>
          -P ${CMAKE_CURRENT_SOURCE_DIR}/emulated_symbols.cmake)
