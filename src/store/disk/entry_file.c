// SPDX-License-Identifier: MIT
// The file of an entry: a container of one row with its tokens. The fields of its key are its
// identity, as text: bytes other than printable ASCII, and percent signs, are "%" and two digits. A
// note says what is served of the row and its checkpoints.
#include "src/store/disk/disk_store.h"

#include "src/base/fail.h"
#include "src/base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define NOTE "store"
#define USER "user."
#define MOST_NAME_BYTES 200
#define MOST_TEXT_BYTES (3 * KVERN_STORE_MOST_KEY_BYTES + 2 * KVERN_STORE_MOST_FIELDS)
// A snapshot in a note: two numbers and a small one.
#define SNAPSHOT_TEXT_BYTES 48

static const char *const own_names[] = {"model", "rope", "adapter", "media"};
static const char digits[] = "0123456789ABCDEF";

// ---- Names ----

bool kvern_disk_is_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == KVERN_DISK_HASH_DIGITS &&
           strcmp(name + KVERN_DISK_HASH_DIGITS, KVERN_DISK_SUFFIX) == 0;
}

bool kvern_disk_is_temporary(const char *name)
{
    static const char behind[] = KVERN_DISK_SUFFIX ".tmp-";
    const char *number = name + KVERN_DISK_HASH_DIGITS + sizeof behind - 1;
    return strspn(name, "0123456789abcdef") == KVERN_DISK_HASH_DIGITS &&
           strncmp(name + KVERN_DISK_HASH_DIGITS, behind, sizeof behind - 1) == 0 && *number &&
           number[strspn(number, "0123456789")] == '\0';
}

void kvern_disk_name(const kvern_key_front *front, size_t layers,
                     const char *(*signature)(const void *of, size_t layer), const void *of,
                     const int32_t *tokens, size_t count, char name[KVERN_DISK_NAME_BYTES])
{
    XXH3_state_t sum;
    XXH3_128bits_reset(&sum);
    XXH3_128bits_update(&sum, front->words, front->fields * sizeof front->words[0]);
    for (size_t l = 0; l < layers; l++)
        XXH3_128bits_update(&sum, signature(of, l), strlen(signature(of, l)) + 1);
    XXH3_128bits_update(&sum, tokens, count * sizeof tokens[0]);
    const XXH128_hash_t hash = XXH3_128bits_digest(&sum);
    snprintf(name, KVERN_DISK_NAME_BYTES, "%016" PRIx64 "%016" PRIx64 KVERN_DISK_SUFFIX,
             (uint64_t)hash.high64, (uint64_t)hash.low64);
}

// ---- Text ----

static bool is_plain(unsigned char byte)
{
    return byte >= 0x20 && byte < 0x7f && byte != '%';
}

// Writes bytes as text with its end; the text's bytes.
static size_t put_text(const void *bytes, size_t count, char *text)
{
    const unsigned char *from = bytes;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_plain(from[i])) {
            text[at++] = (char)from[i];
            continue;
        }
        text[at++] = '%';
        text[at++] = digits[from[i] >> 4];
        text[at++] = digits[from[i] & 15];
    }
    text[at] = '\0';
    return at;
}

static int digit_of(char c)
{
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

// Reads text; false: no bytes are written so, or more than `room` are.
static bool get_text(const char *text, size_t room, char *bytes, size_t *count)
{
    size_t at = 0;
    for (; *text; text++) {
        int byte = (unsigned char)*text;
        if (at == room)
            return false;
        if (byte == '%') {
            const int high = digit_of(text[1]), low = high < 0 ? -1 : digit_of(text[2]);
            byte = 16 * high + low;
            if (low < 0 || is_plain((unsigned char)byte))
                return false;
            text += 2;
        } else if (!is_plain((unsigned char)byte)) {
            return false;
        }
        bytes[at++] = (char)byte;
    }
    *count = at;
    return true;
}

// ---- Fields: to the identity ----

// A length and the bytes behind it, in the words of a key's front.
static const void *next_bytes(const kvern_key_front *front, size_t *word, size_t *count)
{
    const void *bytes = &front->words[*word + 1];
    *count = (size_t)front->words[*word];
    *word += 1 + kvern_ceil_div(*count, 4);
    return bytes;
}

kvern_status kvern_disk_check_fields(const kvern_key_front *front)
{
    char text[MOST_TEXT_BYTES];
    size_t word = 1, count;
    for (int32_t f = 0; f < front->words[0]; f++) {
        const void *name = next_bytes(front, &word, &count);
        const size_t bytes = put_text(name, count, text);
        if (bytes == 0 || bytes > MOST_NAME_BYTES)
            return kvern_fail(KVERN_ERR_RANGE,
                              "a field's name of %zu bytes as text, not of 1 to %d", bytes,
                              MOST_NAME_BYTES);
        (void)next_bytes(front, &word, &count);
    }
    return KVERN_OK;
}

typedef struct identity_text {
    kvern_file_identity identity;
    kvern_file_key keys[KVERN_STORE_MOST_FIELDS];
    char text[MOST_TEXT_BYTES];
} identity_text;

static void say_field(identity_text *t, const char *name, const char *value)
{
    const char **const own[] = {&t->identity.model, &t->identity.rope, &t->identity.adapter,
                                &t->identity.media};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (strcmp(name, own_names[i]) == 0) {
            *own[i] = value;
            return;
        }
    }
    t->keys[t->identity.key_count++] = (kvern_file_key){name, value};
}

static void make_identity(const kvern_key_front *front, identity_text *t)
{
    size_t word = 1, at = 0;
    kvern_file_identity_init(&t->identity, sizeof t->identity);
    t->identity.keys = t->keys;
    for (int32_t f = 0; f < front->words[0]; f++) {
        const char *text[2];
        for (int part = 0; part < 2; part++) {
            size_t count;
            const void *bytes = next_bytes(front, &word, &count);
            text[part] = t->text + at;
            at += put_text(bytes, count, t->text + at) + 1;
        }
        say_field(t, text[0], text[1]);
    }
}

// ---- Fields: from the identity ----

typedef struct identity_bytes {
    kvern_store_field fields[KVERN_STORE_MOST_FIELDS];
    size_t count, at;
    char bytes[KVERN_STORE_MOST_KEY_BYTES];
} identity_bytes;

// Reads one part, with an end behind it.
static const char *take_bytes(identity_bytes *b, const char *text, size_t *count)
{
    char *bytes = b->bytes + b->at;
    const size_t room = sizeof b->bytes - b->at;
    if (room == 0 || !get_text(text, room - 1, bytes, count))
        return NULL;
    bytes[*count] = '\0';
    b->at += *count + 1;
    return bytes;
}

static bool is_own(const char *name)
{
    bool found = false;
    for (size_t i = 0; i < sizeof own_names / sizeof own_names[0]; i++)
        found = found || strcmp(name, own_names[i]) == 0;
    return found;
}

// Names of its own are fields, others have "user." in front and are none of these.
static bool take_field(identity_bytes *b, const char *name, const char *value)
{
    size_t name_bytes;
    const bool user = strncmp(name, USER, strlen(USER)) == 0;
    kvern_store_field *field = &b->fields[b->count];
    if (b->count == KVERN_STORE_MOST_FIELDS)
        return false;
    field->name = take_bytes(b, user ? name + strlen(USER) : name, &name_bytes);
    field->value = field->name ? take_bytes(b, value, &field->bytes) : NULL;
    b->count++;
    return field->value && strlen(field->name) == name_bytes && is_own(field->name) != user;
}

static bool read_front(const kvern_file *file, kvern_key_front *front)
{
    identity_bytes b = {.count = 0};
    const char *name, *value;
    for (size_t i = 0; (value = kvern_file_identity_at(file, i, &name)); i++) {
        if (!take_field(&b, name, value))
            return false;
    }
    const kvern_store_key key = {b.fields, b.count};
    return !kvern_key_front_make(&key, front) && !kvern_disk_check_fields(front);
}

// ---- Snapshots ----

// A decimal number without zeros in front, and what is behind it.
static bool get_number(const char **at, char behind, int64_t *out)
{
    const char *digit = *at;
    uint64_t number = 0;
    if (*digit == '0' && digit[1] != behind)
        return false;
    for (; *digit >= '0' && *digit <= '9'; digit++) {
        number = number * 10 + (uint64_t)(*digit - '0');
        if (number > INT64_MAX / 16)
            return false;
    }
    if (digit == *at || *digit != behind)
        return false;
    *at = digit + 1;
    *out = (int64_t)number;
    return true;
}

bool kvern_disk_snapshot_read(const char **note, kvern_disk_snapshot *out)
{
    int64_t why;
    if (!get_number(note, ':', &out->positions) || !get_number(note, ':', &out->floor) ||
        !get_number(note, ',', &why) || why >= KVERN_STORE_WHY_COUNT)
        return false;
    out->why = (kvern_store_why)why;
    return out->positions > 0 && out->floor <= out->positions;
}

// The number of snapshots; 0: the note is none.
static size_t count_snapshots(const kvern_file *file, const char *note)
{
    const size_t most = 1 + kvern_file_checkpoints(file, 0, NULL, 0);
    kvern_disk_snapshot snapshot;
    int64_t above = kvern_file_length(file, 0);
    size_t count = 0;
    for (; *note; count++) {
        if (count == most || !kvern_disk_snapshot_read(&note, &snapshot))
            return 0;
        if (count == 0 ? snapshot.positions != above : snapshot.positions >= above)
            return 0;
        above = snapshot.positions;
    }
    return count;
}

static void put_snapshot(const kvern_composition *composition, const kvern_row_source *source,
                         int64_t positions, char **at)
{
    const kvern_planned_layer *layer;
    const int64_t floor = kvern_row_source_floor(composition, source, &layer);
    const kvern_store_why why = kvern_store_why_floor(source, layer, floor);
    *at += snprintf(*at, SNAPSHOT_TEXT_BYTES, "%" PRId64 ":%" PRId64 ":%d,", positions, floor,
                    (int)why);
}

static void put_snapshots(const kvern_state *state, char *note)
{
    const kvern_row_source row = {.batch = &state->batch};
    put_snapshot(state->composition, &row, state->batch.lengths[0], &note);
    for (const kvern_checkpoint *c = state->batch.checkpoints[0]; c; c = c->below) {
        const kvern_row_source kept = {.kept = c->sets};
        put_snapshot(state->composition, &kept, c->position, &note);
    }
}

// ---- Files ----

static kvern_status refuse(const char *what)
{
    return kvern_fail(KVERN_ERR_FORMAT, "it is not a store's: %s", what);
}

kvern_status kvern_disk_facts_read(const kvern_file *file, kvern_disk_facts *out)
{
    kvern_file_facts facts = kvern_file_facts_default();
    kvern_status status = kvern_file_get_facts(file, &facts);
    if (status)
        return status;
    if (facts.rows != 1)
        return refuse("it has not one row");
    out->tokens = kvern_file_tokens(file, 0);
    out->positions = kvern_file_length(file, 0);
    out->note = kvern_file_note(file, NOTE);
    if (!out->tokens)
        return refuse("it has no tokens");
    if (!out->note || (out->snapshots = count_snapshots(file, out->note)) == 0)
        return refuse("it does not say what of it is served");
    if (!read_front(file, &out->front))
        return refuse("its identity is not a key's");
    kvern_disk_name(&out->front, facts.layers, kvern_disk_file_signature, file, out->tokens,
                    (size_t)out->positions, out->name);
    return KVERN_OK;
}

static size_t count_checkpoints(const kvern_state *state)
{
    size_t count = 0;
    for (const kvern_checkpoint *c = state->batch.checkpoints[0]; c; c = c->below)
        count++;
    return count;
}

// What an entry's file has besides its row.
typedef struct entry_text {
    identity_text identity;
    size_t note_bytes;
    char *note;
} entry_text;

static kvern_status make_text(const kvern_state *state, const kvern_key_front *front,
                              entry_text *text)
{
    void *note;
    text->note_bytes = (2 + count_checkpoints(state)) * SNAPSHOT_TEXT_BYTES;
    kvern_status status = kvern_heap_take(&state->composition->context->heap, text->note_bytes,
                                          KVERN_HEAP_ALIGNMENT, &note);
    if (status)
        return status;
    text->note = note;
    put_snapshots(state, note);
    make_identity(front, &text->identity);
    return KVERN_OK;
}

static void free_text(const kvern_state *state, entry_text *text)
{
    kvern_heap_give(&state->composition->context->heap, text->note, text->note_bytes,
                    KVERN_HEAP_ALIGNMENT);
}

// With `calls` to a path, or to a sink.
static kvern_status save_entry(const kvern_disk_calls *calls, const char *path,
                               const kvern_container_sink *sink, const kvern_state *state,
                               const kvern_key_front *front, const int32_t *tokens)
{
    kvern_file_content content = kvern_file_content_default();
    entry_text text = {.identity = {.identity = {0}}};
    kvern_status status = make_text(state, front, &text);
    if (status)
        return status;
    content.tokens = &tokens;
    content.identity = &text.identity.identity;
    status = sink ? kvern_file_save_to(sink, state, &content, NOTE, text.note)
                  : kvern_file_save_noted(calls, state, &content, NOTE, text.note, path);
    free_text(state, &text);
    return status;
}

kvern_status kvern_disk_write(const kvern_disk_calls *calls, const kvern_disk_job *job,
                              const char *path)
{
    return save_entry(calls, path, NULL, job->state, &job->front, job->tokens);
}

kvern_status kvern_disk_write_to(const kvern_container_sink *sink, const kvern_state *state,
                                 const kvern_key_front *front, const int32_t *tokens)
{
    return save_entry(NULL, NULL, sink, state, front, tokens);
}
