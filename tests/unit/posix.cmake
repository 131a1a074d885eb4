# SPDX-License-Identifier: MIT
# What only Linux has: descriptors, raw peers that break the rules, modes and owners, links, abstract names, limits,
# namespaces, fork().
add_executable(posix_helper posix_helper.c posix_helper_fork.c posix_helper_limit.c
                            posix_helper_system.c posix_helper_visit.c posix_helper_fuse.c)
target_compile_definitions(posix_helper PRIVATE _GNU_SOURCE)
target_include_directories(posix_helper PRIVATE ${PROJECT_SOURCE_DIR}/src/common)
target_link_libraries(posix_helper PRIVATE gpuipc_test_support)

unit_program(posix gpuipc_transport_machine)
target_compile_definitions(test_unit_posix PRIVATE _GNU_SOURCE)
add_dependencies(test_unit_posix posix_helper unit_helper)
foreach(noun closer directory file memory packet peer limit process lifeline admission diagnose transport)
  unit_add(posix posix_${noun})
endforeach()
unit_add(posix posix_runtime_directory DRIVER SOURCES test_posix_runtime_directory.c test_posix_removed.c)
target_link_options(test_unit_posix PRIVATE LINKER:--wrap=dup3,--wrap=linkat) # they fail on demand
gpuipc_reliability_row(unit.posix_directory)
gpuipc_reliability_row(unit.posix_admission)

# Apart: it sees another root directory.
gpuipc_add_test(unit posix_facts SOURCES test_posix_facts.c LIBRARIES gpuipc_test_support)
target_compile_definitions(test_unit_posix_facts PRIVATE _GNU_SOURCE)
target_link_options(test_unit_posix_facts PRIVATE LINKER:--wrap=open,--wrap=access,--wrap=opendir)

# Apart: handles are those of Windows in all of it.
gpuipc_add_test(unit posix_other_system SOURCES test_posix_other_system.c LIBRARIES gpuipc_core_fixture)
target_link_options(test_unit_posix_other_system PRIVATE LINKER:--wrap=os_shareable_handle_type)

# Apart: allocations fail, and a lock is as if another thread had it.
gpuipc_add_test(unit posix_fork SOURCES test_posix_fork.c $<TARGET_OBJECTS:gpuipc_fault_allocation>
                LIBRARIES gpuipc_core_fixture)
target_compile_definitions(test_unit_posix_fork PRIVATE _GNU_SOURCE)
target_link_options(test_unit_posix_fork PRIVATE
                    "LINKER:--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=free"
                    LINKER:--wrap=os_mutex_try_lock)
