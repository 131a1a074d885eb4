# SPDX-License-Identifier: MIT
# What transports work, how fast, and why not: asked, tried, measured, kept.
add_library(gpuipc_transport_machine STATIC transport_machine.c)
target_include_directories(gpuipc_transport_machine PRIVATE ${PROJECT_SOURCE_DIR}/src/common
                           ${PROJECT_SOURCE_DIR}/src/emulated)
target_link_libraries(gpuipc_transport_machine PUBLIC gpuipc_core_fixture)
add_dependencies(gpuipc_transport_machine gpuipc_emulated_nvml)

# These run unchanged on a real GPU.
foreach(unit transport_query topology measure)
  gpuipc_add_test(unit ${unit} DRIVER SOURCES test_${unit}.c LIBRARIES gpuipc_transport_machine)
endforeach()
if(GPUIPC_SANITIZE OR GPUIPC_COVERAGE OR CMAKE_CROSSCOMPILING)
  target_compile_definitions(test_unit_transport_query PRIVATE QUICK_NS=100000)
endif()

# These need machines of other kinds, or calls that fail on demand.
foreach(unit transport_probe transport_select nvml figures)
  gpuipc_add_test(unit ${unit} SOURCES test_${unit}.c LIBRARIES gpuipc_transport_machine)
endforeach()

# What happens at a lock, or in place of an answer of the system.
gpuipc_add_test(unit meanwhile SOURCES test_meanwhile.c asker.c channel_case.c stream_gate.c ticket_server.c
                LIBRARIES gpuipc_transport_machine)
target_link_options(test_unit_meanwhile PRIVATE
                    LINKER:--wrap=os_mutex_lock,--wrap=os_static_mutex_lock,--wrap=os_connection_open
                    LINKER:--wrap=server_find,--wrap=os_connection_send,--wrap=os_poller_wait,--wrap=os_own_user,--wrap=os_handle_duplicate
                    LINKER:--wrap=os_peer_is_running,--wrap=os_library_open_path,--wrap=os_library_symbol)

gpuipc_add_test(unit missing_group SOURCES test_missing_group.c own_kinds.c contents_ends.c buffer_marks.c
                LIBRARIES gpuipc_transport_machine)

gpuipc_add_test(unit diagnose_rules SOURCES test_diagnose_rules.c LIBRARIES gpuipc_transport_machine)
gpuipc_add_test(unit diagnose SOURCES test_diagnose.c LIBRARIES gpuipc_transport_machine)

# This needs a real one, alone: whether the figures are right.
gpuipc_add_test(unit transport_speed DRIVER SERIAL SOURCES test_transport_speed.c
                LIBRARIES gpuipc_transport_machine)

if(NOT WIN32)
  # Once more as on a machine of a GPU, whose NVML keeps descriptors open. (Windows has its own in System32 alone.)
  add_library(unit_stand_in_nvml MODULE posix_stand_in_nvml.c)
  target_include_directories(unit_stand_in_nvml PRIVATE ${PROJECT_SOURCE_DIR}/src/common)
  set_target_properties(unit_stand_in_nvml PROPERTIES PREFIX "" OUTPUT_NAME libnvidia-ml SUFFIX .so.1
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/stand-in-nvml)
  set_source_files_properties(posix_stand_in_nvml.c PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)
  add_dependencies(test_unit_nvml unit_stand_in_nvml)
  gpuipc_test_command(command unit.nvml_installed test_unit_nvml)
  add_test(NAME unit.nvml_installed COMMAND ${command})
  set_tests_properties(unit.nvml_installed PROPERTIES TIMEOUT 120 ENVIRONMENT GPUIPC_CUDA_DRIVER=emulated
    ENVIRONMENT_MODIFICATION
    LD_LIBRARY_PATH=path_list_prepend:${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/stand-in-nvml)

  # Limits, namespaces and filters.
  gpuipc_add_test(unit posix_diagnose SOURCES test_posix_diagnose.c LIBRARIES gpuipc_transport_machine)
  target_compile_definitions(test_unit_posix_diagnose PRIVATE _GNU_SOURCE)
  target_include_directories(test_unit_posix_diagnose PRIVATE ${PROJECT_SOURCE_DIR}/src/posix)

  # The limit of descriptors.
  gpuipc_add_test(unit posix_transport SOURCES test_posix_transport.c
                  LIBRARIES gpuipc_transport_machine)
  target_compile_definitions(test_unit_posix_transport PRIVATE _GNU_SOURCE)
endif()
