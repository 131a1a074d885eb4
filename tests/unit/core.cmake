# SPDX-License-Identifier: MIT
# The nouns of src/common. First those that need no driver.
set(extra_wire test_wire_contents.c test_wire_request.c test_ticket.c ticket_check.c)
foreach(unit admission list wire manifest struct_size range_tree peer_name object quota shared_process group_set)
  gpuipc_add_test(unit ${unit} SOURCES test_${unit}.c ${extra_${unit}} LIBRARIES gpuipc_test_support)
endforeach()
target_link_options(test_unit_object PRIVATE LINKER:--wrap=os_fork_generation,--wrap=os_other_threads_have_ended)
target_link_options(test_unit_shared_process PRIVATE LINKER:--wrap=os_peer_is_running) # who ends meanwhile
target_link_options(test_unit_admission PRIVATE LINKER:--wrap=os_peer_is_running) # likewise

add_library(gpuipc_core_fixture STATIC core_fixture.c ${system}_environment.c)
set_source_files_properties(${system}_environment.c PROPERTIES COMPILE_DEFINITIONS
                            "${system_definitions}")
target_include_directories(gpuipc_core_fixture PRIVATE ${PROJECT_SOURCE_DIR}/src/common
                           ${PROJECT_SOURCE_DIR}/src/emulated)
target_link_libraries(gpuipc_core_fixture PUBLIC gpuipc_test_support PkgConfig::CRITERION)
add_dependencies(gpuipc_core_fixture gpuipc_emulated)

# These run unchanged on a real GPU.
foreach(unit context buffer buffer_copy buffer_wrap native native_dmabuf incoming listener listener_crowd
        connection connection_end connection_kept connection_peer arguments point point_peer watch handover
        handover_home registry)
  gpuipc_add_test(unit ${unit} DRIVER SOURCES test_${unit}.c LIBRARIES gpuipc_core_fixture)
endforeach()

# Its bounds are of time. Under Wine it keeps them on a machine with nothing else to do (as fast with 20,000 alive as with 20),
# and no longer beside other programs: each system call is a way to Wine's server and back, so that no row of calls goes
# undisturbed, however often it is repeated.
if(NOT WIN32)
  gpuipc_add_test(unit growth DRIVER SERIAL SOURCES test_growth.c LIBRARIES gpuipc_core_fixture)
endif()

gpuipc_add_test(unit export_record DRIVER SOURCES test_export_record.c test_import_record.c test_deferred.c stream_gate.c
                LIBRARIES gpuipc_core_fixture)
gpuipc_add_test(unit drop DRIVER SOURCES test_drop.c test_drop_refused.c drop_ends.c stream_gate.c LIBRARIES gpuipc_core_fixture)
add_executable(drop_helper drop_helper.c)
target_include_directories(drop_helper PRIVATE ${PROJECT_SOURCE_DIR}/src/common)
target_link_libraries(drop_helper PRIVATE gpuipc_test_support)
add_dependencies(drop_helper gpuipc_emulated)
add_dependencies(test_unit_drop drop_helper)
foreach(unit ready returns release_wait mark loan)
  gpuipc_add_test(unit ${unit} DRIVER SOURCES test_${unit}.c stream_gate.c LIBRARIES gpuipc_core_fixture)
endforeach()
foreach(unit loan_drop stream_done)
  gpuipc_add_test(unit ${unit} DRIVER SOURCES test_${unit}.c opened_case.c stream_gate.c LIBRARIES gpuipc_core_fixture)
endforeach()
gpuipc_add_test(unit interrupt DRIVER SOURCES test_interrupt.c interrupt_calls.c stream_gate.c ticket_server.c
                LIBRARIES gpuipc_core_fixture)
gpuipc_add_test(unit wait_handle DRIVER SOURCES test_wait_handle.c stream_gate.c ${system}_native_ready.c
                LIBRARIES gpuipc_core_fixture)
gpuipc_add_test(unit staging DRIVER SOURCES test_staging.c buffer_marks.c LIBRARIES gpuipc_core_fixture)
foreach(unit contents contents_end contents_fault contents_left contents_room close buffer_work)
  gpuipc_add_test(unit ${unit} DRIVER SOURCES test_${unit}.c contents_ends.c buffer_marks.c stream_gate.c
                  LIBRARIES gpuipc_core_fixture)
endforeach()
# How many failures in a row that nothing came of end a row, and how dense the later calls are: a process
# costs more under Wine.
if(WIN32)
  target_compile_definitions(test_unit_contents_fault PRIVATE QUIET_ENOUGH=1 CALLS_ALIKE=1)
else()
  target_compile_definitions(test_unit_contents_fault PRIVATE QUIET_ENOUGH=3 CALLS_ALIKE=2)
endif()

foreach(unit pointer transport_memory transport_names transport_failure incoming_memory)
  gpuipc_add_test(unit ${unit} DRIVER SOURCES test_${unit}.c own_kinds.c LIBRARIES gpuipc_core_fixture)
endforeach()

# Once more on a machine without dma-bufs.
gpuipc_test_command(command unit.native_no_dmabuf test_unit_native_dmabuf)
add_test(NAME unit.native_no_dmabuf COMMAND ${command})
set_tests_properties(unit.native_no_dmabuf PROPERTIES TIMEOUT 120
                     ENVIRONMENT "GPUIPC_CUDA_DRIVER=emulated;GPUIPC_EMULATED_MACHINE=dma-buf=0")

# With an IMEX channel, which the emulated driver has only when told so.
set_property(TEST unit.transport_memory unit.transport_failure APPEND PROPERTY ENVIRONMENT GPUIPC_EMULATED_MACHINE=imex=1)

gpuipc_add_test(unit transport_named SOURCES test_transport_named.c LIBRARIES gpuipc_core_fixture)
target_link_options(test_unit_transport_named PRIVATE LINKER:--wrap=registry_find,--wrap=os_process_id)
set_property(TEST unit.transport_named APPEND PROPERTY ENVIRONMENT GPUIPC_EMULATED_MACHINE=imex=1)

gpuipc_add_test(unit log_rate SOURCES test_log_rate.c LIBRARIES gpuipc_test_support)
gpuipc_add_test(unit dlpack DRIVER SOURCES test_dlpack.c LIBRARIES gpuipc_core_fixture)
gpuipc_add_test(unit buffer_find DRIVER SOURCES test_buffer_find.c LIBRARIES gpuipc_core_fixture)
gpuipc_add_test(unit buffer_memory DRIVER SERIAL SOURCES test_buffer_memory.c
                LIBRARIES gpuipc_core_fixture)

if(NOT WIN32)
  # More ranges than there is memory for.
  target_sources(test_unit_manifest PRIVATE test_posix_manifest.c)
  if(NOT GPUIPC_SANITIZE AND NOT GPUIPC_TEST_VALGRIND) # these need addresses of their own
    target_sources(test_unit_native PRIVATE test_posix_no_room.c)
    set_source_files_properties(test_posix_no_room.c PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)
  endif()
  set_source_files_properties(test_posix_manifest.c PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)
  # As if handles were those of Windows.
  gpuipc_add_test(unit posix_other_system SOURCES test_posix_other_system.c own_kinds.c LIBRARIES gpuipc_core_fixture)
  target_link_options(test_unit_posix_other_system PRIVATE LINKER:--wrap=os_shareable_handle_type)
  # What only Linux has: modes of directories, links, abstract names.
  gpuipc_add_test(unit posix_runtime_directory DRIVER SOURCES test_posix_runtime_directory.c test_posix_removed.c
                  LIBRARIES gpuipc_core_fixture)
  target_compile_definitions(test_unit_posix_runtime_directory PRIVATE _GNU_SOURCE)
  target_link_options(test_unit_posix_runtime_directory PRIVATE LINKER:--wrap=dup3,--wrap=linkat)
  gpuipc_add_test(unit posix_lifeline SOURCES test_posix_lifeline.c LIBRARIES gpuipc_core_fixture)
  target_compile_definitions(test_unit_posix_lifeline PRIVATE _GNU_SOURCE)
  gpuipc_add_test(unit posix_admission SOURCES test_posix_admission.c LIBRARIES gpuipc_core_fixture)
  target_compile_definitions(test_unit_posix_admission PRIVATE _GNU_SOURCE)
  add_dependencies(test_unit_posix_admission posix_helper)
  gpuipc_reliability_row(unit.posix_admission)
  target_sources(test_unit_export_record PRIVATE posix_deferred.c)
  target_sources(test_unit_drop PRIVATE posix_drop.c)
  target_sources(test_unit_interrupt PRIVATE posix_interrupt.c)
  set_source_files_properties(posix_deferred.c posix_drop.c posix_interrupt.c PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)
endif()

# Two programs: under Wine, Criterion's runner has crashed after its last test where a program ran for more than a minute.
gpuipc_add_test(unit server DRIVER SOURCES test_server.c test_server_clients.c test_server_parts.c test_server_grant.c asker.c
                ${system}_native_ready.c LIBRARIES gpuipc_core_fixture)
gpuipc_add_test(unit server_share DRIVER SOURCES test_server_share.c test_server_reply.c asker.c own_kinds.c stream_gate.c
                LIBRARIES gpuipc_core_fixture)
if(NOT WIN32)
  target_sources(test_unit_server PRIVATE test_posix_server_fork.c test_posix_server_limit.c)
  set_source_files_properties(test_posix_server_fork.c test_posix_server_limit.c PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)
endif()

if(NOT WIN32)
  gpuipc_add_test(unit posix_fork SOURCES test_posix_fork.c asker.c buffer_marks.c channel_case.c contents_ends.c ticket_server.c
                  $<TARGET_OBJECTS:gpuipc_fault_allocation> LIBRARIES gpuipc_core_fixture)
  target_compile_definitions(test_unit_posix_fork PRIVATE _GNU_SOURCE)
  target_link_options(test_unit_posix_fork PRIVATE
                      "LINKER:--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=free"
                      LINKER:--wrap=os_mutex_try_lock) # as if another thread had it
endif()

# These need machines of other kinds, or calls that fail on demand.
gpuipc_add_test(unit keep_alive SOURCES test_keep_alive.c test_kept_handles.c
                LIBRARIES gpuipc_core_fixture)
set_property(TEST unit.keep_alive APPEND PROPERTY ENVIRONMENT GPUIPC_EMULATED_MACHINE=imex=1)
set(ticket_again)
set(channel_calls)
if(NOT WIN32)
  set(ticket_again test_posix_ticket_again.c)
  set(channel_calls test_posix_channel_calls.c)
  set_source_files_properties(${ticket_again} ${channel_calls} PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)
endif()
gpuipc_add_test(unit import SOURCES test_import.c test_import_cache.c import_case.c test_ticket_open.c test_ticket_again.c test_ticket_own.c stream_gate.c ticket_server.c
                ${ticket_again} LIBRARIES gpuipc_core_fixture)
gpuipc_add_test(unit channel SOURCES test_channel.c test_channel_hostile.c test_channel_name.c test_channel_wait.c test_channel_odd.c
                test_channel_arguments.c test_channel_name_answer.c
                ${channel_calls} ${system}_native_ready.c channel_case.c stream_gate.c LIBRARIES gpuipc_core_fixture)
target_link_options(test_unit_channel PRIVATE LINKER:--wrap=os_time_unix_ms   # a clock that steps
                    LINKER:--wrap=os_bell_find) # bells that are gone
gpuipc_add_test(unit channel_behind SOURCES test_channel_behind.c channel_case.c stream_gate.c
                LIBRARIES gpuipc_core_fixture)
gpuipc_add_test(unit channel_stream DRIVER SOURCES test_channel_stream.c channel_case.c stream_gate.c
                LIBRARIES gpuipc_core_fixture)
gpuipc_add_test(unit channel_turn DRIVER SOURCES test_channel_turn.c test_channel_turn_end.c turn_case.c channel_case.c stream_gate.c
                LIBRARIES gpuipc_core_fixture)
gpuipc_add_test(unit channel_kernel SOURCES test_channel_kernel.c test_channel_kernel_failure.c kernel_case.c channel_case.c stream_gate.c
                LIBRARIES gpuipc_core_fixture)
# What happens between two steps of a call, or fails there: moment.h.
gpuipc_add_test(unit moment SOURCES test_moment.c test_moment_channel.c test_moment_contents.c moment.c kernel_case.c
                channel_case.c contents_ends.c buffer_marks.c stream_gate.c
                LIBRARIES gpuipc_core_fixture)
foreach(call ticket_name_ask os_handle_attributes os_bell_make os_connection_end os_fork_watch object_add_hold os_library_open_path
        os_memory_create os_memory_map os_connection_send channel_list_held channel_still_stands channel_withdraw
        trail_new turn_begin os_poller_add_listener drop_passing_new object_publish os_mutex_try_lock point_await watch_add_slot watch_add_return
        trail_turn_write)
  target_link_options(test_unit_moment PRIVATE LINKER:--wrap=${call})
endforeach()
gpuipc_add_test(unit errors SOURCES test_errors.c channel_case.c ticket_check.c LIBRARIES gpuipc_core_fixture)
target_sources(test_unit_errors PRIVATE ${system}_errors.c)
set_source_files_properties(${system}_errors.c PROPERTIES COMPILE_DEFINITIONS "${system_definitions}")
gpuipc_add_test(unit shortage SOURCES test_shortage.c test_shortage_points.c test_shortage_tickets.c test_shortage_asked.c shortage_case.c
                contents_ends.c buffer_marks.c channel_case.c own_kinds.c stream_gate.c
                $<TARGET_OBJECTS:gpuipc_fault_allocation> LIBRARIES gpuipc_core_fixture)
target_link_options(test_unit_shortage PRIVATE
                    LINKER:--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=free # they fail on demand
                    LINKER:--wrap=server_find,--wrap=wire_decode_reply # a server that is asked as another process's is
                    LINKER:--wrap=buffer_publish_held)
gpuipc_add_test(unit trail SOURCES test_trail.c stream_gate.c LIBRARIES gpuipc_core_fixture)
gpuipc_add_test(unit point_ways SOURCES test_point_ways.c LIBRARIES gpuipc_core_fixture)
gpuipc_add_test(unit driver SOURCES test_driver.c LIBRARIES gpuipc_core_fixture)
gpuipc_add_test(unit device DRIVER SOURCES test_device.c LIBRARIES gpuipc_core_fixture)

# Libraries that are no usable driver.
foreach(number 1 2 3 4 5 6)
  set(stand_in gpuipc_stand_in_${number})
  add_library(${stand_in} MODULE stand_in_driver.c)
  target_compile_definitions(${stand_in} PRIVATE STAND_IN=${number})
  target_include_directories(${stand_in} PRIVATE ${PROJECT_SOURCE_DIR}/src/common)
  set_target_properties(${stand_in} PROPERTIES PREFIX "" OUTPUT_NAME gpuipc-stand-in-${number}
                        SUFFIX ${CMAKE_SHARED_LIBRARY_SUFFIX})
  add_dependencies(test_unit_driver ${stand_in})
endforeach()

foreach(program core_threads server_threads turn_threads)
  add_executable(${program} ${program}.c)
  target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}/src/common)
  target_link_libraries(${program} PRIVATE gpuipc_test_support)
  add_dependencies(${program} gpuipc_emulated)
  gpuipc_test_command(command unit.${program} ${program})
  add_test(NAME unit.${program} COMMAND ${command})
  set_tests_properties(unit.${program} PROPERTIES TIMEOUT 120)
endforeach()

# The judgements of gpuipc-selftest, apart from the tool: it never sees a wrong word on its own.
if(GPUIPC_BUILD_SELFTEST)
  gpuipc_add_test(unit selftest_judgement DRIVER
                  SOURCES test_selftest_judgement.c ${PROJECT_SOURCE_DIR}/src/selftest/pattern.c
                  LIBRARIES gpuipc_core_fixture)
  target_include_directories(test_unit_selftest_judgement PRIVATE ${PROJECT_SOURCE_DIR}/src/selftest)
  gpuipc_add_test(unit selftest_wrap SOURCES test_selftest_wrap.c ${PROJECT_SOURCE_DIR}/src/selftest/wrap.c)
  target_include_directories(test_unit_selftest_wrap PRIVATE ${PROJECT_SOURCE_DIR}/src/selftest)
endif()
