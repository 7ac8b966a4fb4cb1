// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_HF_DIRECTORY_H
#define KVERN_TESTS_HF_DIRECTORY_H

// A GGUF model with float weights and a byte-level vocabulary, written as a Hugging Face directory:
// config.json, model.safetensors, tokenizer.json, tokenizer_config.json, generation_config.json.

// Makes the directory. `tokenizer`: with the files about texts. The program ends when that fails.
void hf_directory_save(const char *gguf_path, const char *folder, int tokenizer);

// Removes it with all its files.
void hf_directory_remove(const char *folder);

#endif
