// SPDX-License-Identifier: MIT
#ifndef KVERN_CACHE_H
#define KVERN_CACHE_H

// A cache: the rows of one layer, each the keys and values of one sequence. Rows have their own
// lengths; nothing is ever padded. A cache is usable alone; an engine with many layers uses a state
// (kvern/state.h), which owns one cache per layer.

#include <kvern/read.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvern_cache kvern_cache;

// Neighbouring tokens, or positions: `begin` to `end` - 1.
typedef struct kvern_range {
    int64_t begin, end;
} kvern_range;

// The new tokens of an append: a view of the caller's tensors, which are read and rounded once to
// what the layer stores. Nothing of the view is kept after the call.
//
// Row r receives counts[r] tokens. Element d of KV head h of token i of row r is read at
//     k[(start[r] + i) * k_token_stride + h * k_head_stride + d]
// and likewise for v. Strides and starts count elements and tokens, not bytes. Packed [tokens,
// heads, dim] and padded [rows, heads, length, dim] tensors are both such views (see
// kvern_queries); left and right padding are simply tokens that no row names.
typedef struct kvern_tokens {
    size_t size; // sizeof(kvern_tokens); set by kvern_tokens_default

    const void
        *k; // positional encoding already applied, for the positions that the tokens will have
    const void *v;
    kvern_type k_type; // element types of the tensors; they need not be the storage's
    kvern_type v_type;
    int64_t k_token_stride, k_head_stride;
    int64_t v_token_stride, v_head_stride;

    const int64_t *counts; // new tokens per row, one entry per row of the cache; 0 leaves a row
                           // alone. A step knows them (kvern_step_begin): NULL stands for its
                           // counts, and is refused where there is no step and the cache has rows
    const int64_t
        *k_start; // first token per row in k; NULL: rows follow each other (sums of counts)
    const int64_t *v_start; // the same in v

    // Which tokens see each other both ways. Each of them is NULL in other phases than its own.
    // KVERN_PHASE_RANGES: the ranges of all rows, those of row r being range_counts[r], in tokens
    // of its append, ascending, none reaching into the next or beyond the append.
    const kvern_range *ranges;
    const size_t *range_counts; // one entry per row of the cache
    // KVERN_PHASE_BIDIRECTIONAL: a number per token, which is flagged if that is not 0; rows follow
    // each other (sums of counts).
    const uint8_t *flags;
} kvern_tokens;

// What the tokens of an append are.
typedef enum kvern_phase {
    KVERN_PHASE_DECODE = 0, // one new token per row at most
    KVERN_PHASE_WINDOW = 1, // any number per row, causal among themselves: prefill chunks and
                            // verify windows
    KVERN_PHASE_KNOWN = 2,  // known span: tokens that are already decided, each to be computed
                            // exactly like a decode at its position

    // Tokens that see each other both ways. Layers without KVERN_CAN_BIDIRECTIONAL refuse these
    // phases, and so do rounds.

    // A window in which tokens of one range (kvern_tokens.ranges), such as an image, see each other
    // besides what a window shows them, whatever lies behind them or has left the sliding window
    // or the chunk. Ranges see nothing of what is behind them, other ranges among it. So a prompt
    // may be cut, and a prefix of it be used again, wherever no range is cut in two.
    KVERN_PHASE_RANGES = 3,
    // The same for flagged tokens (kvern_tokens.flags), wherever they are: any two of them see each
    // other. That is the rule of models that ask for one mask of a whole prompt. Rows that receive
    // tokens are empty before (KVERN_ERR_UNSUPPORTED otherwise) and receive two or more.
    KVERN_PHASE_BIDIRECTIONAL = 4,
    // An encoder's window: all tokens of a row's append are one range.
    KVERN_PHASE_ENCODER = 5
} kvern_phase;

// Writes a view of packed f32 tensors of a layer's geometry to `size` bytes, sizeof(kvern_tokens)
// of the caller; k, v and counts remain to be set.
KVERN_API void kvern_tokens_init(kvern_tokens *tokens, size_t size, const kvern_layer *layer);

// The same as a value.
static inline kvern_tokens kvern_tokens_default(const kvern_layer *layer)
{
    kvern_tokens tokens;
    kvern_tokens_init(&tokens, sizeof tokens, layer);
    return tokens;
}

// Makes a cache of `rows` empty rows (0 to KVERN_MAX_ROWS) for layer `layer` of a composition,
// which it keeps a reference to. On failure *out is NULL. Errors: KVERN_ERR_ARGUMENT,
// KVERN_ERR_RANGE (layer or rows), KVERN_ERR_UNSUPPORTED (a shared layer), KVERN_ERR_MEMORY,
// KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_cache_create(kvern_composition *composition, size_t layer,
                                                      size_t rows, kvern_cache **out);

// Ends a cache. Reads and forks made from it live on. NULL is allowed. A cache that a state owns
// must not be given here.
KVERN_API void kvern_cache_destroy(kvern_cache *cache);

// The plan of the cache's layer; owned by the composition.
KVERN_API const kvern_layer *kvern_cache_layer(const kvern_cache *cache);

// The exact storage identity (see kvern_composition_signature).
KVERN_API const char *kvern_cache_signature(const kvern_cache *cache);

// Whether this cache has a capability.
KVERN_API bool kvern_cache_can(const kvern_cache *cache, kvern_capability capability);

// The number of rows, empty ones included.
KVERN_API size_t kvern_cache_rows(const kvern_cache *cache);

// Positions that row `row` holds, which is also the position of its next token; -1 for a row out of
// range.
KVERN_API int64_t kvern_cache_length(const kvern_cache *cache, size_t row);

// How many of its newest positions a row can be trimmed by: none where its layer is recurrent; all
// of them in others, unless it has a sliding window or chunks and has dropped positions: then as
// many as leave its last position everything that it saw, which is the layer's slack right after an
// append, and as far as into the oldest chunk that is held where that is more. In a layer with a
// residual (kvern_layer.residual) as many at most as leave what is stored in the planned codecs
// whole, which are no fewer than the residual right after an append. (All positions can be trimmed
// always.) A number below it would be refused where it cut positions in two that see each other
// both ways: kvern_cache_trim_length. -1 for a row out of range.
KVERN_API int64_t kvern_cache_trimmable(const kvern_cache *cache, size_t row);

// The largest length of a row, at most `length`, that kvern_cache_trim can leave it with: one that
// kvern_cache_trimmable allows and that cuts no range of KVERN_PHASE_RANGES or
// KVERN_PHASE_ENCODER in two, and not what lies between the first and the last flagged position of
// KVERN_PHASE_BIDIRECTIONAL. 0 where only the empty row is left of it; -1 for a row out of range or
// a negative length.
KVERN_API int64_t kvern_cache_trim_length(const kvern_cache *cache, size_t row, int64_t length);

// The least length to which a row can be trimmed and be what it would be if it had never been
// longer: the larger of what kvern_cache_trimmable leaves and, for a row that was converted at its
// start, the length that it had then (nothing when start is 0, because then every append but the
// first was stored in the planned codecs). With a residual, the least length behind which a query
// finds all precise that it is to find so: that before the newest position at most. A prefix of a
// row below it must not be reused. It can
// exceed the length of a row that was trimmed nevertheless. -1 for a row out of range.
KVERN_API int64_t kvern_cache_min_reusable(const kvern_cache *cache, size_t row);

// Positions that an append may add to a row without crossing its start, or the boundary planned for
// it (kvern_cache_plan_boundary) where that is later: whoever cuts there gets the conversion where
// it belongs. Where nothing of the kind is still to come, also where the next append converts the
// row whatever its length (a start of 0), what the row can hold at all. -1 for a row out of range.
KVERN_API int64_t kvern_cache_max_append(const kvern_cache *cache, size_t row);

// Whether a row is stored in its layer's planned codecs: false before its start, and for a row out
// of range.
KVERN_API bool kvern_cache_converted(const kvern_cache *cache, size_t row);

// Bytes of the pages that the cache's rows hold, their reserved room among them. A page that
// several rows share counts once for each.
KVERN_API uint64_t kvern_cache_bytes(const kvern_cache *cache);

// Makes room so that row `row` can reach `tokens` positions without any further allocation, appends
// and attends included with up to `query_vectors` query vectors of each row, query heads times
// queries (0: appends only). What a plan covers beyond that: kvern/plan.h.
// Room is kept until kvern_cache_reset; that of reads and attends, which is for one read open and
// one attend at a time, until no row has room any more. Never shrinks. It is the row's alone: forks
// and reads do not hold it. The reservations of several rows, caches and states add up. An append
// beside an older read or a fork takes a list of pages of its own and the partly filled page anew;
// release reads before the next append to avoid it. A row with a sliding window that shares pages
// with a fork takes a new one for each of them when the window has passed it, which no reservation
// covers. A row before its start gets the room that it needs up to there; the conversion takes
// pages of the planned codecs then (kvern_layer.start), which no reservation covers. On failure
// nothing changed. Errors: KVERN_ERR_RANGE (row, or tokens that are negative or more than 2^40),
// KVERN_ERR_BUSY (a cache of a state), KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_cache_reserve(kvern_cache *cache, size_t row,
                                                       int64_t tokens, size_t query_vectors);

// Stores new tokens at the end of their rows, advances the rows' lengths, and hands out a read of
// the result, which the caller releases. `read` may be NULL: append without attending. `tokens` is
// borrowed for the call. On failure no row changed and *read is NULL.
//
// The phase is named by the caller and is never inferred from the number of tokens. The numbers are
// those of one arithmetic in every phase: a window of N tokens equals N decodes bit for bit. Where
// tokens see each other both ways the row remembers their ranges, in memory of the context, until
// they are trimmed off or a window has passed them: for reads that are made later, and for trims.
// An append with ranges makes a list of them, which no reservation covers.
//
// Errors: KVERN_ERR_ARGUMENT (an unknown phase among others), KVERN_ERR_RANGE (a negative count,
// start or stride; a count above what the phase permits; more than 2^40 positions; a range that is
// empty, not behind the one before, or not within the append; more than 65536 ranges of a row),
// KVERN_ERR_OVERFLOW, KVERN_ERR_UNSUPPORTED, KVERN_ERR_BUSY (the cache belongs to a state: use its
// steps), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_cache_append(kvern_cache *cache, kvern_phase phase,
                                                      const kvern_tokens *tokens,
                                                      kvern_read **read);

// Drops the newest `tokens` positions of a row; their memory above the reserved room is given back,
// or goes when the last read or fork that holds it too lets go. (A row that shares its list of
// pages needs one of its own for that. When there is no memory for it, the row's next call tries
// again; so it is with what a window has passed.) Reads and forks that hold them are unchanged.
// Never fails halfway. A row that was converted stays so, also below its start. Errors:
// KVERN_ERR_RANGE (row, a negative number, or more than the row holds), KVERN_ERR_UNSUPPORTED (more
// than kvern_cache_trimmable, and not all; or positions that see each other both ways, and not all
// of these: the detail names them), KVERN_ERR_BUSY.
KVERN_API KVERN_CHECK kvern_status kvern_cache_trim(kvern_cache *cache, size_t row, int64_t tokens);

// Back to the constructed state: the row is empty and its reserved room is given back.
// Errors: KVERN_ERR_RANGE, KVERN_ERR_BUSY.
KVERN_API KVERN_CHECK kvern_status kvern_cache_reset(kvern_cache *cache, size_t row);

// Plans where a row may be converted (kvern_layer.start): not before an append leaves it with at
// least `position` positions. A row that is prefilled in planned chunks next to others is cut where
// the others' chunks end, too; with the end of its own chunk as boundary those cuts do not move its
// conversion, and its numbers do not depend on its neighbours. 0, as at first: no boundary.
// Errors: KVERN_ERR_RANGE, KVERN_ERR_BUSY.
KVERN_API KVERN_CHECK kvern_status kvern_cache_plan_boundary(kvern_cache *cache, size_t row,
                                                             int64_t position);

// A read of what is stored now, for models that share this cache's keys and values without
// appending any (layers that do so in a step: kvern/donor.h): the queries of row r belong to its
// last counts[r] positions. After a conversion it reads the converted row, unlike the read of the
// append that caused it. On failure *read is NULL. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE (a
// count that is negative or more than the row holds; a first query that saw positions which are not
// held any more, or not precise any more where it read them so: a layer with a residual),
// KVERN_ERR_BUSY (a slot of a row is handed out, and its layer not done:
// kvern/experimental/slot.h), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_cache_read_donor(const kvern_cache *cache,
                                                          const int64_t *counts, kvern_read **read);

// A block read, for models that revise a block of tokens many times before they go on (diffusion):
// a read of what is stored now and of `tokens`, a block of any length per row, which is not
// appended. The queries of row r belong to the block's tokens, whose positions begin at the row's
// length. Each of them sees the whole block, both ways, and of the stored positions those that a
// token at the row's length sees: all, or, with a sliding window, the kept ones and as many newest
// ones as make window - 1 with them. The block is stored as the row stores its newest positions
// now, in memory that the read alone holds; lengths, bytes and the form of the row stay as they
// are, whatever the block's length. To keep a block that was accepted, append it.
//
// That memory returns to the context with the read, and the next block read uses it again: a loop
// that reads blocks of equal length and releases each read before the next few takes nothing from
// the allocator once it has warmed up. No reservation or plan counts it.
//
// The cache may belong to a state, within a step too, and other layers may attend the read.
// `tokens` is borrowed for the call. On failure nothing changed and *read is NULL. Errors:
// KVERN_ERR_ARGUMENT (ranges or flags among others), KVERN_ERR_RANGE, KVERN_ERR_OVERFLOW,
// KVERN_ERR_UNSUPPORTED (a layer without KVERN_CAN_BLOCK), KVERN_ERR_BUSY (a slot of a row is
// handed out: kvern_cache_read_donor), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_cache_read_block(const kvern_cache *cache,
                                                          const kvern_tokens *tokens,
                                                          kvern_read **read);

// Takes the positions of row `from_row` of another cache over into the empty row `row`; both then
// share the pages until one of them writes. The caches' head counts and dims must be the same, and
// their windows, unless the source has dropped nothing. The stored form must be the layer's planned
// codecs, or, for a layer with a start, bf16 (layers with a residual, of which one may be either,
// are of one signature); such a row is converted at once when it has reached
// the start, whatever boundary is planned. Codes from a layer without that start count as not
// reusable below it (kvern_cache_min_reusable). Reserved room of the row stays, unless it is of the
// other one of a layer's two forms; then its next append takes it anew. An empty row brings
// nothing. On failure nothing changed. Errors: KVERN_ERR_ARGUMENT (another context),
// KVERN_ERR_RANGE, KVERN_ERR_BUSY (the row is not empty; a cache of a state; the source's state has
// something open), KVERN_ERR_UNSUPPORTED (other geometry, codecs or window: the detail names both),
// KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_cache_adopt(kvern_cache *cache, size_t row,
                                                     const kvern_cache *from, size_t from_row);

// A new cache whose row i continues row rows[i] of this one. Pages are shared and copied when one
// side writes, so the cost does not grow with the length. A row may be named several times. On
// failure *out is NULL. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE, KVERN_ERR_BUSY (the cache's
// state has something open), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_cache_fork(const kvern_cache *cache, const size_t *rows,
                                                    size_t count, kvern_cache **out);

// Rows that come and go. None of these costs more for longer rows: tables of pages are moved or
// shared, never their contents. All do everything or nothing. Caches that belong to a state do not
// take part (KVERN_ERR_BUSY), but rows can be extracted from them while no step and no round is
// open. Room of rows (kvern_cache_reserve) moves with them; that of reads is for the rows there
// were, so reserve again when there are more.

// Moves all rows of the others, in order, behind this cache's own. The others have no rows
// afterwards, and remain to be destroyed. The caches may be of different compositions of one
// context, when what they store is the same. Errors: KVERN_ERR_ARGUMENT (another context, one cache
// twice, this cache among them), KVERN_ERR_UNSUPPORTED (other signatures: the detail names both),
// KVERN_ERR_RANGE (more than KVERN_MAX_ROWS), KVERN_ERR_BUSY, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_cache_join(kvern_cache *cache, kvern_cache *const *others,
                                                    size_t count);

// Filters and reorders: row i becomes the old row rows[i]; rows that are not named are dropped, and
// their pages given back, which takes as long as there are. 0 rows are permitted. Takes no memory.
// Errors: KVERN_ERR_ARGUMENT (a row named twice: fork it instead), KVERN_ERR_RANGE, KVERN_ERR_BUSY.
KVERN_API KVERN_CHECK kvern_status kvern_cache_keep(kvern_cache *cache, const size_t *rows,
                                                    size_t count);

// Adds `count` empty rows behind the others. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE (more than
// KVERN_MAX_ROWS), KVERN_ERR_BUSY, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_cache_add_rows(kvern_cache *cache, size_t count);

// A new cache of one row that continues row `row`, which stays: a fork of that row alone. Both
// share the pages until one of them writes. On failure *out is NULL. Errors: as kvern_cache_fork.
KVERN_API KVERN_CHECK kvern_status kvern_cache_extract(const kvern_cache *cache, size_t row,
                                                       kvern_cache **out);

// The stored values of `count` positions of a row from `position` on, decoded to f32 and packed
// [count, kv_heads, k_dim] and [count, kv_heads, v_dim]. Either pointer may be NULL. Positions that
// a sliding window may have dropped are KVERN_ERR_RANGE; kept ones, and as many newest ones as the
// window and its slack, are there. Errors: KVERN_ERR_RANGE, KVERN_ERR_ARGUMENT, KVERN_ERR_BUSY (a
// round of the cache's state is open).
KVERN_API KVERN_CHECK kvern_status kvern_cache_export(const kvern_cache *cache, size_t row,
                                                      int64_t position, int64_t count, float *k,
                                                      float *v);

// Where a stream of codes is exported to, in the layout of mx.quantize. Turbo codes have one scale
// in f16 for a vector and no biases: that pointer is not looked at. The codes and scales of both
// codecs of rotated vectors are those of the rotated numbers.
typedef struct kvern_affine_arrays {
    // [count, kv_heads, dim * bits / 32, rounded up]: the codes of a head are one stream of bits,
    // the low bits of the first word first
    uint32_t *words;
    void *scales;      // [count, kv_heads, dim / group], elements of the codec's `scales` type;
                       // turbo: [count, kv_heads]
    void *biases;      // as scales
    void *reserved[2]; // NULL
} kvern_affine_arrays;

// The same positions as they are stored: codes, scales and biases, bit for bit those of mx.quantize
// on the values in the type of the scales, where they are affine. `k` or `v` may be NULL; their
// arrays may not, and are unchanged on failure. Errors: those of kvern_cache_export, and
// KVERN_ERR_UNSUPPORTED when a stream that is asked for is not stored in codes, or not yet (see
// kvern_layer.start).
KVERN_API KVERN_CHECK kvern_status kvern_cache_export_affine(const kvern_cache *cache, size_t row,
                                                             int64_t position, int64_t count,
                                                             const kvern_affine_arrays *k,
                                                             const kvern_affine_arrays *v);

#ifdef __cplusplus
}
#endif

#endif
