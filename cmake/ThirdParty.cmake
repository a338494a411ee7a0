# Every library that is not ours, as an imported target. Nothing else in the build names one.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(CURL REQUIRED)
find_package(spdlog REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)

function(celld_pkg_config target prefix)
  pkg_check_modules(${prefix} REQUIRED IMPORTED_TARGET ${ARGN})
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_link_libraries(${target} INTERFACE PkgConfig::${prefix})
endfunction()
celld_pkg_config(lz4::lz4 LZ4 liblz4)
celld_pkg_config(zstd::zstd ZSTD libzstd)
celld_pkg_config(brotli::brotli BROTLI libbrotlienc libbrotlidec)
celld_pkg_config(icu::icu ICU icu-uc icu-i18n)

# Boost, headers only. Asio, Beast and Boost.JSON are compiled once, by the one file that includes
# their <.../src.hpp>: src/base/boost_json.cc, src/world/asio.cc, src/net/beast.cc.
find_path(CELLD_BOOST_INCLUDE boost/asio.hpp REQUIRED)
add_library(celld_boost INTERFACE)
target_include_directories(celld_boost SYSTEM INTERFACE ${CELLD_BOOST_INCLUDE})
target_compile_definitions(celld_boost INTERFACE
  BOOST_ALL_NO_LIB BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_SEPARATE_COMPILATION
  BOOST_BEAST_SEPARATE_COMPILATION)
target_link_libraries(celld_boost INTERFACE Threads::Threads)

# V8, from Debian's libnode: installed, or unpacked in .deps/v8 by tools/setup, or elsewhere.
set(CELLD_V8_ROOT "" CACHE PATH "where usr/include/nodejs/deps/v8 and usr/lib of a V8 are")
set(v8_roots ${CELLD_V8_ROOT} ${CMAKE_SOURCE_DIR}/.deps/v8 /)
list(TRANSFORM v8_roots APPEND /usr/include/nodejs/deps/v8/include OUTPUT_VARIABLE v8_includes)
list(TRANSFORM v8_roots APPEND /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} OUTPUT_VARIABLE v8_libs)
find_path(CELLD_V8_INCLUDE v8.h PATHS ${v8_includes} NO_DEFAULT_PATH REQUIRED NO_CACHE)
find_library(CELLD_V8_LIBRARY node PATHS ${v8_libs} NO_DEFAULT_PATH REQUIRED NO_CACHE)
message(STATUS "V8: ${CELLD_V8_LIBRARY}")
add_library(v8::v8 SHARED IMPORTED GLOBAL)
set_target_properties(v8::v8 PROPERTIES
  IMPORTED_LOCATION ${CELLD_V8_LIBRARY}
  INTERFACE_INCLUDE_DIRECTORIES ${CELLD_V8_INCLUDE}
  INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${CELLD_V8_INCLUDE})
target_link_libraries(v8::v8 INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

# SQLite, from the source that the better-sqlite3 package carries.
set(sqlite_source ${CMAKE_SOURCE_DIR}/node_modules/better-sqlite3/deps/sqlite3)
if(NOT EXISTS ${sqlite_source}/sqlite3.c)
  message(FATAL_ERROR "node_modules is missing: run tools/setup first")
endif()
include(sqlite_row_counters)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sqlite_source}/sqlite3.c)
celld_patch_sqlite(${sqlite_source}/sqlite3.c ${CMAKE_BINARY_DIR}/gen/sqlite3.c)
add_library(celld_sqlite3 STATIC ${CMAKE_BINARY_DIR}/gen/sqlite3.c)
target_include_directories(celld_sqlite3 SYSTEM PUBLIC ${sqlite_source})
target_compile_options(celld_sqlite3 PRIVATE -w)
if(CELLD_SANITIZE MATCHES "undefined")  # watched by its own authors; costs a minute to compile
  target_compile_options(celld_sqlite3 PRIVATE -fno-sanitize=undefined)
endif()
target_compile_definitions(celld_sqlite3 PRIVATE
  SQLITE_THREADSAFE=2 SQLITE_DEFAULT_MEMSTATUS=0 SQLITE_DQS=0 SQLITE_ENABLE_BATCH_ATOMIC_WRITE
  SQLITE_ENABLE_FTS5 SQLITE_ENABLE_RTREE SQLITE_ENABLE_MATH_FUNCTIONS SQLITE_ENABLE_STAT4
  SQLITE_ENABLE_DBSTAT_VTAB SQLITE_ENABLE_DBPAGE_VTAB
  SQLITE_ENABLE_STMTVTAB
  SQLITE_OMIT_SHARED_CACHE SQLITE_OMIT_DEPRECATED SQLITE_OMIT_AUTOINIT
  SQLITE_LIKE_DOESNT_MATCH_BLOBS SQLITE_MAX_EXPR_DEPTH=0 SQLITE_USE_ALLOCA SQLITE_STRICT_SUBTYPE=1
  SQLITE_UNTESTABLE)
# These also declare functions in sqlite3.h.
target_compile_definitions(celld_sqlite3 PUBLIC
  SQLITE_ENABLE_PREUPDATE_HOOK SQLITE_ENABLE_SESSION SQLITE_ENABLE_SNAPSHOT
  SQLITE_ENABLE_COLUMN_METADATA)
target_link_libraries(celld_sqlite3 PUBLIC m ${CMAKE_DL_LIBS} Threads::Threads)
