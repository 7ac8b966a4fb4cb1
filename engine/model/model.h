// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MODEL_H
#define KVERN_ENGINE_MODEL_H

// A language model from a file or a directory: its facts, its weights in memory, and the forward
// pass over a kvern_state.
//
//   model_source *source;                 what is on disk engine/model/model_source.h model_facts
//   facts;                    geometry; no weights needed       model_read_facts kvern_composition
//   *plan;              what the KV cache keeps           model_composition model *model; weights,
//   ready to multiply        model_open, model_load model_workspace *workspace;           scratch
//   of one forward pass       model_workspace_create model_forward(model, workspace, state, step,
//   error)
//
// A model is immutable once it is open and may serve several threads; a workspace and a state
// belong to one thread at a time.
//
// Same bits: the logits of a token depend on its row's tokens up to it and on nothing else: not on
// how they were cut into steps, on other rows, on threads, or on the instruction set.
// docs/engine.md states the arithmetic.

#include "engine/model/model_rope.h"
#include "engine/model/model_source.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/weights/key_table.h"

#include <kvern/kvern.h>

// Raised when any bit of a model's numbers becomes another one: rows that were stored before are
// not taken up then.
#define MODEL_ARITHMETIC "2"

#define MODEL_MAX_TYPES 16
#define MODEL_MAX_LAYERS 1024

typedef enum model_layer_kind {
    MODEL_LAYER_FULL = 0,   // attention to everything
    MODEL_LAYER_WINDOW = 1, // attention to the newest `window` positions
    MODEL_LAYER_DELTA = 2,  // a gated delta rule instead of attention: model_facts.delta
    MODEL_LAYER_LATENT = 3, // attention by latents: model_latent
    MODEL_LAYER_CHUNKED = 4 // attention within chunks of `window` positions
} model_layer_kind;

// The gated delta rule of layers that have it, all alike: engine/model/delta_layer.h.
typedef struct model_delta {
    size_t key_heads; // of queries and keys; 0: no layer has it
    size_t value_heads;
    size_t key_dim;
    size_t value_dim;
    size_t taps; // of the convolution
    // Kimi: a decay for each channel of a key, made by two matrices as the gate is, with so many
    // numbers between them; q, k and v have convolutions of their own, and gates a sigmoid. 0: one
    // decay for a value head, none of this.
    size_t rank;
    // How a file keeps them.
    bool fused_inputs; // q, k, v and z in one matrix, key head after key head
    bool fused_gates;  // likewise b and a
    bool tiled;        // value head i belongs to key head i % key_heads, not to i / (their ratio)
    bool decays;       // -exp(A) in place of A
} model_delta;

// How the scores of experts become a choice and its weights: engine/model/router.h.
typedef enum model_router_kind {
    MODEL_ROUTER_SOFTMAX = 0, // over all experts
    MODEL_ROUTER_SIGMOID = 1, // of each expert by itself
    MODEL_ROUTER_CHOSEN = 2,  // a softmax over those that were chosen
    // The sigmoid of each that was chosen, which multiplies what the expert reads instead of what
    // it gives.
    MODEL_ROUTER_INPUT = 3
} model_router_kind;

// The experts of the layers that have them, all alike. `count` is 0 in a model without.
typedef struct model_experts {
    size_t count;
    size_t used; // of each token
    model_router_kind router;
    bool normalized;     // the weights of a token's experts are divided by their sum
    float scale;         // of the weights
    size_t groups;       // of neighbours, of which a token may use only `used_groups`; 1: no groups
    size_t used_groups;  //
    size_t feed_forward; // inner width of an expert
    size_t shared;       // inner width of the expert that all tokens use; 0: none
    bool shared_gate;    // it is weighted by a sigmoid
    bool fused;          // the file has gate and up of all experts in one tensor,
    bool in_turn;        // a row of the gate and one of up in turn, not the gate in front
    bool turned;         // the file has inputs of matrices behind each other, not outputs
} model_experts;

// Latent attention (MLA) of the layers of kind MODEL_LAYER_LATENT, all alike, and the indexer that
// selects positions for it (DSA). `latent` is 0 in a model without.
typedef struct model_latent {
    size_t latent;      // numbers of a latent, from which keys and values follow
    size_t rope;        // of the part of a key that all heads share, and that rotates if any does
    size_t key;         // of the part of a head's key that does not
    size_t value;       // of a head's value
    size_t q_rank;      // of what queries are made of; 0: of the stream itself
    float norm_epsilon; // of the norms of this and of latents
    bool fused;         // the file has the projections of keys and values in one tensor
    size_t index_heads; // of the indexer; 0: there is none
    size_t index_dim;
    size_t index_top_k;  // positions that are selected
    uint32_t index_rope; // an index into model_facts.rope
} model_latent;

// What a layer is.
typedef struct model_layer_facts {
    model_layer_kind kind;
    uint32_t heads; // query heads
    uint32_t kv_heads;
    uint32_t head_dim;     // of queries and keys
    uint32_t value_dim;    // head dim of values
    uint32_t window;       // of MODEL_LAYER_WINDOW, the token's own position included; of
                           // MODEL_LAYER_CHUNKED the positions of a chunk; 0 otherwise
    uint32_t rope;         // an index into model_facts.rope
    uint32_t feed_forward; // inner width of the feed-forward network; 0 with experts
    bool experts;          // in place of a feed-forward network
    bool indexed;          // an indexer selects positions for it and for the next ones without
    bool values_are_keys;  // before these are normed and rotated
    bool shared;           // it has queries alone, and reads what layer `donor` keeps
    uint32_t donor;
} model_layer_facts;

// Tensors of one element type.
typedef struct model_type_count {
    uint32_t type; // see element_type_name
    size_t tensors;
    uint64_t bytes; // in the file
} model_type_count;

// What a file says about its model: what others call its config or hparams. Strings are borrowed
// from the file; an absent one has size 0.
typedef struct model_facts {
    const struct model_family *family; // NULL: unknown
    text_view architecture;            // "llama"
    text_view name;
    text_view tokenizer;     // tokenizer.ggml.model: "gpt2", "llama"
    text_view pre_tokenizer; // tokenizer.ggml.pre
    size_t layers;
    model_layer_facts layer[MODEL_MAX_LAYERS]; // [layers]
    size_t width;                              // of the residual stream
    size_t heads;                              // the most query heads of a layer
    size_t vocabulary;                         // rows of the token embedding
    size_t context_length;
    float norm_epsilon;
    float embedding_scale;   // of the token embeddings
    float attention_scale;   // of the products of queries and keys
    float attention_softcap; // of these; 0: none
    // Queries of layers that do not rotate are multiplied by a number that grows with their
    // position: docs/engine.md, "Temperature". The positions of a step of it; 0: they are not.
    float temperature_step;
    float temperature_growth;
    bool unit_rotated;   // heads that rotate are divided by their root mean square afterwards
    float logit_softcap; // of the logits; 0: none
    model_experts experts;
    model_delta delta;
    model_latent latent;
    bool head_norms;     // heads of q and k have norms, where the family leaves that to a file,
    bool input_biases;   // and their matrices and that of values biases
    size_t layer_inputs; // numbers that each layer gets of a token besides the stream; or 0
    float layer_inputs_scale;         // of their embeddings
    size_t ropes;                     // 0: nothing rotates
    model_rope rope[MODEL_MAX_ROPES]; // [ropes]
    bool tied_output;                 // the output matrix is the token embedding
    uint64_t parameters;
    uint64_t file_bytes;
    uint64_t tensor_bytes;
    size_t packed_bytes; // of the matrices in memory
    size_t types;        // element types that occur, most bytes first
    model_type_count type[MODEL_MAX_TYPES];
} model_facts;

// Reads the facts of an open model without touching its weights, and checks that its tensors are
// those of such a model. Errors: KVERN_ERR_UNSUPPORTED (an
// architecture, rope scaling or key that this engine does not know; the text names it, and the
// architectures and scalings that it knows), KVERN_ERR_FORMAT (a key is missing, out of range or
// contradicts another one). On failure the general facts (strings, bytes, type counts) are filled
// in all the same.
KVERN_CHECK kvern_status model_read_facts(const model_source *source, model_facts *facts,
                                          engine_error *error);

// What is done with a key of a file.
typedef struct model_key {
    text_view name; // borrowed from the file
    key_verdict verdict;
    const char *why; // static, or NULL
} model_key;

// The verdict on the key `index` of a file, in the file's order. False when there is no such key,
// or the file is of an unknown architecture.
bool model_judge_key(const model_source *source, size_t index, model_key *key);

// The plan of the KV cache for a model of these facts, stored as `storage` says (NULL: bf16). On
// success *out holds one reference (kvern_composition_release). On failure *out is NULL and the
// text names the layer. Errors: those of kvern_storage_apply and kvern_composition_create.
KVERN_CHECK kvern_status model_composition(const model_facts *facts, kvern_context *context,
                                           const kvern_storage *storage, kvern_composition **out,
                                           engine_error *error);

// How many of a key's first dims lie in pairs of neighbours here, where mlx-lm has the two halves
// of them: kvern_mlx_import_options.k_pairs. 0: the order is the same.
size_t model_key_pairs(const model_facts *facts);

typedef struct model model;

// Called while weights are prepared, `done` of `total` bytes of the file, on the calling thread.
typedef void (*model_progress)(void *user, uint64_t done, uint64_t total);

// Opens a file and loads its weights. The model borrows the context until model_close and uses its
// executor and its instruction sets. `progress` may be NULL. On failure *out is NULL. Errors: those
// of model_source_open, model_read_facts and the tokenizer; KVERN_ERR_FORMAT (a tensor is missing
// or has another shape than the facts demand: the text names it), KVERN_ERR_UNSUPPORTED (a tensor
// type or a tensor that changes the computation and is unknown here), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status model_open(const char *path, kvern_context *context,
                                    model_progress progress, void *user, model **out,
                                    engine_error *error);

// The same for a source that the caller has opened. On success the model owns it and closes it; on
// failure it stays the caller's. `pre` is that of tokenizer_create.
KVERN_CHECK kvern_status model_load(model_source *source, const char *pre, kvern_context *context,
                                    model_progress progress, void *user, model **out,
                                    engine_error *error);

// Ends a model. No workspace or generator may still use it. NULL is allowed.
void model_close(model *model);

const model_facts *model_get_facts(const model *model);
// NULL when the model comes from another format.
const gguf_file *model_file(const model *model);
// NULL when the file has no tokenizer at all: such a model takes token ids only.
const tokenizer *model_tokenizer(const model *model);
// The text of the chat template that came with the tokenizer, borrowed; false when there is none.
bool model_chat_template(const model *model, text_view *out);
// tokenizer_add_end for the model's tokenizer, which it has.
void model_add_end(model *model, int32_t token);
kvern_context *model_context(const model *model);

// Bytes of the weights as they are held in memory.
uint64_t model_weight_bytes(const model *model);

typedef struct model_workspace model_workspace;

// Scratch for forward passes of up to `max_tokens` tokens (1 or more, all rows together) over
// states of up to `max_rows` rows. No forward pass allocates. On failure *out is NULL. Errors:
// KVERN_ERR_ARGUMENT, KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status model_workspace_create(const model *model, size_t max_tokens,
                                                size_t max_rows, model_workspace **out,
                                                engine_error *error);
void model_workspace_destroy(model_workspace *workspace);

// One forward pass: the new tokens of every row of a state.
typedef struct model_step {
    kvern_phase phase;
    const int32_t *tokens; // all rows', rows behind each other: sum of counts
    const int64_t *counts; // per row of the state; 0 leaves a row alone

    // Where logits go: [wanted tokens, vocabulary], in the order of `tokens`; NULL: none are
    // wanted.
    float *logits;
    // Per row, of how many of its newest tokens (0 to counts[r]) logits are wanted; NULL: of the
    // last token of each row that has new tokens.
    const int64_t *logits_counts;
} model_step;

// Runs one step: every layer appends the tokens to the state, attends, and the rows advance. The
// state's composition must be of this model's geometry. On failure the state is as it was before.
// Errors: KVERN_ERR_RANGE (a token outside the vocabulary, a count, more tokens or rows than the
// workspace has room for), KVERN_ERR_ARGUMENT (another geometry), and those of the steps of
// kvern/state.h.
KVERN_CHECK kvern_status model_forward(const model *model, model_workspace *workspace,
                                       kvern_state *state, const model_step *step,
                                       engine_error *error);

// Logits of `count` tokens of the workspace's newest step, which succeeded: of those at
// indices[0], ... of its `tokens`, into logits[count, vocabulary]. For callers that want more
// logits than they want to hold at once. Errors: KVERN_ERR_RANGE (an index that the step did not
// have, more of them than the workspace has room for).
KVERN_CHECK kvern_status model_logits(const model *model, model_workspace *workspace,
                                      const size_t *indices, size_t count, float *logits,
                                      engine_error *error);

#endif
