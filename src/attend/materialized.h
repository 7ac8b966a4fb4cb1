// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_MATERIALIZED_H
#define KVERN_ATTEND_MATERIALIZED_H

// Attending latents by keys and values of all heads, which are made from them block by block and
// forgotten (docs/arithmetic.md, "Materialized reads"). Making a block costs more than attending
// it, so many queries of a row share it: a tile holds the vectors of one head for some hundred
// queries.

#include "src/attend/attend.h"

#include <kvern/latent.h>

// Copies a struct of the caller (kvern_sized_read), and says whether the layer has latents for such
// weights of `query_heads` heads. Errors: those of kvern_read_attend_materialized.
KVERN_CHECK kvern_status kvern_materialized_weights(const kvern_geometry *geometry,
                                                    const kvern_latent_weights *given,
                                                    size_t query_heads,
                                                    kvern_latent_weights *known);

// Numbers of a query vector.
size_t kvern_materialized_query_dim(const kvern_geometry *geometry,
                                    const kvern_latent_weights *weights);

// Attends checked queries, as kvern_attend does.
KVERN_CHECK kvern_status kvern_attend_materialized(kvern_context *context,
                                                   kvern_reservation *reservation,
                                                   const kvern_view *view,
                                                   const kvern_queries *queries,
                                                   const kvern_latent_weights *weights);

// The same of at most one query per row, with scratch of the caller, aligned to a cache line, of
// kvern_materialized_scratch_bytes for as many rows of one query.
void kvern_attend_materialized_within(kvern_context *context, const kvern_view *view,
                                      const kvern_queries *queries,
                                      const kvern_latent_weights *weights, void *scratch);

// Scratch that attends with weights of these dims take at most, with up to `queries` queries in
// each of `rows` rows. SIZE_MAX when it does not fit.
size_t kvern_materialized_scratch_bytes(const kvern_context *context,
                                        const kvern_geometry *geometry,
                                        const kvern_latent_weights *dims, size_t rows,
                                        int64_t queries);

#endif
