# SPDX-License-Identifier: MIT
# Libraries for unit.win32_library that load in one place, or in none: the one that the second needs is
# not beside it.
add_library(win32_dll_plain SHARED win32_dll_plain.c)
add_library(win32_dll_needs MODULE win32_dll_needs.c)
add_library(win32_dll_refuses MODULE win32_dll_refuses.c)
set_target_properties(win32_dll_plain win32_dll_needs win32_dll_refuses PROPERTIES PREFIX "")
set_target_properties(win32_dll_plain PROPERTIES
                      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/plain)
target_link_libraries(win32_dll_needs PRIVATE win32_dll_plain)
foreach(library win32_dll_plain win32_dll_needs win32_dll_refuses)
  target_compile_definitions(${library} PRIVATE ${system_definitions})
  add_dependencies(test_unit_win32 ${library})
endforeach()
