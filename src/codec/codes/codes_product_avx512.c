// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_avx512.h"

#include "src/codec/codes/codes_product_template.h"
