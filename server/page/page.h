// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_PAGE_H
#define KVERN_SERVER_PAGE_H

// The page at /: server/page/index.html, which the build puts into the program (cmake/page.cmake).

#include <stddef.h>

extern const unsigned char server_page[];
extern const size_t server_page_bytes;

// The value of the Content-Security-Policy that the page is sent with: it names the page's script
// and style by their hashes, so that nothing else runs, whatever texts the page shows.
extern const char server_page_policy[];

#endif
