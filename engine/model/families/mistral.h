// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MISTRAL_H
#define KVERN_ENGINE_MISTRAL_H

// Mistral from Hugging Face directories: llama's layers, with a window in all of them where the
// file states one. Its GGUF files say that they are llama models.

#include "engine/model/families/model_family.h"

extern const model_family mistral_family;

#endif
