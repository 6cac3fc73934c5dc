/* Every product, activation, norm and attention against a plain definition in double, on every instruction set of the
 * processor that runs this; test_definitions.py compiles it, for other families of processors too. Prints the sets.
 * Letters: n tokens, E head width; r counts rows, k inputs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "saucier.h"

static const char *const PATHS[] = {"portable", "avx2", "avxvnni", "avx512", "avx512bf16", "amx", "neon"};
static const char *path;
static int faults;

static uint32_t draw(void) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static float *draw_numbers(int64_t count, float size) {
    float *found = malloc((size_t)(count + 1) * sizeof(float));
    for (int64_t i = 0; i < count; i++) found[i] = size * ((float)(draw() % 20001) / 10000.0f - 1.0f);
    return found;
}

/* `size`: of what was summed up, to whose rounding the result may differ. */
static void check(const char *what, double found, double expected, double size) {
    if (fabs(found - expected) <= 2e-6 * size + 1e-6) return;
    if (faults++ < 20) printf("%s, %s: %.9g is not %.9g\n", path, what, found, expected);
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static uint16_t narrow(float x) { return (uint16_t)((bits_of(x) + 0x7fff + (bits_of(x) >> 16 & 1)) >> 16); }

static double widen(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

/* ---- products ---- */

typedef struct {
    int format, scale_format;
    int64_t rows, inputs, group, n;
    float step;      /* of activations; negative: each block has its own */
    double *weights; /* [rows, inputs], what the stored numbers stand for */
    float *values;   /* [n, inputs] */
    double *read;    /* likewise, as rounded for whole numbers */
} Case;

static int64_t up(int64_t count, int64_t whole) { return (count + whole - 1) / whole * whole; }

/* Scales are powers of two, which all formats hold: in 16 bits 2^-4..2^3, of bfloat16 or of float16. */
static double put_scale(void *scales, int format, int64_t place) {
    int power = (int)(draw() % 8) - 4;
    float scale = ldexpf(1.0f, power);
    if (format == FLOAT32) ((float *)scales)[place] = scale;
    else ((uint16_t *)scales)[place] = format == BFLOAT16 ? narrow(scale) : (uint16_t)((power + 15) << 10);
    return scale;
}

/* Lay out panels of drawn numbers, as saucier.h says, and fill in what they stand for. */
static Panels draw_panels(Case *c) {
    int64_t panels = up(c->rows, 16) / 16, units = up(c->inputs, 32), groups = (c->inputs + c->group - 1) / c->group;
    uint8_t *codes = calloc((size_t)(panels * 16 * units), 4);
    void *scales = calloc((size_t)(panels * groups * 16), 4);
    double *scale_of = calloc((size_t)(panels * groups * 16), sizeof(double));
    float *shifts = (c->format == INT8 || c->format == INT4) && draw() % 2 ? draw_numbers(panels * groups * 16, 9) : NULL;
    for (int64_t i = 0; i < panels * groups * 16; i++) scale_of[i] = put_scale(scales, c->scale_format, i);
    for (int64_t r = 0; r < c->rows; r++)
        for (int64_t k = 0; k < c->inputs; k++) {
            int64_t panel = r / 16, i = r % 16, place = (panel * c->inputs + k) * 16 + i;
            double scale = scale_of[(panel * groups + k / c->group) * 16 + i], *weight = c->weights + r * c->inputs + k;
            int code = (int)(draw() % (c->format == INT8 ? 256 : 16)) - (c->format == INT8 ? 128 : 8);
            float number = (float)((int)(draw() % 2001) - 1000) / 1000.0f;
            *weight = code * scale + (shifts ? shifts[(panel * groups + k / c->group) * 16 + i] : 0);
            if (c->format == INT8) codes[(panel * up(c->inputs, 4) + k / 4 * 4) * 16 + i * 4 + k % 4] = (uint8_t)(code + 128);
            if (c->format == INT4)
                codes[(panel * units + k / 32 * 32) * 8 + (k % 16 / 4 * 16 + i) * 4 + k % 4] |=
                    (uint8_t)((code + 8) << k % 32 / 16 * 4);
            if (c->format == FLOAT32) ((float *)codes)[place] = number, *weight = number;
            if (c->format == BFLOAT16)
                ((uint16_t *)codes)[(panel * up(c->inputs, 2) + k / 2 * 2) * 16 + i * 2 + k % 2] = narrow(number),
                *weight = widen(narrow(number));
        }
    free(scale_of);
    return (Panels){codes, scales, c->rows, c->inputs, c->group, c->format, c->scale_format, c->step, shifts};
}

/* What a product reads of activations: codes of -127..127 of blocks where the matrix is of whole numbers. */
static void round_values(Case *c) {
    int64_t block = c->group >= c->inputs || c->group % 128 == 0 ? 128 : c->group % 64 == 0 ? 64 : 32;
    int whole = c->format == INT8 || c->format == INT4;
    int pairs = c->format == BFLOAT16 && (!strcmp(path, "avx512bf16") || !strcmp(path, "amx"));
    for (int64_t t = 0; t < c->n; t++)
        for (int64_t start = 0; start < c->inputs; start += block) {
            const float *x = c->values + t * c->inputs;
            int64_t end = start + block < c->inputs ? start + block : c->inputs;
            float largest = 0;
            for (int64_t k = start; k < end; k++) largest = fabsf(x[k]) > largest ? fabsf(x[k]) : largest;
            float inverse = largest > 0 ? 127.0f / largest : 0;
            for (int64_t k = start; k < end; k++) {
                float scaled = x[k] * inverse, away = scaled < 0 ? -0.5f : 0.5f, steps = x[k] / c->step;
                double code = c->step < 0 ? trunc((double)(float)(scaled + away)) : rint(fmax(-127, fmin(127, steps)));
                c->read[t * c->inputs + k] = whole ? code * (c->step < 0 ? largest / 127.0f : c->step)
                                             : pairs ? widen(narrow(x[k])) : x[k];
            }
        }
}

static void check_product(const Case *c, const char *what, const float *to, int64_t stride, const float *bias,
                          const float *base) {
    for (int64_t t = 0; t < c->n; t++)
        for (int64_t r = 0; r < c->rows; r++) {
            double sum = bias[r] + base[t * stride + r], size = fabs(sum);
            for (int64_t k = 0; k < c->inputs; k++) {
                double one = c->weights[r * c->inputs + k] * c->read[t * c->inputs + k];
                sum += one, size += fabs(one);
            }
            check(what, to[t * stride + r], sum, size);
        }
}

/* Products by panels, and as stored where the numbers are; a token gives the same alone, to the last bit. */
static void test_product(int format, int scale_format, int64_t n, int64_t inputs, int64_t rows, int64_t group) {
    Case c = {format, scale_format, rows, inputs, group, n, draw() % 3 ? -1.0f : 0.01f, calloc((size_t)(rows * inputs), 8),
              draw_numbers(n * inputs, 3), calloc((size_t)(n * inputs), 8)};
    int64_t stride = rows + 3, size = n * stride * (int64_t)sizeof(float);
    float *bias = draw_numbers(rows, 1), *base = draw_numbers(n * stride, 1), *to = malloc((size_t)size);
    float *tiles = malloc((size_t)(up(n, ROOM_TOKENS) * (inputs + SPARE_INPUTS)) * 4);
    float *token_scales = malloc((size_t)(up(n, ROOM_TOKENS) * (inputs / 32 + 1)) * 4);
    float *alone = malloc((size_t)stride * 4);
    char what[99];
    snprintf(what, sizeof what, "format %d, scales %d, %dx%dx%d by %d", format, scale_format, (int)n, (int)inputs,
             (int)rows, (int)group);
    Panels panels = draw_panels(&c);
    WideProduct p = {&panels, c.values, inputs, n, tiles, token_scales, bias, to, stride, IDENTITY, 1, NULL};
    memcpy(to, base, (size_t)size);
    round_values(&c);
    saucier_multiply(path, &p, 2);
    check_product(&c, what, to, stride, bias, base);
    int64_t last = n - 1;
    p.n = 1, p.values += last * inputs, p.to = alone;
    memcpy(alone, base + last * stride, (size_t)stride * 4);
    saucier_multiply(path, &p, 1);
    if (memcmp(alone, to + last * stride, (size_t)stride * 4)) check(what, 0, 1, 0);
    void *const made[] = {(void *)panels.codes, (void *)panels.scales, (void *)panels.shifts, c.weights, c.values, c.read, bias, base, to,
                          tiles, token_scales, alone};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) free(made[i]);
}

static void test_products(void) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {3, 37, 5}, {6, 32, 16}, {7, 33, 17}, {1, 256, 140}, {4, 130, 33},
                                        {13, 1100, 20}, {48, 96, 7}, {60, 515, 18}, {150, 70, 21},
                                        {37, 784, 256}, {145, 64, 512}, {301, 32, 256}};
    static const int64_t groups[] = {32, 64, 96, 128, 192, 256};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int format = FLOAT32; format <= INT4; format++)
            if (format != FLOAT16) test_product(format, s % 3, shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][1]);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (int64_t n = 1; n <= TILE_TOKENS + 1; n += 3) {
            test_product(INT8, g % 3, n, 768, 19, groups[g]);
            test_product(INT4, g % 3, n, 768, 19, groups[g]);
        }
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) test_product(INT8, g % 3, 38, 1536, 512, groups[g]);
}

/* ---- the others ---- */

static double define_activation(int kind, double x) {
    switch (kind) {
        case RELU: return x > 0 ? x : 0;
        case GELU: return x * 0.5 * (1 + erf(x / sqrt(2)));
        case GELU_TANH: return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
        case SILU: return x / (1 + exp(-x));
        case TANH: return tanh(x);
        case QUICK_GELU: return x / (1 + exp(-1.702 * x));
        case SQUARED_RELU: return x > 0 ? x * x : 0;
        case RELU6: return x < 0 ? 0 : x > 6 ? 6 : x;
        case LEAKY_RELU: return x > 0 ? x : 0.01 * x;
        case SIGMOID: return 1 / (1 + exp(-x));
        default: return x;
    }
}

static void test_activations_and_norms(const Kernels *kernels) {
    for (int kind = IDENTITY; kind <= SIGMOID; kind++)
        for (int gated = 0; gated < 2; gated++) {
            float *x = draw_numbers(2 * 301, 12), given[2 * 301];
            memcpy(given, x, sizeof given);
            if (gated) kernels->gate(kind, x, 301);
            else kernels->activate(kind, x, 301);
            for (int i = 0; i < 301; i++) {
                double expected = define_activation(kind, given[i]) * (gated ? given[301 + i] : 1);
                check(gated ? "gate" : "activation", x[i], expected, fabs(expected) + fabs(given[301 + i]));
            }
            free(x);
        }
    for (int64_t width = 1; width < 800; width = width * 3 + 4)
        for (int kind = LAYER_NORM; kind <= RMS_NORM; kind++) {
            float *x = draw_numbers(width, 5), *gain = draw_numbers(width, 2), *bias = draw_numbers(width, 1), to[800];
            double mean = 0, square = 0;
            kernels->norm(kind, x, to, width, gain, bias, 1e-5f);
            for (int64_t i = 0; i < width && kind == LAYER_NORM; i++) mean += x[i] / (double)width;
            for (int64_t i = 0; i < width; i++) square += (x[i] - mean) * (x[i] - mean) / (double)width;
            for (int64_t i = 0; i < width; i++)
                check("norm", to[i], (x[i] - mean) / sqrt(square + 1e-5) * gain[i] + bias[i], 5);
            free(x), free(gain), free(bias);
        }
}

static void test_log_softmax(const Kernels *kernels) {
    for (int64_t count = 1; count < 3000; count = count * 3 + 4) {
        float *x = draw_numbers(count, 9), *given = draw_numbers(count, 9);
        double sum = 0;
        memcpy(given, x, (size_t)count * sizeof *x);
        for (int64_t i = 0; i < count; i++) sum += exp(given[i]);
        kernels->log_softmax(x, count);
        for (int64_t i = 0; i < count; i++) check("log softmax", x[i], given[i] - log(sum), 9);
        free(x), free(given);
    }
}

/* softmax(0.3 q k + bias) v over keys first..last; `key` and `value`: those of key 0, each `stride` from the next. */
static void check_attention(const char *what, const float *to, const float *query, const float *key, const float *value,
                            int64_t stride, int64_t head, int64_t first, int64_t last, const float *bias_at_key_0,
                            double size) {
    double weights[256], sum = 0;
    for (int64_t t = first; t <= last; t++) {
        double score = bias_at_key_0 ? bias_at_key_0[t] : 0;
        for (int64_t e = 0; e < head; e++) score += 0.3 * query[e] * key[t * stride + e];
        sum += weights[t] = exp(score);
    }
    for (int64_t e = 0; e < head; e++) {
        double mixed = 0;
        for (int64_t t = first; t <= last; t++) mixed += weights[t] / sum * value[t * stride + e];
        check(what, to[e], mixed, size);
    }
}

/* Of a row to itself, and of one token to a cache: the same queries, keys and values. */
static void test_attention(const Kernels *kernels, int heads, int groups, int head, int count, int before, int after,
                           int biased) {
    int64_t stride = (heads + 2 * groups) * head, capacity = up(count, KEYS_AT_ONCE), reach = capacity;
    float *x = draw_numbers(count * stride, 1), *bias = draw_numbers(heads * (2 * reach - 1), 1);
    float *room = malloc((size_t)((2 * up(head, 32) + 16) * up(count, 32) + 16 * up(head, 32)) * 4);
    float *to = malloc((size_t)(count * heads * head) * 4);
    float *keys = calloc((size_t)(groups * capacity * head), 4);
    float *values = calloc((size_t)(groups * capacity * head), 4);
    uint16_t *halves = calloc((size_t)(groups * capacity * head), 4), *half_values = halves + groups * capacity * head;
    for (int64_t i = 0; i < count * stride; i++) x[i] = roundf(x[i] * 64) / 64; /* a number of bfloat16 too */
    float *scores = malloc((size_t)(TOGETHER * up(capacity, 32)) * 4), *by_distance = malloc((size_t)(heads * reach) * 4);
    int32_t starts[] = {0, count}, rows[] = {0}, places[] = {count - 1};
    RowAttention a = {x, to, stride, heads * head, starts, heads, groups, head, before, after, 0.3f,
                      biased ? bias : NULL, reach};
    for (a.rounded = 0; a.rounded < 2; a.rounded++) {
        for (int64_t g = 0; g < groups; g++) kernels->rows->attend(&a, 0, g, room);
        for (int64_t t = 0; t < count; t++)
            for (int64_t h = 0; h < heads; h++) {
                const float *key = x + (heads + h * groups / heads) * head;
                check_attention(a.rounded ? "attention of rows, rounded" : "attention of rows", to + (t * heads + h) * head,
                                x + t * stride + h * head, key, key + groups * head, stride, head,
                                t < before ? 0 : t - before, t + after < count ? t + after : count - 1,
                                biased ? bias + h * (2 * reach - 1) + reach - 1 - t : NULL, a.rounded ? 50 : 5);
            }
    }
    for (int64_t g = 0; g < groups; g++)
        for (int64_t t = 0; t < count; t++)
            for (int64_t e = 0; e < head; e++) {
                const float *key = x + t * stride + (heads + g) * head;
                keys[(g * capacity + t / 16 * 16) * head + e * 16 + t % 16] = key[e];
                values[(g * capacity + t) * head + e] = key[groups * head + e];
                if (head % 2) continue; /* bfloat16 lies in pairs */
                kernels->narrow(key + e, 1, halves + (g * capacity + t / 16 * 16) * head + (e / 2 * 16 + t % 16) * 2 + e % 2);
                kernels->narrow(key + groups * head + e, 1, half_values + (g * capacity + t / 2 * 2) * head + 2 * e + t % 2);
            }
    for (int64_t h = 0; h < heads; h++)
        for (int64_t away = 0; away < reach; away++)
            by_distance[h * reach + away] = bias[h * (2 * reach - 1) + reach - 1 - away];
    Attention b = {.query = x + (count - 1) * stride, .to = to, .stride = stride, .to_stride = heads * head,
                   .keys = keys, .values = values, .capacity = capacity, .rows = rows, .places = places, .heads = heads,
                   .groups = groups, .head = head, .window = before + 1, .scale = 0.3f,
                   .bias = biased ? by_distance : NULL, .reach = reach};
    for (int halved = 0; halved < 2 - head % 2; halved++) {
        if (halved) b.keys = halves, b.values = half_values, b.stored = BFLOAT16;
        for (int64_t g = 0; g < groups; g++) kernels->attend(&b, 0, 1, g, scores);
        for (int64_t h = 0; h < heads; h++) {
            const float *key = x + (heads + h * groups / heads) * head;
            check_attention(halved ? "attention to a cache of bfloat16" : "attention to the cache", to + h * head,
                            b.query + h * head, key, key + groups * head, stride, head,
                            count - 1 < before ? 0 : count - 1 - before, count - 1,
                            biased ? bias + h * (2 * reach - 1) + reach - count : NULL,
                            halved && head % 32 == 0 && !strcmp(kernels->name, "amx") ? 50 : 5);
        }
    }
    free(halves);
    free(x), free(bias), free(to), free(room), free(keys), free(values), free(scores), free(by_distance);
}

/* Where tokens meet vectors of distances: those of near ones follow each other, far ones share some. */
static void test_distances(const Kernels *kernels, int heads, int groups, int head, int count, int before, int near) {
    int64_t stride = (heads + 2 * groups) * head, reach = count + 1, many = 2 * reach - 1, first = near, last = near;
    int32_t starts[] = {0, count}, *rows = malloc((size_t)many * 4);
    for (int64_t i = 0; i < many; i++) rows[i] = i ? rows[i - 1] + (llabs(i - reach + 1) <= near || draw() % 3 == 0) : 0;
    while (first + 1 < reach && rows[reach - 1] - rows[reach - 2 - first] == first + 1) first++;
    while (last + 1 < reach && rows[reach + last] - rows[reach - 1] == last + 1) last++;
    int64_t vectors = up(rows[many - 1] + 1, 16), inputs = heads * head;
    float *x = draw_numbers(count * stride, 1), *made[2], *bias = malloc((size_t)count * 4);
    Panels panels[2];
    Distances met[2];
    for (int i = 0; i < 2; i++) {
        made[i] = draw_numbers(vectors * inputs, 0.3f);
        panels[i] = (Panels){.codes = made[i], .rows = vectors, .inputs = inputs, .group = inputs, .format = FLOAT32};
        met[i] = (Distances){panels + i, rows, -first, last};
    }
    float *room = malloc((size_t)((2 * up(head, 16) + TILE_TOKENS + QUERIES_AT_ONCE) * up(count, 16) + 16 * QUERIES_AT_ONCE +
                                  TILE_TOKENS * vectors) * 4);
    float *to = malloc((size_t)(count * heads * head) * 4);
    RowAttention a = {x, to, stride, heads * head, starts, heads, groups, head, before, count, 0.3f, NULL, reach, met};
    for (int64_t g = 0; g < groups; g++) kernels->rows->attend(&a, 0, g, room);
    for (int64_t t = 0; t < count; t++)
        for (int64_t h = 0; h < heads; h++) {
            const float *query = x + t * stride + h * head, *keys = x + (heads + h * groups / heads) * head;
            for (int64_t k = 0; k < count; k++) {
                int64_t by_key = rows[reach - 1 + k - t], by_query = rows[reach - 1 + t - k];
                double sum = 0;
                for (int64_t e = 0; e < head; e++)
                    sum += query[e] * made[0][(by_key / 16 * inputs + h * head + e) * 16 + by_key % 16] +
                           keys[k * stride + e] * made[1][(by_query / 16 * inputs + h * head + e) * 16 + by_query % 16];
                bias[k] = (float)sum;
            }
            check_attention("attention by distance", to + (t * heads + h) * head, query, keys, keys + groups * head, stride,
                            head, t < before ? 0 : t - before, count - 1, bias, 5);
        }
    free(x), free(to), free(room), free(rows), free(bias), free(made[0]), free(made[1]);
}

int main(void) {
    for (size_t i = 0; i < sizeof PATHS / sizeof *PATHS; i++) {
        const Kernels *kernels = saucier_kernels(path = PATHS[i]);
        if (!kernels) continue;
        test_products();
        test_activations_and_norms(kernels);
        test_log_softmax(kernels);
        test_attention(kernels, 4, 4, 13, 1, 99, 99, 0);
        test_attention(kernels, 4, 2, 32, 35, 99, 0, 1);
        test_attention(kernels, 6, 1, 8, 17, 3, 3, 0);
        test_attention(kernels, 3, 3, 17, 64, 99, 99, 1);
        test_attention(kernels, 1, 1, 64, 100, 5, 40, 1);
        test_distances(kernels, 4, 2, 13, 35, 99, 99);
        test_distances(kernels, 2, 2, 32, 200, 999, 20);
        test_distances(kernels, 1, 1, 8, 64, 5, 0);
        printf("%s\n", path);
    }
    printf("best %s\n", saucier_best_path());
    return faults > 0;
}
