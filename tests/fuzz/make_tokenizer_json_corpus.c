// SPDX-License-Identifier: MIT
// Writes the seeds of the fuzz target tokenizer_json into a folder: small files with every part
// that a tokenizer.json has. `make_tokenizer_json_corpus tests/fuzz/corpus/tokenizer_json`

#include <stdio.h>
#include <string.h>

#define ADDED(id, text, flags)                                                                     \
    "{\"id\":" #id ",\"content\":\"" text "\",\"single_word\":false,\"lstrip\":false," flags "}"
#define SPECIAL "\"rstrip\":false,\"normalized\":false,\"special\":true"
#define NORMALIZED "\"rstrip\":true,\"normalized\":true,\"special\":false"

static const struct seed {
    const char *name, *config, *tokenizer;
} SEEDS[] = {
    {"bytes",
     "{\"bos_token\":\"<s>\",\"add_bos_token\":true,\"chat_template\":\"{{x}}<|im_end|>\"}",
     "{\"added_tokens\":[" ADDED(8, "<s>", SPECIAL) "," ADDED(
         9, "ab a",
         NORMALIZED) "],"
                     "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
                     "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,3}"
                     "|[^\\\\s]+\"},"
                     "\"behavior\":\"MergedWithNext\",\"invert\":true},{\"type\":\"Digits\","
                     "\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                     "true,"
                     "\"use_regex\":true}]},\"decoder\":{\"type\":\"ByteLevel\"},\"post_"
                     "processor\":{\"type\":"
                     "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},{"
                     "\"Sequence\":"
                     "{\"id\":\"A\"}}],\"special_tokens\":{\"<s>\":{\"ids\":[8]}}},\"model\":{"
                     "\"type\":\"BPE\","
                     "\"unk_token\":\"<\",\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"ab\":"
                     "2,"
                     "\"\u0120\":3,\"\u0120ab\":4,\"<\":5,\"s\":6,\"1\":7},\"merges\":[\"a b\","
                     "[\"\u0120\",\"ab\"]]}}"},
    {"pieces", "",
     "{\"version\":\"1.0\",\"added_tokens\":[" ADDED(
         0, "<unk>",
         SPECIAL) "],\"normalizer\":"
                  "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
                  "\"\u2581\"},"
                  "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}]},"
                  "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_"
                  "scheme\":"
                  "\"first\",\"split\":true},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{"
                  "\"type\":"
                  "\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":\" \"},{\"type\":"
                  "\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
                  "\",\"start\":1,"
                  "\"stop\":0}]},\"post_processor\":null,\"model\":{\"type\":\"BPE\",\"unk_token\":"
                  "\"<unk>\","
                  "\"fuse_unk\":true,\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"\u2581\":3,\"ab\":4,"
                  "\"\u2581ab\":5},\"merges\":[\"a b\",\"\u2581 ab\"]}}"},
};

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make_tokenizer_json_corpus FOLDER\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof SEEDS / sizeof *SEEDS; i++) {
        char path[4096];
        const size_t config = strlen(SEEDS[i].config);
        const unsigned char length[2] = {(unsigned char)config, (unsigned char)(config >> 8)};
        snprintf(path, sizeof path, "%s/%s", argv[1], SEEDS[i].name);
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(length, 1, 2, file) != 2 || fputs(SEEDS[i].config, file) < 0 ||
            fputs(SEEDS[i].tokenizer, file) < 0 || fclose(file) != 0) {
            perror(path);
            return 1;
        }
    }
    return 0;
}
