// SPDX-License-Identifier: MIT
#ifndef KVERN_VERSION_H
#define KVERN_VERSION_H

// The version of the headers. The build reads it from here; it is written nowhere else.
#define KVERN_VERSION_MAJOR 0
#define KVERN_VERSION_MINOR 2
#define KVERN_VERSION_PATCH 0

#endif
