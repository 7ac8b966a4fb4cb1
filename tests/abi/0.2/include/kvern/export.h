// SPDX-License-Identifier: MIT
#ifndef KVERN_EXPORT_H
#define KVERN_EXPORT_H

// KVERN_API marks what the shared library exports; everything else is hidden.
// KVERN_CHECK marks results that must be looked at: a status that is dropped is a compiler warning.
#if defined(__GNUC__)
#define KVERN_API __attribute__((visibility("default")))
#define KVERN_CHECK __attribute__((warn_unused_result))
#else
#define KVERN_API
#define KVERN_CHECK
#endif

#endif
