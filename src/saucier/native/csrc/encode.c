/* Passes over the plan of an encoder: every step for all tokens of a batch, whose rows lie one after the other without
 * padding. */
#include <string.h>

#include "saucier.h"

#define TOKENS_AT_ONCE 16

typedef struct {
    const Kernels *kernels;
    const Batch *batch;
    const Op *op;
    const RowAttention *attention;
    int threads;
    int room, laid_out; /* which of two a product reads tiles from, and whether they are there already */
} Encoding;

typedef struct {
    const RowKernels *rows;
    const WideProduct *product;
    int64_t panels; /* of a chunk */
} Multiplying;

static void lay_out_tile(void *argument, int64_t chunk, int thread) {
    const Multiplying *m = argument;
    (void)thread;
    m->rows->lay_out(m->product, chunk);
}

static void multiply_chunk(void *argument, int64_t chunk, int thread) {
    const Multiplying *m = argument;
    int64_t begin = chunk * m->panels, all = (m->product->panels->rows + PANEL_ROWS - 1) / PANEL_ROWS;
    int64_t end = begin + m->panels < all ? begin + m->panels : all;
    m->rows->multiply(m->product, begin, end);
}

/* Chunks are a few panels: few enough that all threads get some, and enough to read the tiles seldom. Those that are laid out
 * for the next product are whole blocks of its inputs. */
void saucier_multiply_wide(const Kernels *kernels, const WideProduct *p, int threads) {
    int64_t panels = (p->panels->rows + PANEL_ROWS - 1) / PANEL_ROWS, chunk = panels / (4 * threads);
    if (chunk > 1 && p->n > TILE_TOKENS) chunk -= chunk % 2; /* many tokens meet two panels at once */
    Multiplying m = {.rows = kernels->rows, .product = p,
                     .panels = chunk < 1 ? 1 : chunk > PANELS_AT_ONCE || p->next ? PANELS_AT_ONCE : chunk};
    if (!p->laid_out) saucier_parallel(threads, (p->n + m.rows->tile - 1) / m.rows->tile, lay_out_tile, &m);
    saucier_parallel(threads, (panels + m.panels - 1) / m.panels, multiply_chunk, &m);
}

static void attend_chunk(void *argument, int64_t chunk, int thread) {
    const Encoding *e = argument;
    e->kernels->rows->attend(e->attention, chunk / e->attention->groups, chunk % e->attention->groups,
                    e->batch->workspace.attention + thread * e->batch->workspace.attention_stride);
}

/* A product of the first n vectors of a buffer. */
static WideProduct product_of(const Encoding *e, const Panels *panels, int from, int to, int64_t n, const float *bias) {
    const Batch *b = e->batch;
    return (WideProduct){
        .panels = panels, .values = b->workspace.buffers[from], .from_stride = b->workspace.strides[from], .n = n,
        .tiles = b->workspace.tiles[e->room], .token_scales = b->workspace.token_scales[e->room], .bias = bias,
        .to = b->workspace.buffers[to], .stride = b->workspace.strides[to], .activate = e->kernels->activate};
}

static WideProduct product_of_all(const Encoding *e, const Op *op) {
    WideProduct product = product_of(e, op->panels, op->from, op->to, e->batch->tokens, op->bias);
    product.activation = op->activation, product.adds = op->adds;
    return product;
}

static void multiply_expert(const void *argument, int32_t matrix, const ExpertMap *map) {
    const Encoding *e = argument;
    WideProduct product = product_of(e, e->op->panels + matrix, map->from, map->to, map->n, map->bias);
    product.activation = map->activation;
    saucier_multiply_wide(e->kernels, &product, e->threads);
}

/* Whether what a product gives is laid out for the next step at once: that is a product, the only step that reads hidden
 * vectors, and rounds each block of inputs by itself; and whole chunks are enough for all threads. */
static int hands_on(const Op *op, const Op *end, int threads) {
    if (op + 1 == end || op[1].kind != PRODUCT || op->to != HIDDEN || op[1].from != HIDDEN || op->adds) return 0;
    const Panels *next = op[1].panels;
    return !next->order && !next->shifts && next->step < 0 && next->inputs >= 2 * threads * PANELS_AT_ONCE * PANEL_ROWS;
}

static void run_product(Encoding *e, const Op *op, const Op *end) {
    WideProduct product = product_of_all(e, op), next;
    product.laid_out = e->laid_out;
    e->laid_out = hands_on(op, end, e->threads);
    if (e->laid_out) {
        e->room = !e->room;
        next = product_of_all(e, op + 1), product.next = &next;
    }
    saucier_multiply_wide(e->kernels, &product, e->threads);
}

static void run_attention(Encoding *e, const Op *op) {
    const Batch *b = e->batch;
    RowAttention attention = {
        .query = b->workspace.buffers[op->from], .to = b->workspace.buffers[op->to], .stride = b->workspace.strides[op->from],
        .to_stride = b->workspace.strides[op->to], .starts = b->starts, .heads = op->heads, .groups = op->groups, .head = op->head,
        .before = op->before, .after = op->after, .scale = op->scale, .bias = op->table, .reach = op->reach,
        .distances = op->distances, .rounded = op->rounded};
    e->attention = &attention;
    saucier_parallel(e->threads, b->rows * op->groups, attend_chunk, e);
}

/* Put the vectors of a token's neighbours side by side, its own among them, for the tokens of a row; beyond it are zeros. */
static void gather_neighbours(void *argument, int64_t row, int thread) {
    const Encoding *e = argument;
    const Batch *b = e->batch;
    const Op *op = e->op;
    int64_t width = op->width / (op->before + 1 + op->after), first = b->starts[row], last = b->starts[row + 1];
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        float *to = b->workspace.buffers[op->to] + i * b->workspace.strides[op->to];
        for (int64_t near = i - op->before; near <= i + op->after; near++, to += width)
            if (near < first || near >= last) memset(to, 0, (size_t)width * sizeof(float));
            else memcpy(to, b->workspace.buffers[op->from] + near * b->workspace.strides[op->from], (size_t)width * sizeof(float));
    }
}

/* A step that takes tokens one by one, for some of them. */
static void run_tokens(void *argument, int64_t chunk, int thread) {
    const Encoding *e = argument;
    const Batch *b = e->batch;
    const Op *op = e->op;
    const Kernels *kernels = e->kernels;
    int64_t end = (chunk + 1) * TOKENS_AT_ONCE < b->tokens ? (chunk + 1) * TOKENS_AT_ONCE : b->tokens;
    (void)thread;
    for (int64_t i = chunk * TOKENS_AT_ONCE; i < end; i++) {
        float *from = b->workspace.buffers[op->from] + i * b->workspace.strides[op->from];
        float *to = b->workspace.buffers[op->to] + i * b->workspace.strides[op->to];
        switch (op->kind) {
            case EMBED: saucier_read_row(kernels, op->matrix, b->ids[i], to, op->scale, 0); break;
            case PLACES: saucier_read_row(kernels, op->matrix, b->places[i], to, 1.0f, 1); break;
            case SEGMENTS: saucier_read_row(kernels, op->matrix, b->segments[i], to, 1.0f, 1); break;
            case NORM: kernels->norm(op->norm, from, to, op->width, op->gain, op->bias, op->eps); break;
            case ROTATE:
                kernels->rotate(to, op->heads, op->head, op->turned, op->neighbours, op->table + b->places[i] * op->turned);
                break;
            case GATE: kernels->gate(op->activation, to, op->width); break;
            case ACTIVATE: kernels->activate(op->activation, to, op->width); break;
            case ADD: for (int64_t k = 0; k < op->width; k++) to[k] += from[k]; break;
            case SCALE: for (int64_t k = 0; k < op->width; k++) to[k] *= op->scale; break;
        }
    }
}

/* One pass: steps are products, norms, attention among whole rows, experts, neighbours, and what takes tokens one by one. */
static void encode_batch(const Kernels *kernels, const Plan *plan, const Batch *batch, int threads) {
    const Workspace *held = &batch->workspace;
    Encoding encoding = {.kernels = kernels, .batch = batch, .threads = threads};
    if (batch->vectors)
        memcpy(held->buffers[STREAM], batch->vectors, (size_t)(batch->tokens * held->strides[STREAM]) * sizeof(float));
    for (int32_t i = 0; i < plan->count && batch->tokens; i++) {
        const Op *op = encoding.op = plan->ops + i;
        if (op->kind == PRODUCT) run_product(&encoding, op, plan->ops + plan->count);
        else if (op->kind == ATTEND_ROWS) run_attention(&encoding, op);
        else if (op->kind == NEIGHBOURS) saucier_parallel(threads, batch->rows, gather_neighbours, &encoding);
        else if (op->kind == EXPERTS)
            saucier_run_experts(&(Experts){
                .kernels = kernels, .op = op, .buffers = held->buffers, .strides = held->strides, .n = batch->tokens,
                .starts = batch->starts, .multiply = multiply_expert, .pass = &encoding});
        else saucier_parallel(threads, (batch->tokens + TOKENS_AT_ONCE - 1) / TOKENS_AT_ONCE, run_tokens, &encoding);
    }
    const Op *last = plan->ops + plan->count - 1;
    for (int64_t i = 0; batch->found && i < batch->tokens; i++)
        memcpy(batch->found + i * last->width, held->buffers[last->to] + i * held->strides[last->to],
               (size_t)last->width * sizeof(float));
}

typedef struct {
    const Kernels *kernels;
    const Plan *plan;
    const Batch *batches;
    const Workspace *workspaces;
} Passes;

static void encode_one(void *argument, int64_t number, int thread) {
    const Passes *p = argument;
    Batch batch = p->batches[number];
    batch.workspace = p->workspaces[thread];
    encode_batch(p->kernels, p->plan, &batch, 1);
}

/* Some passes: at once, each by one thread, where threads have `workspaces`; or one after the other, each by all threads.
 * Threads that share each step wait for each other, and for what lies in each other's caches. */
void saucier_encode(const char *path, const Plan *plan, const Batch *batches, int64_t count,
                    const Workspace *workspaces, int threads) {
    Passes passes = {saucier_kernels(path), plan, batches, workspaces};
    threads = saucier_enter(threads);
    if (workspaces) saucier_parallel(threads, count, encode_one, &passes);
    else
        for (int64_t i = 0; i < count; i++) encode_batch(passes.kernels, plan, batches + i, threads);
    saucier_leave();
}

/* One product of many tokens, for tests and measurements. */
void saucier_multiply(const char *path, const WideProduct *product, int threads) {
    const Kernels *kernels = saucier_kernels(path);
    WideProduct copy = *product;
    copy.activate = kernels->activate;
    threads = saucier_enter(threads);
    saucier_multiply_wide(kernels, &copy, threads);
    saucier_leave();
}
