/* The plain ABI between Python (native/library.py mirrors these structs) and C. Nothing here knows torch.
 *
 * `Matrix`: a table of which single rows are read. They lie one after the other exactly as the checkpoint stores them, so a
 * file that is mapped into memory can be used as it is. `Panels`: a map of `inputs` numbers to `rows` numbers.
 * Letters: n tokens of a pass, E head width. */
#ifndef SAUCIER_H
#define SAUCIER_H
#include <stdint.h>

enum Format { FLOAT32, BFLOAT16, FLOAT16, INT8, INT4 };
enum Activation { IDENTITY, RELU, GELU, GELU_TANH, SILU, TANH, QUICK_GELU, SQUARED_RELU, RELU6, LEAKY_RELU, SIGMOID };
enum NormKind { LAYER_NORM, RMS_NORM };

/* INT8: codes are c + 128 in a byte each. INT4: c + 8 in half a byte, the earlier code in the low half.
 * A weight is c * scale of its group; `group` inputs of a row share a scale: all of them, or a multiple of 32. */
typedef struct {
    const void *codes;  /* the numbers themselves, or the codes */
    const void *scales; /* [rows, ceil(inputs / group)], or NULL */
    int64_t rows, inputs, group;
    int32_t format, scale_format; /* enum Format */
    const float *shifts; /* [rows, ceil(inputs / group)]: by how much each weight of a group is larger than that; or NULL */
} Matrix;

#define PANEL_ROWS 16
#define TILE_TOKENS 12 /* of a tile, at most */
#define TOGETHER 16    /* those that attend to a cache together, at most */
#define KEYS_AT_ONCE PANEL_ROWS
#define SUMMED_INPUTS 32
#define ROOM_TOKENS 48 /* whole tiles, whatever the set */
#define SPARE_INPUTS 32
#define PANELS_AT_ONCE 8 /* of a chunk, at most */
#define MOST_TOKENS 144 /* of a pass of a decoder: whole tiles */
#define QUERIES_AT_ONCE 144 /* of a row that meet distances: whole tiles */

/* A matrix in panels of 16 rows, whose numbers for an input lie side by side. FLOAT32: [panels, inputs, 16]. BFLOAT16: [panels,
 * pairs of inputs, 16, 2]. INT8: c + 128 in a byte, [panels, quads of inputs, 16, 4]. INT4: c + 8 in half a byte, in units of
 * SUMMED_INPUTS: [panels, units, 4, 16, 4], the low halves of a unit's bytes are its first 16 inputs, the high ones its others.
 * And scales [panels, ceil(inputs / group), 16] as they are stored. What fills up rows and inputs is not counted. */
typedef struct {
    const void *codes, *scales;
    int64_t rows, inputs, group;
    int32_t format, scale_format;
    float step; /* what a code of activations stands for, of all tokens; negative: each block of a token has its own */
    const float *shifts;  /* [panels, ceil(inputs / group), 16] as above, or NULL */
    const int32_t *order; /* [inputs], of whole numbers: the input that each column meets; NULL: as they come */
} Panels;

/* A product with panels. Where they hold whole numbers, tokens are rounded in blocks to codes of -127..127: the largest of
 * 128, 64 and 32 inputs that their groups are whole multiples of; where a row has one scale, 128. Where the panels say a
 * step of their own, it is that of all blocks, which then have 768 inputs where a row of INT8 has one scale. */
typedef struct WideProduct {
    const Panels *panels;
    const float *values; /* [n, from_stride] */
    int64_t from_stride, n;
    void *tiles;         /* room for inputs + SPARE_INPUTS floats of each token, of whole ROOM_TOKENS */
    float *token_scales; /* [blocks, n] */
    const float *bias;   /* [rows], or NULL */
    float *to;           /* [n, stride] */
    int64_t stride;
    int32_t activation, adds; /* one of them at most */
    void (*activate)(int activation, float *values, int64_t count);
    const struct WideProduct *next; /* the only one that reads what this one gives, which is laid out for it while it is in
                                     * the caches, and not written to `to`; or NULL. See `hands_on` in encode.c. */
    int32_t laid_out;               /* whether the one before did so */
} WideProduct;

/* Vectors of distances, which tokens meet as they meet each other. */
typedef struct {
    const Panels *panels; /* [vectors, heads * E] in float32, the scale of the scores in them; NULL: nothing is met */
    const int32_t *rows;  /* [2 * reach - 1]: the vector of each distance, -reach + 1 first; they never fall */
    int64_t first, last;  /* from one to the other of these distances, around 0, each has the vector after that of the last */
} Distances;

/* Attention among the tokens of each row. A query sees `before` tokens before it and `after` after it. */
typedef struct {
    const float *query; /* [tokens, stride]: queries of all heads, then keys, then values */
    float *to;          /* [tokens, to_stride] */
    int64_t stride, to_stride;
    const int32_t *starts; /* [rows + 1]: the first token of each row */
    int32_t heads, groups, head;
    int64_t before, after;
    float scale;
    const float *bias; /* [heads, 2 * reach - 1] by distance of the key, -reach + 1 first; or NULL */
    int64_t reach;
    const Distances *distances; /* what queries meet by distance of the key, and keys by that of the query; or NULL */
    int rounded; /* whether the matrices around it are: then 16 bits of its numbers are enough */
} RowAttention;

/* Vectors by distance to the key, the last one for all that are further: queries meet `keys` as a second key, and
 * `values` are mixed as the values are. */
typedef struct {
    const float *keys;   /* [tables, reach, E] */
    const float *values; /* [reach, E], or NULL */
    int64_t reach;
    int32_t tables;    /* one, or one for each head */
    int32_t meets_key; /* keys meet the vector too */
    float scale;
} Relative;

/* Attention of tokens to the cache of their row. A query sees the keys at places first..last of its row. */
typedef struct {
    const float *query; /* [n, stride], heads side by side */
    float *to;          /* [n, to_stride] */
    int64_t stride, to_stride;
    const void *keys;   /* [rows, groups, capacity / 16, E, 16] of one layer: 16 keys lie value by value */
    const void *values; /* [rows, groups, capacity, E] */
    int32_t stored;     /* the format of both: FLOAT32 or BFLOAT16, see `key_at` */
    int64_t capacity;
    const int32_t *rows, *places; /* [n] */
    int32_t heads, groups, head, window; /* window 0: all */
    float scale;
    const float *bias; /* [heads, reach] by distance, or NULL */
    int64_t reach;
    /* Attention to sources, without padding: keys [groups, length / 16 rounded up, E, 16] of each begin at its start. */
    const int32_t *sources;       /* [rows], or NULL: attention to the row itself */
    const int32_t *lengths;       /* [sources] */
    const int64_t *starts;        /* [sources], in numbers */
    const Relative *relative;     /* or NULL */
    const uint8_t *seen;          /* [reach, reach] by place and key, or NULL: all up to the place */
} Attention;

/* Where number e of the key at place t lies, from that of place 0 on, and of the value. BFLOAT16: two numbers of a key, and
 * those of two values, lie side by side, as products of pairs take them; E is even then. */
static inline int64_t key_at(int64_t t, int64_t e, int64_t head, int stored) {
    int64_t block = t / KEYS_AT_ONCE * KEYS_AT_ONCE * head, key = t % KEYS_AT_ONCE;
    return block + (stored == BFLOAT16 ? (e / 2 * KEYS_AT_ONCE + key) * 2 + e % 2 : e * KEYS_AT_ONCE + key);
}
static inline int64_t value_at(int64_t t, int64_t e, int64_t head, int stored) {
    return stored == BFLOAT16 ? (t / 2 * head + e) * 2 + t % 2 : t * head + e;
}

/* The inner loops of rows.c, compiled once for each instruction set. */
typedef struct {
    int tile; /* tokens of a tile, at most */
    void (*lay_out)(const WideProduct *, int64_t tile);
    void (*multiply)(const WideProduct *, int64_t begin, int64_t end);
    void (*attend)(const RowAttention *, int64_t row, int64_t group, float *room);
} RowKernels;

/* Those of kernels.c, likewise. */
typedef struct {
    const char *name;
    float (*weight)(const Matrix *, int64_t row, int64_t input);
    void (*norm)(int kind, const float *from, float *to, int64_t width, const float *gain, const float *bias, float eps);
    void (*activate)(int activation, float *values, int64_t count);
    void (*gate)(int activation, float *values, int64_t width); /* [2 * width] -> [width] in place */
    void (*attend)(const Attention *, int64_t token, int64_t tokens, int64_t group, float *scores);
    void (*rotate)(float *heads, int64_t count, int64_t head, int64_t width, int neighbours, const float *turns);
    void (*log_softmax)(float *scores, int64_t count);
    void (*narrow)(const float *from, int64_t count, uint16_t *to); /* to bfloat16 */
    const RowKernels *rows;
    int together; /* tokens that attend to a cache of 16 bits in one call, at most; of floats a tile */
} Kernels;

typedef void Task(void *argument, int64_t chunk, int thread);
void saucier_parallel(int threads, int64_t chunks, Task *task, void *argument);
int saucier_enter(int threads);
void saucier_leave(void);
#define MOST_THREADS 64

/* One step of a plan; which fields are read depends on the kind. Buffers are numbered, see `Session`. */
enum OpKind { EMBED, PLACES, NORM, PRODUCT, ROTATE, ATTEND, GATE, ACTIVATE, ADD, SCALE, SELECT, SHIFT, KEEP, CROSS,
              EXPERTS, ATTEND_ROWS, NEIGHBOURS, SEGMENTS };
typedef struct {
    int32_t kind;
    int32_t from, to;   /* buffers */
    int32_t width;      /* numbers of a token */
    int32_t activation, adds;
    int32_t norm, neighbours; /* enum NormKind; ROTATE: value 2i turns with 2i + 1 */
    int32_t slot;       /* ATTEND: keys of a token that earlier attentions keep, all heads together */
    int32_t heads, groups, head, turned;
    int32_t window, offset; /* PLACES: the row of place p is p + offset */
    float scale, eps;
    const Matrix *matrix;
    const float *gain, *bias; /* NORM, PRODUCT */
    const float *table;  /* ROTATE: [places, turned] cosines, then sines; ATTEND: [heads, reach] */
    int64_t reach;
    int32_t padding;     /* PLACES: a token whose row is its own number; -1: there is none */
    int32_t experts, top, renormalized, hidden, gated; /* EXPERTS: see experts.c */
    const float *second; /* EXPERTS: [experts, width], the biases of their second maps, or NULL */
    const Relative *relative; /* ATTEND */
    const uint8_t *seen;      /* ATTEND: [reach, reach] */
    const Panels *panels;  /* PRODUCT; EXPERTS: two of each */
    int64_t before, after; /* ATTEND_ROWS, NEIGHBOURS: how many tokens a token sees to each side */
    int32_t capacity;      /* EXPERTS: tokens of a whole row that each takes, the first ones; 0: all */
    int32_t rounded;       /* ATTEND_ROWS, see there */
    const Distances *distances; /* ATTEND_ROWS: two, or NULL */
} Op;

/* The stream, what sublayers read (two), queries with keys and values, what attention gives, hidden vectors, logits, and
 * what lies between two matrices of a map. */
enum Buffer { STREAM, NORMED, OTHER, HEADS, MIXED, HIDDEN, SCORES, RANKS, BUFFERS };
typedef struct {
    const Op *ops;
    int32_t count;
} Plan;

/* What one decoding holds: room for `most` tokens a pass, and the cache. */
typedef struct {
    float *buffers[BUFFERS];
    int64_t strides[BUFFERS];
    void *keys, *values; /* for each attention, see there; the capacity is a multiple of 16 */
    int32_t stored;      /* the format of these, and of those of sources */
    int64_t most, rows, capacity;
    float *scores; /* [MOST_THREADS, TOGETHER * capacity, rounded up to 32] */
    int64_t score_stride;
    void *tiles; /* for WideProduct */
    float *token_scales;
    /* What an encoder gave, as keys and values of each attention to it; of sources of any lengths, without padding. */
    void *source_keys, *source_values;
    const int32_t *sources, *source_lengths; /* [rows]: the source of each; [sources] */
    const int64_t *source_starts;            /* [sources]: places before it, all lengths rounded up to sixteens */
    int64_t source_places, longest_source;   /* of all together; of the longest, rounded up */
} Session;

/* What the steps of an encoder's pass write to. */
typedef struct {
    float *buffers[BUFFERS];
    int64_t strides[BUFFERS];
    void *tiles[2]; /* for a WideProduct, and the next one */
    float *token_scales[2];
    float *attention; /* [threads, attention_stride]: see rows.c */
    int64_t attention_stride;
} Workspace;

/* What an encoder's pass reads, rows of any lengths one after the other, and what it gives. */
typedef struct {
    Workspace workspace;
    int64_t tokens, rows;
    const int32_t *starts; /* [rows + 1] */
    const int32_t *places; /* [tokens]; of PLACES rows of its table */
    const int32_t *ids, *segments; /* [tokens]: rows of the tables of EMBED and SEGMENTS. NULL where no step reads them */
    const float *vectors; /* [tokens, strides[STREAM]], or NULL: the first step makes them, or they are in their buffer */
    float *found;         /* [tokens, width of the last step], or NULL: they stay in its buffer */
} Batch;

/* A product of the first n vectors of a buffer with a matrix of an expert. */
typedef struct {
    int from, to; /* buffers */
    int64_t n;
    const float *bias;
    int activation;
} ExpertMap;

/* The step EXPERTS of a pass over n tokens; `multiply` multiplies by one of its matrices, two of each expert. */
typedef struct {
    const Kernels *kernels;
    const Op *op;
    float *const *buffers;
    const int64_t *strides;
    int64_t n;
    const int32_t *starts; /* where whole rows begin; NULL: nobody counts what an expert takes of a row */
    void (*multiply)(const void *pass, int32_t matrix, const ExpertMap *map);
    const void *pass;
} Experts;

void saucier_run_experts(const Experts *experts);

void saucier_read_row(const Kernels *kernels, const Matrix *table, int64_t row, float *to, float scale, int adds);

void saucier_multiply_wide(const Kernels *kernels, const WideProduct *product, int threads);
const Kernels *saucier_kernels(const char *path);
const char *saucier_best_path(void);
void saucier_run(const char *path, const Plan *plan, const Session *session, int64_t n, const int32_t *tokens,
                 const int32_t *rows, const int32_t *places, const int32_t *wanted, int64_t wanted_count, int threads);
void saucier_encode(const char *path, const Plan *plan, const Batch *batches, int64_t count,
                    const Workspace *workspaces, int threads);
void saucier_log_softmax(const char *path, float *scores, int64_t rows, int64_t width, int threads);
void saucier_multiply(const char *path, const WideProduct *product, int threads);
#endif
