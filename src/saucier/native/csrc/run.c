/* A pass over a plan: every step for all tokens, with nothing of Python in it; and which instruction set is used. */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>

#include "saucier.h"
#ifdef HAS_AVX2
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif
#if defined HAS_NEON && defined __linux__
#include <sys/auxv.h>
#endif

extern const Kernels kernels_portable, kernels_avx2, kernels_avxvnni, kernels_avx512, kernels_avx512bf16, kernels_amx, kernels_neon;

#ifdef HAS_AVX2
/* Sets that this processor has, each a bit, where the system keeps the registers. */
enum { AVX2 = 1, AVX_VNNI = 2, AVX512 = 4, AVX512_BF16 = 8, AMX = 16 };

/* Whether Linux keeps the registers of AMX for this process, which has to ask for it. */
static int asks_for_amx(unsigned low) {
#ifdef __linux__
    return (low & 3 << 17) == 3 << 17 && !syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18);
#else
    return (void)low, 0;
#endif
}

static int find_sets(void) {
    const unsigned of_512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    unsigned a, b, c, d, low, high, more = 0, none;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_FMA) || !(c & bit_F16C) || !(c & bit_OSXSAVE)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 0x06) != 0x06 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return 0;
    if (a >= 1) __get_cpuid_count(7, 1, &more, &none, &none, &none);
    int sets = AVX2 | (more & 1 << 4 ? AVX_VNNI : 0);
    if ((low & 0xe0) == 0xe0 && (b & of_512) == of_512 && c & 1 << 11) sets |= AVX512 | (more & 1 << 5 ? AVX512_BF16 : 0);
    const unsigned of_amx = 1 << 22 | 1 << 24 | 1 << 25; /* bfloat16, registers, int8 */
    if (sets & AVX512_BF16 && (d & of_amx) == of_amx && asks_for_amx(low)) sets |= AMX;
    return sets;
}

/* Asked once: a virtual machine takes some ten microseconds to answer. */
static int has_set(int set) {
    static _Atomic int known = -1;
    if (known < 0) known = find_sets();
    return known & set;
}

/* Intel's processors begin a product of registers of bfloat16 in every other cycle only: widened numbers are multiplied
 * 1.8 times as fast. */
static int multiplies_bfloat16_slowly(void) {
    unsigned a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx;
}
#endif

#ifdef HAS_NEON
/* Apple's processors of 64 bits for computers all have them. */
static int has_dot_products(void) {
#ifdef __linux__
    return (getauxval(AT_HWCAP) & 1 << 20) != 0;
#else
    return 1;
#endif
}
#endif

/* The kernels of a path; NULL where this machine, or this build, has it not. */
const Kernels *saucier_kernels(const char *path) {
    if (!strcmp(path, "portable")) return &kernels_portable;
#ifdef HAS_AVX2
    if (!strcmp(path, "avx2") && has_set(AVX2)) return &kernels_avx2;
#endif
#ifdef HAS_AVXVNNI
    if (!strcmp(path, "avxvnni") && has_set(AVX_VNNI)) return &kernels_avxvnni;
#endif
#ifdef HAS_AVX512
    if (!strcmp(path, "avx512") && has_set(AVX512)) return &kernels_avx512;
#endif
#ifdef HAS_AVX512BF16
    if (!strcmp(path, "avx512bf16") && has_set(AVX512_BF16)) return &kernels_avx512bf16;
#endif
#ifdef HAS_AMX
    if (!strcmp(path, "amx") && has_set(AMX)) return &kernels_amx;
#endif
#ifdef HAS_NEON
    if (!strcmp(path, "neon") && has_dot_products()) return &kernels_neon;
#endif
    return NULL;
}

static const char *find_best_path(void) {
    static const char *const paths[] = {"amx", "avx512bf16", "avx512", "avxvnni", "avx2", "neon"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
#ifdef HAS_AVX2
        if (!strcmp(paths[i], "avx512bf16") && multiplies_bfloat16_slowly()) continue;
#endif
        if (saucier_kernels(paths[i])) return paths[i];
    }
    return "portable";
}

/* Found once, as the sets are. */
const char *saucier_best_path(void) {
    static const char *_Atomic found = NULL;
    if (!found) found = find_best_path();
    return found;
}

typedef struct {
    const Kernels *kernels;
    const Attention *attention;
    const int32_t *runs; /* [+ 1]: where tokens begin that attend together */
    int64_t count;       /* of runs: all of a head come before those of the next, so that its keys stay in the second cache */
    float *scores;
    int64_t score_stride;
} Work;

static void run_heads(void *argument, int64_t chunk, int thread) {
    const Work *work = argument;
    int64_t run = chunk % work->count, first = work->runs[run], end = work->runs[run + 1];
    work->kernels->attend(work->attention, first, end - first, chunk / work->count, work->scores + thread * work->score_stride);
}

typedef struct {
    const Kernels *kernels;
    const Session *session;
    int64_t n;
    const int32_t *tokens, *rows, *places, *wanted;
    int64_t wanted_count;
    int threads;
    const Op *op; /* EXPERTS: the step */
} Pass;

static float *row_of(const Pass *pass, int buffer, int64_t i) {
    return pass->session->buffers[buffer] + i * pass->session->strides[buffer];
}

/* Copy, or add, a stored row of any format, times a factor. */
void saucier_read_row(const Kernels *kernels, const Matrix *m, int64_t row, float *to, float scale, int adds) {
    const float *stored = (const float *)m->codes + row * m->inputs;
    if (m->format == FLOAT32 && adds)
        for (int64_t k = 0; k < m->inputs; k++) to[k] += stored[k] * scale;
    else if (m->format == FLOAT32)
        for (int64_t k = 0; k < m->inputs; k++) to[k] = stored[k] * scale;
    else
        for (int64_t k = 0; k < m->inputs; k++) to[k] = (adds ? to[k] : 0) + kernels->weight(m, row, k) * scale;
}

/* A product of the first n vectors of a buffer. */
static void multiply_buffers(const Pass *pass, const Panels *panels, int from, int to, int64_t n, const float *bias,
                             int activation, int adds) {
    const Session *s = pass->session;
    WideProduct product = {
        .panels = panels, .values = s->buffers[from], .from_stride = s->strides[from], .n = n, .tiles = s->tiles,
        .token_scales = s->token_scales, .bias = bias, .to = s->buffers[to], .stride = s->strides[to],
        .activation = activation, .adds = adds, .activate = pass->kernels->activate};
    saucier_multiply_wide(pass->kernels, &product, pass->threads);
}

/* Write the keys and values of a token at a place of its room, which begins at `start` and has `capacity` places. */
static void keep_token(const Pass *pass, const Op *op, const float *key, void *keys, void *values, int64_t start,
                       int64_t capacity, int64_t place) {
    int64_t head = op->head, width = op->groups * head;
    for (int64_t g = 0; g < op->groups; g++, key += head, start += capacity * head) {
        if (pass->session->stored == FLOAT32) {
            for (int64_t e = 0; e < head; e++) ((float *)keys)[start + key_at(place, e, head, FLOAT32)] = key[e];
            memcpy((float *)values + start + place * head, key + width, (size_t)head * sizeof(float));
            continue;
        }
        uint16_t narrow[PANEL_ROWS];
        for (int64_t e = 0, some; e < head; e += some) {
            some = head - e < PANEL_ROWS ? head - e : PANEL_ROWS;
            pass->kernels->narrow(key + e, some, narrow);
            for (int64_t i = 0; i < some; i++) ((uint16_t *)keys)[start + key_at(place, e + i, head, BFLOAT16)] = narrow[i];
            pass->kernels->narrow(key + width + e, some, narrow);
            for (int64_t i = 0; i < some; i++) ((uint16_t *)values)[start + value_at(place, e + i, head, BFLOAT16)] = narrow[i];
        }
    }
}

/* Keys or values from one attention on. */
static void *from_layer(const Session *s, const void *numbers, int64_t layer) {
    return (char *)numbers + layer * (s->stored == FLOAT32 ? 4 : 2);
}

/* Whether a token reads the keys of the one before: of its row, or of the source of both. */
static int goes_on(const Attention *a, int64_t token) {
    int32_t row = a->rows[token], before = a->rows[token - 1];
    if (a->sources) return a->sources[row] == a->sources[before];
    return row == before && a->places[token] == a->places[token - 1] + 1;
}

static void run_attention(const Pass *pass, const Op *op, Attention attention) {
    const Session *s = pass->session;
    attention.query = s->buffers[op->from], attention.stride = s->strides[op->from];
    attention.to = s->buffers[op->to], attention.to_stride = s->strides[op->to];
    attention.rows = pass->rows, attention.places = pass->places;
    attention.heads = op->heads, attention.groups = op->groups, attention.head = op->head;
    attention.scale = op->scale;
    int32_t runs[MOST_TOKENS + 1] = {0}, count = 0;
    int most = s->stored == FLOAT32 ? pass->kernels->rows->tile : pass->kernels->together;
    for (int32_t i = 1; i < pass->n; i++)
        if (!goes_on(&attention, i) || i - runs[count] == most) runs[++count] = i;
    runs[++count] = (int32_t)pass->n;
    Work work = {.kernels = pass->kernels, .attention = &attention, .runs = runs, .count = count, .scores = s->scores,
                 .score_stride = s->score_stride};
    saucier_parallel(pass->threads, count * op->groups, run_heads, &work);
}

/* Write the new keys and values of all tokens, then let all attend: tokens of one row see each other by their places. */
static void attend_rows(const Pass *pass, const Op *op) {
    const Session *s = pass->session;
    void *keys = from_layer(s, s->keys, op->slot * s->rows * s->capacity);
    void *values = from_layer(s, s->values, op->slot * s->rows * s->capacity);
    for (int64_t i = 0; i < pass->n; i++)
        keep_token(pass, op, row_of(pass, op->from, i) + op->heads * op->head, keys, values,
                   pass->rows[i] * op->groups * s->capacity * op->head, s->capacity, pass->places[i]);
    run_attention(pass, op, (Attention){
        .keys = keys, .values = values, .stored = s->stored, .capacity = s->capacity, .window = op->window,
        .bias = op->table, .reach = op->reach, .relative = op->relative, .seen = op->seen});
}

/* The tokens of this pass are vectors of sources: `rows` numbers the sources. */
static void keep_sources(const Pass *pass, const Op *op) {
    const Session *s = pass->session;
    void *keys = from_layer(s, s->source_keys, op->slot * s->source_places);
    void *values = from_layer(s, s->source_values, op->slot * s->source_places);
    for (int64_t i = 0; i < pass->n; i++) {
        int64_t source = pass->rows[i], length = s->source_lengths[source];
        keep_token(pass, op, row_of(pass, op->from, i), keys, values,
                   s->source_starts[source] * op->groups * op->head,
                   (length + KEYS_AT_ONCE - 1) / KEYS_AT_ONCE * KEYS_AT_ONCE, pass->places[i]);
    }
}

static void attend_sources(const Pass *pass, const Op *op) {
    const Session *s = pass->session;
    void *keys = from_layer(s, s->source_keys, op->slot * s->source_places);
    void *values = from_layer(s, s->source_values, op->slot * s->source_places);
    run_attention(pass, op, (Attention){
        .keys = keys, .values = values, .stored = s->stored, .capacity = s->longest_source,
        .sources = s->sources, .lengths = s->source_lengths, .starts = s->source_starts});
}

static void multiply_expert(const void *argument, int32_t matrix, const ExpertMap *map) {
    const Pass *pass = argument;
    multiply_buffers(pass, pass->op->panels + matrix, map->from, map->to, map->n, map->bias, map->activation, 0);
}

static void run_op(Pass *pass, const Op *op) {
    const Kernels *kernels = pass->kernels;
    switch (op->kind) {
        case PRODUCT:
            return multiply_buffers(pass, op->panels, op->from, op->to, pass->n, op->bias, op->activation, op->adds);
        case ATTEND: return attend_rows(pass, op);
        case KEEP: return keep_sources(pass, op);
        case CROSS: return attend_sources(pass, op);
        case EXPERTS:
            pass->op = op;
            return saucier_run_experts(&(Experts){
                .kernels = kernels, .op = op, .buffers = pass->session->buffers, .strides = pass->session->strides,
                .n = pass->n, .multiply = multiply_expert, .pass = pass});
    }
    if (op->kind == SELECT) { /* from here on only the tokens whose scores are wanted; they come in rising order */
        for (int64_t i = 0; i < pass->wanted_count; i++)
            memmove(row_of(pass, op->to, i), row_of(pass, op->from, pass->wanted[i]), (size_t)op->width * sizeof(float));
        pass->n = pass->wanted_count;
        return;
    }
    for (int64_t i = 0; i < pass->n; i++) {
        float *from = row_of(pass, op->from, i), *to = row_of(pass, op->to, i);
        int64_t place = pass->places[i];
        switch (op->kind) {
            case EMBED: saucier_read_row(kernels, op->matrix, pass->tokens[i], to, op->scale, 0); break;
            case PLACES:
                place = pass->tokens[i] == op->padding ? op->padding : place + op->offset;
                saucier_read_row(kernels, op->matrix, place, to, 1.0f, 1);
                break;
            case NORM: kernels->norm(op->norm, from, to, op->width, op->gain, op->bias, op->eps); break;
            case ROTATE: kernels->rotate(to, op->heads, op->head, op->turned, op->neighbours, op->table + place * op->turned); break;
            case GATE: kernels->gate(op->activation, to, op->width); break;
            case ACTIVATE: kernels->activate(op->activation, to, op->width); break;
            case ADD: for (int64_t k = 0; k < op->width; k++) to[k] += from[k]; break;
            case SHIFT: for (int64_t k = 0; k < op->width; k++) to[k] += op->bias[k]; break;
            case SCALE: for (int64_t k = 0; k < op->width; k++) to[k] *= op->scale; break;
        }
    }
}

/* Read n tokens (at most `most`), each at its place of its row of the cache. The tokens that `wanted` numbers, in
 * rising order, leave what the last step of the plan gives in the first rows of its buffer. */
void saucier_run(const char *path, const Plan *plan, const Session *session, int64_t n, const int32_t *tokens,
                 const int32_t *rows, const int32_t *places, const int32_t *wanted, int64_t wanted_count, int threads) {
    Pass pass = {.kernels = saucier_kernels(path), .session = session, .n = n, .tokens = tokens, .rows = rows,
                 .places = places, .wanted = wanted, .wanted_count = wanted_count, .threads = saucier_enter(threads)};
    for (int32_t i = 0; i < plan->count && pass.n; i++) run_op(&pass, plan->ops + i);
    saucier_leave();
}

typedef struct {
    const Kernels *kernels;
    float *scores;
    int64_t width;
} Rows;

static void normalize_row(void *argument, int64_t row, int thread) {
    const Rows *rows = argument;
    rows->kernels->log_softmax(rows->scores + row * rows->width, rows->width);
    (void)thread;
}

/* Make log probabilities of the scores of some rows, in place. */
void saucier_log_softmax(const char *path, float *scores, int64_t rows, int64_t width, int threads) {
    Rows all = {saucier_kernels(path), scores, width};
    saucier_parallel(saucier_enter(threads), rows, normalize_row, &all);
    saucier_leave();
}
