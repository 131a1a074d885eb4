# SPDX-License-Identifier: MIT
# The nouns of src/common.

# Those that need no driver.
unit_program(base)
foreach(noun list struct_size range_tree peer_name quota shared_process group_set log_rate object)
  unit_add(base ${noun})
endforeach()
unit_add(base manifest POSIX test_posix_manifest.c) # more ranges than there is memory for
unit_add(base wire SOURCES test_wire.c test_wire_contents.c test_wire_request.c test_ticket.c)
target_link_options(test_unit_base PRIVATE LINKER:--wrap=os_fork_generation,--wrap=os_other_threads_have_ended
                    LINKER:--wrap=os_peer_is_running) # a process that ends meanwhile

# Objects, memory and transports.
unit_program(memory)
foreach(noun context buffer buffer_copy buffer_wrap buffer_find native_dmabuf registry arguments dlpack pointer incoming_memory
        transport_memory transport_names transport_failure)
  unit_add(memory ${noun} DRIVER)
endforeach()
unit_add(memory buffer_memory DRIVER SERIAL)
set(no_room)
if(NOT GPUIPC_SANITIZE AND NOT GPUIPC_TEST_VALGRIND) # these need addresses of their own
  set(no_room POSIX test_posix_no_room.c)
endif()
unit_add(memory native DRIVER ${no_room})
unit_add(memory transport_named)
target_link_options(test_unit_memory PRIVATE LINKER:--wrap=registry_find,--wrap=os_process_id) # another process's memory
# With an IMEX channel, which the emulated driver has only when told so.
set_property(TEST unit.transport_memory unit.transport_failure unit.transport_named APPEND PROPERTY
             ENVIRONMENT GPUIPC_EMULATED_MACHINE=imex=1)
# Once more on a machine without dma-bufs.
gpuipc_test_command(command unit.native_no_dmabuf test_unit_memory --filter "native_dmabuf/*")
add_test(NAME unit.native_no_dmabuf COMMAND ${command})
set_tests_properties(unit.native_no_dmabuf PROPERTIES TIMEOUT 120
                     ENVIRONMENT "GPUIPC_CUDA_DRIVER=emulated;GPUIPC_EMULATED_MACHINE=dma-buf=0")

# Connections, and what is sent over them.
unit_program(message)
foreach(noun incoming listener listener_crowd connection connection_end connection_kept connection_peer handover handover_home)
  unit_add(message ${noun} DRIVER)
endforeach()
unit_add(message admission)
target_link_options(test_unit_message PRIVATE LINKER:--wrap=os_peer_is_running) # a process that ends meanwhile
unit_add(message keep_alive SOURCES test_keep_alive.c test_kept_handles.c)
set_property(TEST unit.keep_alive APPEND PROPERTY ENVIRONMENT GPUIPC_EMULATED_MACHINE=imex=1)

# Points, records, leases and waits.
unit_program(sync)
foreach(noun point point_peer monitor watch ready returns release_wait mark loan loan_drop stream_done wait_handle export_record
        import_record drop_refused)
  unit_add(sync ${noun} DRIVER)
endforeach()
foreach(noun trail point_ways)
  unit_add(sync ${noun})
endforeach()
unit_add(sync interrupt DRIVER POSIX posix_interrupt.c)
unit_add(sync deferred DRIVER POSIX posix_deferred.c)
unit_add(sync drop DRIVER POSIX posix_drop.c)
add_executable(drop_helper drop_helper.c)
target_include_directories(drop_helper PRIVATE ${PROJECT_SOURCE_DIR}/src/common)
target_link_libraries(drop_helper PRIVATE gpuipc_test_support)
add_dependencies(drop_helper gpuipc_emulated)
add_dependencies(test_unit_sync drop_helper)
# Its bounds are of time. Under Wine it keeps them on a machine with nothing else to do (as fast with 20,000 alive as with 20),
# and no longer beside other programs: each system call is a way to Wine's server and back, so that no row of calls goes
# undisturbed, however often it is repeated.
if(NOT WIN32)
  unit_add(sync growth DRIVER SERIAL)
endif()

# Contents, copied through the host.
unit_program(contents)
foreach(noun staging contents contents_end contents_fault contents_left contents_room close buffer_work)
  unit_add(contents ${noun} DRIVER)
endforeach()
set_tests_properties(unit.staging PROPERTIES COST 15)
# How many failures in a row that nothing came of end a row, and how dense the later calls are: a process
# costs more under Wine.
if(WIN32)
  set_source_files_properties(test_contents_fault.c PROPERTIES COMPILE_DEFINITIONS "QUIET_ENOUGH=1;CALLS_ALIKE=1")
else()
  set_source_files_properties(test_contents_fault.c PROPERTIES COMPILE_DEFINITIONS "QUIET_ENOUGH=3;CALLS_ALIKE=2")
endif()

# Channels.
unit_program(channel)
unit_add(channel channel SOURCES test_channel.c test_channel_odd.c test_channel_arguments.c POSIX test_posix_channel_calls.c)
unit_add(channel channel_name SOURCES test_channel_name.c test_channel_name_answer.c)
foreach(noun channel_behind channel_hostile channel_wait)
  unit_add(channel ${noun})
endforeach()
unit_add(channel channel_stream DRIVER)
unit_add(channel channel_turn DRIVER SOURCES test_channel_turn.c test_channel_turn_end.c)
unit_add(channel channel_kernel SOURCES test_channel_kernel.c test_channel_kernel_failure.c)
unit_add(channel errors SOURCES test_errors.c ${system}_errors.c)
set_source_files_properties(${system}_errors.c PROPERTIES COMPILE_DEFINITIONS "${system_definitions}")
target_link_options(test_unit_channel PRIVATE LINKER:--wrap=os_time_unix_ms   # a clock that steps
                    LINKER:--wrap=os_bell_find) # bells that are gone

# Servers, and tickets that are opened.
unit_program(ticket)
unit_add(ticket server DRIVER POSIX test_posix_server_fork.c test_posix_server_limit.c)
unit_add(ticket server_parts DRIVER SOURCES test_server_parts.c test_server_grant.c)
foreach(noun server_clients server_share server_reply)
  unit_add(ticket ${noun} DRIVER)
endforeach()
unit_add(ticket import SOURCES test_import.c test_import_cache.c)
unit_add(ticket ticket_open)
unit_add(ticket ticket_own)
unit_add(ticket ticket_again POSIX test_posix_ticket_again.c)

# Apart: what happens between two steps of a call, or fails there: moment.h.
gpuipc_add_test(unit moment SOURCES test_moment.c test_moment_channel.c test_moment_contents.c moment.c
                LIBRARIES gpuipc_core_fixture)
foreach(call ticket_name_ask os_handle_attributes os_bell_make os_connection_end os_fork_watch object_add_hold os_library_open_path
        os_memory_create os_memory_map os_connection_send channel_list_held channel_still_stands channel_withdraw
        trail_new turn_begin os_poller_add_listener drop_passing_new object_publish os_mutex_try_lock point_await watch_add_slot watch_add_return
        trail_turn_write)
  target_link_options(test_unit_moment PRIVATE LINKER:--wrap=${call})
endforeach()
# Apart: allocations fail on demand, and a server is asked as another process's is.
unit_program(shortage)
target_sources(test_unit_shortage PRIVATE shortage_case.c $<TARGET_OBJECTS:gpuipc_fault_allocation>)
target_link_options(test_unit_shortage PRIVATE
                    LINKER:--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=free
                    LINKER:--wrap=server_find,--wrap=wire_decode_reply
                    LINKER:--wrap=buffer_publish_held)
foreach(noun shortage shortage_points shortage_tickets shortage_asked)
  unit_add(shortage ${noun})
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
  unit_program(selftest)
  target_sources(test_unit_selftest PRIVATE ${PROJECT_SOURCE_DIR}/src/selftest/pattern.c
                 ${PROJECT_SOURCE_DIR}/src/selftest/wrap.c)
  target_include_directories(test_unit_selftest PRIVATE ${PROJECT_SOURCE_DIR}/src/selftest)
  unit_add(selftest selftest_judgement DRIVER)
  unit_add(selftest selftest_wrap)
endif()
