/* Attention among the tokens of whole rows by AMX, of floats by products of bfloat16. Included by rows.c, for the set that has
 * it. Panels of a step have registers of 32 inputs, then those of their rests. */
#include "registers.h"

#define FEWEST_OF_SPLIT 64 /* tokens of a row: shorter ones are faster in floats */

/* Two inputs of a panel: a row of registers. */
INLINE __m512i pair_up(Vector first, Vector second) { return _mm512_or_si512(_mm512_srli_epi32((__m512i)first, 16), (__m512i)second); }
INLINE void split_pair(Vector first, Vector second, float *to) {
    Vector half = round_half(first), other = round_half(second);
    _mm512_storeu_si512(to, pair_up(half, other));
    first = round_half(_mm512_sub_ps(first, half)), second = round_half(_mm512_sub_ps(second, other));
    _mm512_storeu_si512(to + REGISTER_ROWS * WIDTH, pair_up(first, second));
}

/* to[r, 0..16 P] = the sums of 16 vectors, `to_next` from each other, with P panels, `apart` from each other. */
INLINE void multiply_split(const float *x, int64_t to_next, const float *panels, int64_t apart, int64_t inputs, float *to,
                           int64_t stride, const int P) {
    begin_sums();
    add_split(x, to_next, (Pairs){(const char *)panels, REGISTER_BYTES, SPLIT * PANEL * 4, apart * 4}, inputs, 1, P);
    store_sums(to, stride, P);
}

/* Keys [count, E], every one `stride` from the next, as panels of E inputs, whole steps of them. */
INLINE void split_keys(const float *keys, int64_t stride, int64_t count, int64_t head, float *to) {
    _Alignas(64) float turned[SPLIT * PANEL];
    for (int64_t start = 0; start < count; start += PANEL)
        for (int64_t e = 0; e < head; e += SPLIT, to += SPLIT * PANEL) {
            int64_t width = head - e < SPLIT ? head - e : SPLIT;
            turn_keys(keys + start * stride + e, stride, count - start < PANEL ? count - start : PANEL, width, turned, PANEL);
            memset(turned + width * PANEL, 0, (size_t)((SPLIT - width) * PANEL) * sizeof(float));
            for (int64_t i = 0; i < SPLIT; i += 2)
                split_pair(load(turned + i * PANEL), load(turned + (i + 1) * PANEL), to + i / 2 * PANEL);
        }
}

/* Values likewise, as panels of tokens, whole steps of them. */
INLINE void split_values(const float *values, int64_t stride, int64_t count, int64_t head, float *to) {
    for (int64_t e = 0; e < head; e += PANEL)
        for (int64_t t = 0; t < count; t += SPLIT, to += SPLIT * PANEL)
            for (int64_t i = 0; i < SPLIT; i += 2) {
                const float *from = values + (t + i) * stride + e;
                split_pair(t + i < count ? load_first(from, head - e) : no_numbers(),
                           t + i + 1 < count ? load_first(from + stride, head - e) : no_numbers(), to + i / 2 * PANEL);
            }
}

/* What a row's keys and values lie in, and what 16 queries of a head need. */
typedef struct {
    const float *keys, *values;
    float *queries, *scores; /* [16, deep], [16, room] */
    int64_t count, deep, room; /* tokens of the row; numbers of a head, and tokens, in whole steps */
} SplitRow;

/* Attention of `size` queries of one head, from token `start` of the row on; see `attend_tile`. */
static void attend_split_tile(const RowAttention *a, const SplitRow *row, const float *query, float *to, int64_t start,
                              int64_t size, const float *bias) {
    _Alignas(64) float part[REGISTER_ROWS * 4 * PANEL];
    float factors[REGISTER_ROWS];
    int64_t head = a->head, begin = a->before < start ? start - a->before : 0, end = start + size + a->after;
    begin = begin / SPLIT * SPLIT, end = split_up(end < row->count ? end : row->count);
    for (int64_t r = 0; r < size; r++)
        for (int64_t e = 0; e < head; e += SPLIT)
            split_vector(query + r * a->stride + e, head - e, row->queries + r * row->deep + e);
    for (int64_t t = begin; t < end; t += 4 * PANEL)
#define MEET_KEYS(P) \
    multiply_split(row->queries, row->deep, row->keys + t * row->deep, PANEL * row->deep, row->deep, row->scores + t, row->room, P)
        EACH_PANELS((end - t) / PANEL, MEET_KEYS)
    for (int64_t r = 0; r < size; r++) {
        int64_t place = start + r, first = a->before < place ? place - a->before : 0;
        int64_t last = place + a->after < row->count ? place + a->after : row->count - 1;
        float *scores = row->scores + r * row->room;
        factors[r] = weigh(scores, begin, end, first, last, a->scale, bias ? bias - r : NULL);
        for (int64_t t = begin; t < end; t += SPLIT) split_vector(scores + t, SPLIT, scores + t);
    }
    for (int64_t e = 0; e < head; e += 4 * PANEL) {
        int64_t width = head - e < 4 * PANEL ? head - e : 4 * PANEL;
#define MIX_VALUES(P) \
    multiply_split(row->scores + begin, row->room, row->values + e * row->room + begin * PANEL, row->room * PANEL, end - begin, \
                   part, 4 * PANEL, P)
        EACH_PANELS((width + PANEL - 1) / PANEL, MIX_VALUES)
        for (int64_t r = 0; r < size; r++)
#pragma omp simd
            for (int64_t i = 0; i < width; i++) to[r * a->to_stride + e + i] = part[r * 4 * PANEL + i] * factors[r];
    }
}

/* The same as `attend_row`. `room`: keys and values in whole steps, and 16 rows of queries and of scores. */
static void attend_split_row(const RowAttention *a, int64_t number, int64_t group, float *room) {
    int64_t head = a->head, sharing = a->heads / a->groups, first = a->starts[number], count = a->starts[number + 1] - first;
    const float *from = a->query + first * a->stride, *key = from + (a->heads + group) * head;
    SplitRow row = {.count = count, .deep = split_up(head), .room = split_up(count), .keys = room};
    float *values = room + row.room * row.deep;
    row.values = values, row.queries = values + (head + PANEL - 1) / PANEL * PANEL * row.room;
    row.scores = row.queries + REGISTER_ROWS * row.deep;
    split_keys(key, a->stride, count, head, room);
    split_values(key + a->groups * head, a->stride, count, head, values);
    shape_registers(REGISTER_BYTES, REGISTER_ROWS);
    for (int64_t h = group * sharing; h < (group + 1) * sharing; h++)
        for (int64_t start = 0; start < count; start += REGISTER_ROWS)
            attend_split_tile(a, &row, from + start * a->stride + h * head, a->to + (first + start) * a->to_stride + h * head, start,
                              count - start < REGISTER_ROWS ? count - start : REGISTER_ROWS,
                              a->bias ? a->bias + h * (2 * a->reach - 1) + a->reach - 1 - start : NULL);
    _tile_release();
}
