# SPDX-License-Identifier: MIT
# unit.emulated_symbols: the emulated driver exports cu* and gpuipc_emulated_*, and nothing else;
# unit.emulated_nvml_symbols: and NVML nvml*.
# cmake -DNM=... -DOBJDUMP=... -DWINDOWS=... -DLIBRARY=... -DNAMES=... -DLEAST=... -P emulated_symbols.cmake
if(WINDOWS)
  # The table of names in a DLL, lines such as "	[   3] cuCtxDestroy_v2".
  execute_process(COMMAND ${OBJDUMP} -p ${LIBRARY} OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
  string(FIND "${listing}" "[Ordinal/Name Pointer] Table" start)
  if(start LESS 0)
    message(FATAL_ERROR "${OBJDUMP} shows no table of exports")
  endif()
  string(SUBSTRING "${listing}" ${start} -1 listing)
  string(REPLACE "[" "(" listing "${listing}") # a bracket would keep list items together
  string(REPLACE "]" ")" listing "${listing}")
  string(REGEX MATCHALL "\n\t\\( *[0-9]+\\) [^\n]+" lines "${listing}")
else()
  execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" lines "${listing}")
endif()
set(count 0)
foreach(line IN LISTS lines)
  string(REGEX REPLACE "^.* " "" symbol "${line}")
  math(EXPR count "${count} + 1")
  # Instrumented builds export what their runtime needs.
  if(NOT symbol MATCHES "^(${NAMES}|__(asan|ubsan|gcov|sanitizer|start|stop|odr_asan)[A-Za-z0-9_.]*|mangle_path|_fini|_init)$")
    message(SEND_ERROR "exported by mistake: ${symbol}")
  endif()
endforeach()
if(count LESS LEAST)
  message(SEND_ERROR "only ${count} symbols are exported")
endif()
