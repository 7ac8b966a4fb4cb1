// SPDX-License-Identifier: MIT
#ifndef KVERN_VERSION_H
#define KVERN_VERSION_H

// The version of the headers. The build reads it from here; it is written nowhere else.
//
// A program that wants the version of the library it runs with, which may be a later one, asks
// kvern_version (kvern/kvern.h). To compile with releases that have something (it is marked "since
// 0.3", say) and with those that do not:
//
//     #if KVERN_VERSION_MAJOR > 0 || KVERN_VERSION_MINOR >= 3
//
// While the major version is 0, releases of one minor version have one SONAME, and another minor
// version has another one. From 1.0 on that holds for major versions.
#define KVERN_VERSION_MAJOR 0
#define KVERN_VERSION_MINOR 2
#define KVERN_VERSION_PATCH 0

#endif
