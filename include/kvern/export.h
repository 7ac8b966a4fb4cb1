// SPDX-License-Identifier: MIT
#ifndef KVERN_EXPORT_H
#define KVERN_EXPORT_H

// KVERN_API marks what the shared library exports; everything else is hidden.
//
// KVERN_CHECK marks results that must be looked at: a status that is dropped is a compiler warning,
// because a call that failed has done nothing, and the program goes on as if it had. Where a
// failure really does not matter, say so:
//
//     kvern_status ignored = kvern_cache_trim(cache, row, 1);
//     (void)ignored;
//
// Functions without either mark are static inline: they are compiled into the program, with the
// sizes that structs have in its headers.
#if defined(__GNUC__)
#define KVERN_API __attribute__((visibility("default")))
#define KVERN_CHECK __attribute__((warn_unused_result))
#else
#define KVERN_API
#define KVERN_CHECK
#endif

#endif
