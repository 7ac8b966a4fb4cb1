// SPDX-License-Identifier: MIT
#define PAGE_SUM kvern_page_sum_plain
#include "src/file/container/page_sum_template.h"
