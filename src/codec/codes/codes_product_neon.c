// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_neon.h"

#include "src/codec/codes/codes_product_template.h"
