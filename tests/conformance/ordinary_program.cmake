# SPDX-License-Identifier: MIT
# conformance.ordinary_program: a program that knows nothing of gpuipc, built against NVIDIA's own
# cuda.h and linked with -lcuda, runs on the emulated driver where that is found as libcuda.so.1.
if(WIN32)
  message(STATUS "conformance.ordinary_program is left out: it needs a CUDA toolkit's cuda.lib, which a build for Windows from Linux has not")
  return()
endif()

include(${PROJECT_SOURCE_DIR}/tests/cuda_toolkit.cmake)
if(NOT GPUIPC_CUDA_INCLUDE_DIR OR NOT GPUIPC_CUDA_STUB)
  message(STATUS "conformance.ordinary_program is left out: it needs a CUDA toolkit's cuda.h and stubs/libcuda.so")
  return()
endif()

add_executable(ordinary_program ordinary_program.c)
target_include_directories(ordinary_program SYSTEM PRIVATE ${GPUIPC_CUDA_INCLUDE_DIR})
target_link_libraries(ordinary_program PRIVATE ${GPUIPC_CUDA_STUB})
# No path to the stub, which answers CUDA_ERROR_STUB_LIBRARY to everything.
set_target_properties(ordinary_program PROPERTIES SKIP_BUILD_RPATH ON)
add_dependencies(ordinary_program gpuipc_emulated)

gpuipc_test_command(_command conformance.ordinary_program ordinary_program)
add_test(NAME conformance.ordinary_program COMMAND ${_command})
set_tests_properties(conformance.ordinary_program PROPERTIES TIMEOUT 60
                     ENVIRONMENT_MODIFICATION LD_LIBRARY_PATH=path_list_prepend:${PROJECT_BINARY_DIR}/bin/emulated)
