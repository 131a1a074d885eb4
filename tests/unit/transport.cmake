# SPDX-License-Identifier: MIT
# What transports work, how fast, and why not: asked, tried, measured, kept.
add_library(gpuipc_transport_machine STATIC transport_machine.c)
target_include_directories(gpuipc_transport_machine PRIVATE ${PROJECT_SOURCE_DIR}/src/common
                           ${PROJECT_SOURCE_DIR}/src/emulated)
target_link_libraries(gpuipc_transport_machine PUBLIC gpuipc_core_fixture)
add_dependencies(gpuipc_transport_machine gpuipc_emulated_nvml)

unit_program(query gpuipc_transport_machine)
# These run unchanged on a real GPU.
foreach(noun device transport_query topology measure)
  unit_add(query ${noun} DRIVER)
endforeach()
if(GPUIPC_SANITIZE OR GPUIPC_COVERAGE OR CMAKE_CROSSCOMPILING)
  set_source_files_properties(test_transport_query.c PROPERTIES COMPILE_DEFINITIONS QUICK_NS=100000)
endif()
# This needs a real one, alone: whether the figures are right.
unit_add(query transport_speed DRIVER SERIAL)

# These need machines of other kinds, or calls that fail on demand.
foreach(noun driver transport_probe transport_select nvml figures missing_group diagnose_rules diagnose)
  unit_add(query ${noun})
endforeach()

# Libraries that are no usable driver.
foreach(number 1 2 3 4 5 6)
  set(stand_in gpuipc_stand_in_${number})
  add_library(${stand_in} MODULE stand_in_driver.c)
  target_compile_definitions(${stand_in} PRIVATE STAND_IN=${number})
  target_include_directories(${stand_in} PRIVATE ${PROJECT_SOURCE_DIR}/src/common)
  set_target_properties(${stand_in} PROPERTIES PREFIX "" OUTPUT_NAME gpuipc-stand-in-${number}
                        SUFFIX ${CMAKE_SHARED_LIBRARY_SUFFIX})
  add_dependencies(test_unit_query ${stand_in})
endforeach()

set_tests_properties(unit.measure unit.diagnose PROPERTIES COST 30)

# Apart: what happens at a lock, or in place of an answer of the system.
gpuipc_add_test(unit meanwhile SOURCES test_meanwhile.c LIBRARIES gpuipc_transport_machine)
target_link_options(test_unit_meanwhile PRIVATE
                    LINKER:--wrap=os_mutex_lock,--wrap=os_static_mutex_lock,--wrap=os_connection_open
                    LINKER:--wrap=server_find,--wrap=os_connection_send,--wrap=os_poller_wait,--wrap=os_own_user,--wrap=os_handle_duplicate
                    LINKER:--wrap=os_library_open_path,--wrap=os_library_symbol)

if(NOT WIN32)
  # Once more as on a machine of a GPU, whose NVML keeps descriptors open. (Windows has its own in System32 alone.)
  add_library(unit_stand_in_nvml MODULE posix_stand_in_nvml.c)
  target_include_directories(unit_stand_in_nvml PRIVATE ${PROJECT_SOURCE_DIR}/src/common)
  set_target_properties(unit_stand_in_nvml PROPERTIES PREFIX "" OUTPUT_NAME libnvidia-ml SUFFIX .so.1
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/stand-in-nvml)
  set_source_files_properties(posix_stand_in_nvml.c PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)
  add_dependencies(test_unit_query unit_stand_in_nvml)
  gpuipc_test_command(command unit.nvml_installed test_unit_query --filter "nvml/*")
  add_test(NAME unit.nvml_installed COMMAND ${command})
  set_tests_properties(unit.nvml_installed PROPERTIES TIMEOUT 120 ENVIRONMENT GPUIPC_CUDA_DRIVER=emulated
    ENVIRONMENT_MODIFICATION
    LD_LIBRARY_PATH=path_list_prepend:${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/stand-in-nvml)
endif()
