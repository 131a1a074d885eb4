# SPDX-License-Identifier: MIT
# Fast paths stay fast: their instructions are counted, where there is valgrind, and only as they are delivered.
find_program(GPUIPC_VALGRIND valgrind)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR CMAKE_CROSSCOMPILING OR GPUIPC_SANITIZE OR GPUIPC_COVERAGE)
  return()
endif()
if(NOT GPUIPC_VALGRIND)
  message(STATUS "bench.instructions is left out: there is no valgrind")
else()
  add_executable(bench_instructions bench_call.c instructions.c)
  target_include_directories(bench_instructions PRIVATE ${PROJECT_SOURCE_DIR}/src/common
                             ${PROJECT_SOURCE_DIR}/src/emulated)
  target_link_libraries(bench_instructions PRIVATE gpuipc_test_support gpuipc_static)
  set_target_properties(bench_instructions PROPERTIES GPUIPC_MEASURES_CALLS ON)
  target_link_options(bench_instructions PRIVATE -Wl,--wrap=os_peer_self)
  add_dependencies(bench_instructions gpuipc_emulated)
  add_test(NAME bench.instructions COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/instructions_check ${GPUIPC_VALGRIND}
           $<TARGET_FILE:bench_instructions> ${CMAKE_CURRENT_SOURCE_DIR}/instructions.txt
           ${CMAKE_CURRENT_BINARY_DIR}/instructions)
  set_tests_properties(bench.instructions PROPERTIES TIMEOUT 120)
endif()
