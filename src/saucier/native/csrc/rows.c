/* Products with matrices in panels, of one token or of many, and attention among the tokens of whole rows. Compiled once for
 * each instruction set, as kernels.c is. Matrices are laid out in panels (see `Panels`), activations in tiles, and both are
 * cut so that what is read again stays in the caches (Goto and van de Geijn 2008, "Anatomy of High-Performance Matrix
 * Multiplication").
 * Letters: R tokens of a tile; k counts inputs. */
#include <math.h>
#include <string.h>
#include "tiles.h"

#define BLOCK 144         /* tokens at a time, whole tiles: what they have of a part stays in the second cache */
#define MOST_OF_BLOCK 288 /* those of whole numbers, which are smaller */

INLINE int64_t tokens_of_block(const Panels *m) {
#ifdef __AMX_TILE__
    if (m->format == BFLOAT16) return MOST_OF_BLOCK;
#endif
    return m->format == INT8 || m->format == INT4 ? MOST_OF_BLOCK : BLOCK;
}

/* ---- products ---- */

/* Inputs of a token that are rounded together: as many as groups, and what is multiplied at once, are whole multiples of. With
 * a step of the panels nothing is found out for them, and the sums of a part are exact in whole numbers. */
INLINE int64_t rounded_inputs(const Panels *m) {
    if (m->step >= 0 && m->format == INT8 && m->group >= m->inputs) return DEEP;
    return m->group >= m->inputs || m->group % LONGEST_BLOCK == 0 ? LONGEST_BLOCK : m->group % 64 == 0 ? 64 : UNIT;
}

/* Round numbers to codes of -127..127, the rest of whole units to zero; returns the number that a step stands for. */
INLINE float round_block(const float *x, int64_t count, int8_t *codes) {
    float largest = 0;
#ifdef CODES_AT_ONCE /* Clang would need three times as long with AVX-512, GCC twice */
    Vector most = no_numbers();
    for (int64_t k = 0; k < count; k += WIDTH) most = larger(absolute(load_first(x + k, count - k)), most);
    largest = largest_of(most);
    const float inverse = largest > 0 ? 127.0f / largest : 0;
    for (int64_t k = 0; k < count; k += CODES_AT_ONCE) {
        Vector some[4];
        for (int i = 0; i < 4; i++) some[i] = times(load_first(x + k + i * WIDTH, count - k - i * WIDTH), load_one(&inverse));
        round_away(some, codes + k);
    }
#else
#pragma omp simd reduction(max : largest)
    for (int64_t k = 0; k < count; k++) {
        float value = fabsf(x[k]);
        largest = value > largest ? value : largest;
    }
    float inverse = largest > 0 ? 127.0f / largest : 0;
#pragma omp simd
    for (int64_t k = 0; k < count; k++) {
        float value = x[k] * inverse;
        codes[k] = (int8_t)(int32_t)(value + copysignf(0.5f, value));
    }
    for (int64_t k = count; k % UNIT; k++) codes[k] = 0;
#endif
    return largest / 127.0f;
}

/* The same with a given step: the nearest code, the even one of two, within the range. */
INLINE float round_by_step(const float *x, int64_t count, float step, int8_t *codes) {
    const float round = 12582912.0f; /* 1.5 * 2^23: a small number added to it has no place for fractions */
    float divisor = step > 0 ? step : INFINITY;
#pragma omp simd
    for (int64_t k = 0; k < count; k++) {
        float value = x[k] / divisor;
        value = value > 127.0f ? 127.0f : value < -127.0f ? -127.0f : value;
        codes[k] = (int8_t)(int32_t)((value + round) - round);
    }
    for (int64_t k = count; k % (2 * UNIT); k++) codes[k] = 0;
    return step;
}

/* Codes are filled up with zeros to whole units, and with AVX-512 to whole registers. */
INLINE float round_inputs(const Panels *m, const float *x, int64_t count, int8_t *codes) {
    return m->step >= 0 ? round_by_step(x, count, m->step, codes) : round_block(x, count, codes);
}

/* Where a panel has its numbers from input k on; one of units begins with them. */
INLINE const char *panel_of(const Panels *m, int64_t panel, int64_t k) {
    switch (m->format) {
        case INT8: return (const char *)m->codes + (panel * ((m->inputs + 3) / 4 * 4) + k) * PANEL;
        case INT4: return (const char *)m->codes + (panel * ((m->inputs + UNIT - 1) / UNIT * UNIT) + k) * PANEL / 2;
        case BFLOAT16: return (const char *)m->codes + (panel * ((m->inputs + 1) / 2 * 2) + k) * PANEL * 2;
        default: return (const char *)m->codes + (panel * m->inputs + k) * PANEL * 4;
    }
}

/* Whether a product is one of whole registers of tokens and panels (amx.h). */
#ifdef __AMX_TILE__
#include "amx.h"
#define FEWEST_OF_CODES 10
INLINE int by_registers(const WideProduct *p) {
    return p->panels->format == BFLOAT16 || (p->panels->format == INT8 && p->n >= FEWEST_OF_CODES);
}
#else
INLINE int by_registers(const WideProduct *p) { return (void)p, 0; }
#endif

/* Tokens that meet one panel. Measured on Intel, whose set is AVX-512 without bfloat16: floats of one panel wait for each
 * other, two are 1.05 to 1.2 times as fast; codes are 1.04 to 1.28 times as fast by one, where two would split a small tile.
 * On a Zen 4, that asks its second cache, up to eight of floats are 1.03 to 1.1 times as fast by one panel. */
#ifdef ON_INTEL
#define FEW_OF_FLOATS 0
#define FEW_OF_CODES 36
#else
#define FEW_OF_FLOATS 8
#define FEW_OF_CODES TILE
#endif

/* Tokens of a tile. Few tiles are alike, since a small one leaves registers idle. */
INLINE int64_t tile_tokens(const WideProduct *p) {
    int64_t tiles = (p->n + TILE - 1) / TILE;
#ifdef __AMX_TILE__
    if (by_registers(p)) return REGISTER_ROWS;
#endif
#ifdef WHOLE_TILES
    if (p->panels->format == INT8 && p->n > FEW_OF_CODES) return TILE;
#endif
    return p->n <= MOST_TOKENS ? (p->n + tiles - 1) / tiles : TILE;
}

/* Bytes that the first inputs of a token take in a tile; of whole numbers see tiles.h. */
INLINE int64_t token_bytes(const Panels *m, int64_t inputs) {
    switch (m->format) {
        case INT8: return CODES_OF(inputs, rounded_inputs(m));
        case INT4: return (inputs + UNIT - 1) / UNIT * UNIT_BYTES;
#ifdef __AVX512BF16__
        case BFLOAT16: return (inputs + 1) / 2 * 4;
#endif
        default: return inputs * 4;
    }
}

/* Those that inputs k..k + count take. */
INLINE int64_t part_bytes(const Panels *m, int64_t k, int64_t count) { return token_bytes(m, k + count) - token_bytes(m, k); }

INLINE int64_t groups_of(const Panels *m) { return (m->inputs + m->group - 1) / m->group; }

/* Those of all its inputs. */
INLINE int64_t all_bytes(const WideProduct *p) {
#ifdef __AMX_TILE__
    if (by_registers(p)) return register_bytes(p->panels);
#endif
    return token_bytes(p->panels, p->panels->inputs);
}

/* Where a tile's tokens begin. */
INLINE char *tile_of(const WideProduct *p, int64_t token) {
    const Panels *m = p->panels;
    return (char *)p->tiles + token * (all_bytes(p) + (m->shifts ? groups_of(m) * (int64_t)sizeof(float) : 0));
}

/* Behind the codes of a tile of R tokens, where groups have shifts: the sums of their inputs, as they were rounded. [R, groups] */
INLINE float *sums_of_groups(const WideProduct *p, int64_t first, int64_t R) {
    if (by_registers(p)) R = tile_tokens(p);
    return (float *)(tile_of(p, first) + R * all_bytes(p));
}

/* Lay out inputs k..k + count of a token, those `from` on. Numbers of 4 bits lie in units of all R tokens of a tile, of which
 * it is r. */
static void lay_out_part(const WideProduct *p, const float *from, int64_t token, int64_t k, int64_t count, char *to, int64_t r,
                         int64_t R) {
    const Panels *m = p->panels;
    int64_t block = rounded_inputs(m);
    float *scale = p->token_scales + k / block * p->n + token;
    _Alignas(64) int8_t codes[DEEP];
#ifdef __AMX_TILE__
    if (m->format == BFLOAT16) {
        fill_pairs(from, k, count, tile_of(p, token - r), r);
        return;
    }
#elif defined __AVX512BF16__
    if (m->format == BFLOAT16) {
        round_pairs(from, count, to);
        return;
    }
#endif
    if (m->format != INT8 && m->format != INT4) {
        memcpy(to, from, (size_t)count * sizeof(float));
        return;
    }
    float chosen[DEEP];
    if (m->order) {
        for (int64_t i = 0; i < count; i++) chosen[i] = p->values[token * p->from_stride + m->order[k + i]];
        from = chosen;
    }
    float *sums = m->shifts ? sums_of_groups(p, token - r, R) + r * groups_of(m) : NULL;
    for (; count > 0; count -= block, from += block, scale += p->n, k += block) {
        int64_t inputs = count < block ? count : block;
        *scale = inputs == LONGEST_BLOCK ? round_inputs(m, from, LONGEST_BLOCK, codes) : round_inputs(m, from, inputs, codes);
        if (sums) sums[k / m->group] = (k % m->group ? sums[k / m->group] : 0) + *scale * (float)add_up_codes(codes, inputs);
#ifdef __AMX_TILE__
        if (by_registers(p)) {
            fill_registers(m, codes, k, inputs, tile_of(p, token - r), r);
            continue;
        }
#endif
        if (m->format == INT4)
            for (int64_t i = 0; i < inputs; i += UNIT, to += R * UNIT_BYTES) lay_out_unit(codes + i, (int8_t *)to, r, R);
        else if (inputs == LONGEST_BLOCK) to = lay_out_codes(codes, LONGEST_BLOCK, to);
        else to = lay_out_codes(codes, inputs, to);
    }
}

/* Lay out a tile of tokens, part after part of the inputs, and for whole numbers its scales. */
static void lay_out(const WideProduct *p, int64_t tile) {
    const Panels *m = p->panels;
    int64_t first = tile * tile_tokens(p), left = p->n - first, R = left < tile_tokens(p) ? left : tile_tokens(p);
    if (left <= 0) return; /* tiles of whole numbers may be larger than others */
    for (int64_t k = 0; k < m->inputs; k += DEEP) {
        int64_t count = m->inputs - k < DEEP ? m->inputs - k : DEEP;
        char *to = tile_of(p, first) + R * token_bytes(m, k);
        for (int64_t r = 0; r < R; r++)
            lay_out_part(p, p->values + (first + r) * p->from_stride + k, first + r, k, count,
                         m->format == INT4 ? to : to + r * part_bytes(m, k, count), r, R);
    }
}

/* Lay out some inputs of a token, whole blocks that lie in one part. */
static void lay_out_inputs(const WideProduct *p, const float *from, int64_t token, int64_t begin, int64_t count) {
    const Panels *m = p->panels;
    int64_t tile = tile_tokens(p), r = token % tile, first = token - r, R = p->n - first < tile ? p->n - first : tile;
    int64_t k = begin / DEEP * DEEP, part = m->inputs - k < DEEP ? m->inputs - k : DEEP;
    char *to = tile_of(p, first) + R * token_bytes(m, k);
    to += m->format == INT4 ? R * part_bytes(m, k, begin - k) : r * part_bytes(m, k, part) + part_bytes(m, k, begin - k);
    lay_out_part(p, from, token, begin, count, to, r, R);
}

/* Whether a panel of bfloat16 is widened before it is multiplied: where many tiles meet it. */
INLINE int widens(const Panels *m, int64_t tiles) {
#ifdef __AVX512BF16__
    return (void)m, (void)tiles, 0; /* it multiplies them as they are */
#else
    return m->format == BFLOAT16 && tiles > 8;
#endif
}

/* Inputs k..k + count of some panels as floats, in `room`. */
INLINE const float *widen_panels(const Panels *m, int64_t panel, int64_t panels, int64_t k, int64_t count, float *room) {
    for (int64_t one = 0; one < panels; one++) {
        const uint16_t *from = (const uint16_t *)panel_of(m, panel + one, k);
        float *to = room + one * DEEP * PANEL;
        for (int64_t pair = 0; pair < (count + 1) / 2; pair++, from += 2 * PANEL, to += 2 * PANEL)
#ifdef WIDTH
            for (int64_t i = 0; i < PANEL; i += WIDTH) {
                store(to + i, load_even(from + 2 * i));
                store(to + PANEL + i, load_odd(from + 2 * i));
            }
#else
            for (int64_t i = 0; i < PANEL; i++) {
                to[i] = widen_bfloat16(from[2 * i]);
                to[PANEL + i] = widen_bfloat16(from[2 * i + 1]);
            }
#endif
    }
    return room;
}

/* Tiles that ask the caches for a share each of what comes next: in the time of one less comes than all of them need. */
INLINE int64_t count_asking(const Panels *m, int few, int64_t tiles) {
    int whole = m->format == INT8 || m->format == INT4;
#ifdef ON_INTEL
    return (void)whole, (void)few, tiles < ASKING ? tiles : ASKING;
#elif defined ON_AVX2_ALONE
    int64_t most = whole ? ASKING / 2 : ASKING;
    return !few || tiles == 1 ? 0 : tiles < most ? tiles : most;
#else
    return (void)whole, (void)few, (void)tiles, 0;
#endif
}

/* What tile t of some asks the caches for while they meet `count` inputs of some panels. For few tokens what comes in memory,
 * by the first tile; for many, and by two panels of whole numbers, the same inputs of the next panels, by the first tile and
 * the last one, since the first cache may have lost them between these; or a share each of what comes `next`, in bytes from
 * here. A stream asks for what is AHEAD_OF_STREAMS. */
INLINE Ahead look_ahead(const WideProduct *p, int64_t panels, int64_t t, int64_t tiles, int64_t count, int64_t next) {
    const Panels *m = p->panels;
    int whole = m->format == INT8 || m->format == INT4, few = p->n <= MOST_TOKENS;
    int64_t asking = count_asking(m, few, tiles);
    const int64_t step = STEP;
    if (asking && t >= asking) return NOTHING_AHEAD;
    if (asking > 1) return (Ahead){next + (panel_of(m, 0, count) - panel_of(m, 0, 0)) * t / asking, (step + asking - 1) / asking};
    if (panels > 1 && p->n <= MOST_STREAMED) return (Ahead){AHEAD_OF_STREAMS, step};
    int64_t far = !whole ? AHEAD_OF_FLOATS : p->n <= 2 ? AHEAD_OF_TWO : AHEAD;
    if (few && !(whole && panels > 1)) return (Ahead){t ? 0 : far, step};
    return (Ahead){t == 0 || t == tiles - 1 ? panel_of(m, panels, 0) - panel_of(m, 0, 0) : 0, step};
}

/* Where the sums of a chunk of panels wait: [tokens, stride], of whole panels. They are close together, while the rows that
 * they end in may be so far apart that each of them is a page of its own. */
typedef struct {
    float *at;
    int64_t stride;
} Sums;

/* Panels that are multiplied together: the first one, how many, and how far it is from one to the next, in panels. */
typedef struct {
    int64_t first, count, apart;
} PanelSet;

/* What shifts give a tile of R tokens, from `first` on: each the sum of its group. */
static void add_shifts(const WideProduct *p, PanelSet set, int64_t first, int64_t R, Sums sums) {
    int64_t groups = groups_of(p->panels), stride = sums.stride;
    const Ahead asked = {AHEAD_OF_FLOATS, STEP};
    const float *shifts = p->panels->shifts + set.first * groups * PANEL, *a = sums_of_groups(p, first, R);
#define ADD_OF(some, ahead) \
    add_numbers(a + r * groups, 1, groups, shifts, PANEL, 0, groups, to, stride, PANEL, FLOAT32, ahead, 1, some, 1)
    for (int64_t one = 0; one < set.count; one++, shifts += set.apart * groups * PANEL)
        for (int64_t r = 0, some; r < R; r += some) {
            float *to = sums.at + r * stride + one * set.apart * PANEL;
            some = R - r < 4 ? 1 : 4;
            if (some == 1) ADD_OF(1, asked);
            else if (r) ADD_OF(4, NOTHING_AHEAD);
            else ADD_OF(4, asked);
        }
}

/* Inputs k..k + count of some panels for a tile of tokens, `size` from `token` on: what they give is added. `format`: of the
 * weights, which may be widened. */
INLINE void multiply_tile(const WideProduct *p, PanelSet set, const void *weights, int format, int64_t k, int64_t count,
                          int64_t token, int64_t size, const Ahead ahead, Sums sums) {
    const Panels *m = p->panels;
    const char *x = tile_of(p, token) + size * token_bytes(m, k);
    int64_t to_next = part_bytes(m, k, count);
    float *to = sums.at;
    int64_t groups = groups_of(m), size_of_scale = m->scale_format == FLOAT32 ? 4 : 2;
    int64_t bytes_apart = panel_of(m, set.apart, 0) - panel_of(m, 0, 0), stride = sums.stride;
    int64_t apart = format == m->format ? bytes_apart / (format == FLOAT32 ? 4 : 2) : DEEP * PANEL;
    const int64_t beyond = STREAMS > 1 ? set.apart * PANEL : PANEL;
    Scales scales = {
        .rows = (const char *)m->scales + set.first * groups * PANEL * size_of_scale,
        .tokens = p->token_scales + token, .stride = p->n, .group = m->group, .groups = set.apart * groups,
        .block = rounded_inputs(m), .begin = k,
        .format = m->scale_format};
#if STREAMS > 1
#define ON_STREAMS(R, DO) \
    if ((R) == 1 && set.count == STREAMS) DO(R, STREAMS); \
    else if ((R) == 1 && set.count == 3) DO(R, 3); \
    else if ((R) == 1 && set.count == 2) DO(R, 2); \
    else DO(R, 1)
#else
#define ON_STREAMS(R, DO) DO(R, 1)
#endif
#define ON_SIDES(R, DO) \
    if ((SIDE_BY_SIDE == 2 || (R) <= MOST_STREAMED) && set.count == 2) DO(R, 2); \
    else ON_STREAMS(R, DO)
#define ADD_CODES_OF(R, P) \
    add_codes(x, to_next, weights, bytes_apart, count, &scales, to, stride, beyond, ahead, R, P)
#define ADD_SHORT_OF(R, P) \
    add_short_codes((const int8_t *)x, weights, bytes_apart, count, &scales, to, stride, beyond, R, P)
#define ADD_NUMBERS(R, P, format) \
    add_numbers((const float *)x, 1, to_next / 4, weights, PANEL, apart, count, to, stride, beyond, format, ahead, 1, R, P)
#define ADD_FLOATS_OF(R, P) ADD_NUMBERS(R, P, FLOAT32)
#define ADD_FLOATS(R) ON_SIDES(R, ADD_FLOATS_OF)
#define ADD_CODES(R) ON_STREAMS(R, ADD_CODES_OF)
#define ADD_CODES_OF_TWO(R) ADD_CODES_OF(R, SIDE_BY_SIDE)
#ifdef ON_AVX2_ALONE
#define ADD_SHORT(R) ON_STREAMS(R, ADD_SHORT_OF)
#else
#define ADD_SHORT(R) ADD_SHORT_OF(R, 1)
#endif
    if (format == INT8 && ((STREAMS > 1 && size == 1) || set.count == 1)) EACH_SIZE(size, ADD_CODES)
    else if (format == INT8)
        for (int64_t left = size, some; left > 0; left -= some) { /* parts of about one size: 4 and 4, not 6 and 2 */
            some = left / ((left + FEW - 1) / FEW);
            EACH_FEW(some, ADD_CODES_OF_TWO)
            x += some * to_next, to += some * stride, scales.tokens += some;
        }
    else if (format == INT4) EACH_SIZE(size, ADD_SHORT)
    else if (format == FLOAT32) EACH_SIZE(size, ADD_FLOATS)
#ifdef __AVX512BF16__
#define ADD_PAIRS_OF(R, P) add_pairs(x, to_next, weights, apart, count, to, stride, beyond, ahead, R, P)
#else
#define ADD_PAIRS_OF(R, P) ADD_NUMBERS(R, P, BFLOAT16)
#endif
#define ADD_PAIRS(R) ON_SIDES(R, ADD_PAIRS_OF)
    else EACH_SIZE(size, ADD_PAIRS)
    if (m->shifts && k + count == m->inputs) add_shifts(p, set, token, size, sums);
}

/* Panels that are multiplied at once: one where there are so few tokens that memory is the limit, and is read in its order, or
 * as several streams. */
INLINE int64_t panels_at_once(const Panels *m, int64_t n) {
    int64_t few = m->format == INT8 ? FEW_OF_CODES : FEW_OF_FLOATS;
#ifndef ON_AVX2_ALONE
    if (m->format == INT4) return 1; /* whatever n is; as streams one thread lost 12 % (Zen 4) */
#endif
    if (n == 1 && STREAMS > 1) return STREAMS;
    if (n <= MOST_STREAMED && m->format == FLOAT32) return 2;
    return n <= few ? 1 : SIDE_BY_SIDE;
}

/* Ask the caches for where a tile will be written: stores that miss them are slow, and wait for each other. */
INLINE void ask_for_room(const WideProduct *p, int64_t token, int64_t size, PanelSet set) {
    for (int64_t i = token; i < token + size; i++)
        for (int64_t one = 0; one < set.count; one++)
            __builtin_prefetch(p->to + i * p->stride + (set.first + one * set.apart) * PANEL, 1);
}

/* Set i of the panels begin..end, so many `together`, for n tokens. Streams go on from one set to the next. */
INLINE PanelSet find_set(int64_t begin, int64_t end, int64_t together, int64_t i, int64_t n) {
    int64_t whole = (end - begin) / together, first = begin + i * together;
    if (n <= MOST_STREAMED && i < whole) return (PanelSet){begin + i, together, whole};
    return (PanelSet){first, end - first < together ? end - first : together, 1};
}

/* Some panels that meet inputs k..k + count of all tokens, and what comes next in memory. */
typedef struct {
    PanelSet set;
    int64_t k, count;
    const char *next;
} Round;

INLINE int64_t count_parts(const Panels *m) { return (m->inputs + DEEP - 1) / DEEP; }

INLINE int64_t count_rounds(const WideProduct *p, int64_t begin, int64_t end) {
    int64_t together = panels_at_once(p->panels, p->n);
    return (end - begin + together - 1) / together * count_parts(p->panels);
}

/* Round i of the panels begin..end. Sums end with each part of the inputs, whatever the order of parts is, so that a token gives
 * the same in any company. Where there are few tokens, their tiles stay in the second cache, and panels are read as they lie
 * in memory. */
INLINE Round find_round(const WideProduct *p, int64_t begin, int64_t end, int64_t i) {
    const Panels *m = p->panels;
    int few = p->n <= MOST_TOKENS;
    int64_t together = panels_at_once(m, p->n), sets = (end - begin + together - 1) / together, parts = count_parts(m);
    int64_t k = (few ? i % parts : i / sets) * DEEP, count = m->inputs - k < DEEP ? m->inputs - k : DEEP;
    PanelSet set = find_set(begin, end, together, few ? i / parts : i % sets, p->n);
    int64_t after = set.first + set.count; /* or more inputs of these panels or the first come next, but for streams */
    int deeper = few ? k + count < m->inputs : after == end;
    return (Round){set, k, count,
                   deeper ? panel_of(m, few ? set.first : begin, k + count) : panel_of(m, after, few ? 0 : k)};
}

/* Panels begin..end for tokens first..last. */
static void multiply_block(const WideProduct *p, int64_t first, int64_t last, int64_t begin, int64_t end, Sums sums) {
    const Panels *m = p->panels;
    _Alignas(64) float room[SIDE_BY_SIDE * DEEP * PANEL];
    int64_t tile = tile_tokens(p), tiles = (last - first + tile - 1) / tile, rounds = count_rounds(p, begin, end);
    for (int64_t i = 0; i < rounds; i++) {
        const Round round = find_round(p, begin, end, i);
        const PanelSet set = round.set;
        const int64_t k = round.k, count = round.count;
        int wide = widens(m, tiles), format = wide ? FLOAT32 : m->format;
        const char *at = panel_of(m, set.first, k);
        const void *weights = wide ? (const void *)widen_panels(m, set.first, set.count, k, count, room) : at;
        for (int64_t t = 0; t < tiles; t++) {
            int64_t token = first + t * tile, size = last - token < tile ? last - token : tile;
            Ahead ahead = wide ? NOTHING_AHEAD : look_ahead(p, set.count, t, tiles, count, round.next - at);
            Sums from = {sums.at + t * tile * sums.stride + (set.first - begin) * PANEL, sums.stride};
            if (k + count == m->inputs && !p->next) ask_for_room(p, token, size, set);
            if (ahead.bytes) multiply_tile(p, set, weights, format, k, count, token, size, ahead, from);
            else multiply_tile(p, set, weights, format, k, count, token, size, NOTHING_AHEAD, from);
        }
    }
}

#ifdef WHOLE_TILES
#include "whole.h"
#endif

#ifdef __AMX_TILE__
#define EACH_MEETING(size, panels, DO) \
    if (size > REGISTER_ROWS && panels == 2) DO(2, 2); \
    else if (size > REGISTER_ROWS) DO(2, 1); \
    else if (panels == 2) DO(1, 2); \
    else DO(1, 1);

/* Inputs k..k + count of one or two panels of codes meet one tile or two, of `size` tokens from `token` on. */
static void meet_codes(const WideProduct *p, int64_t panel, int64_t panels, int64_t k, int64_t count, int64_t token, int64_t size,
                       Reading x, Sums sums) {
    const Panels *m = p->panels;
    _Alignas(64) float held[TOKENS_TOGETHER * 2 * PANEL];
    int64_t groups = groups_of(m), size_of_scale = m->scale_format == FLOAT32 ? 4 : 2;
    Scales scales = {
        .rows = (const char *)m->scales + panel * groups * PANEL * size_of_scale, .tokens = p->token_scales + token,
        .stride = p->n, .group = m->group, .groups = groups, .block = rounded_inputs(m), .begin = k, .format = m->scale_format};
    Block block = {m, &scales, starts_of(m, tile_of(p, token)), x.apart, size, sums.at, held, sums.stride};
#define MEET_CODES(T, P) add_registers_of_codes(&block, x, count, T, P)
    EACH_MEETING(size, panels, MEET_CODES)
    if (m->shifts && k + count == m->inputs)
        for (int64_t t = 0; t < size; t += REGISTER_ROWS, sums.at += REGISTER_ROWS * sums.stride)
            add_shifts(p, (PanelSet){panel, panels, 1}, token + t, size - t < REGISTER_ROWS ? size - t : REGISTER_ROWS, sums);
}

/* The same as `multiply_block`, by registers: two panels meet two tiles. What comes next is asked for by each two tiles, a
 * share by each; where there are no more of them, memory is asked for what is far ahead. Parts of both fill the first cache. */
static void multiply_registers(const WideProduct *p, int64_t first, int64_t last, int64_t begin, int64_t end, Sums sums) {
    const Panels *m = p->panels;
    _Alignas(64) char room[2 * DEEP * PANEL];
    int64_t part = m->format == INT8 ? DEEP : DEEP / 2, pairs = (last - first + TOKENS_TOGETHER - 1) / TOKENS_TOGETHER;
    int64_t apart = panel_of(m, 1, 0) - panel_of(m, 0, 0), step = bytes_at_once(m) * PANEL;
    shape_registers(bytes_at_once(m), REGISTER_ROWS);
    for (int64_t panel = begin, panels; panel < end; panel += panels) {
        panels = end - panel < 2 ? 1 : 2;
        for (int64_t k = 0; k < m->inputs; k += part) {
            int64_t count = m->inputs - k < part ? m->inputs - k : part;
            const char *next = pairs == 1 ? panel_of(m, panel, k) + AHEAD_OF_FLOATS
                             : k + count < m->inputs ? panel_of(m, panel, k + count) : panel_of(m, panel + panels, 0);
            Reading x = {.lines = (step / REGISTER_BYTES + pairs - 1) / pairs};
            for (int64_t one = 0; one < panels; one++)
                x.panels[one] = weights_of(m, panel + one, k, count, room + one * DEEP * PANEL);
            for (int64_t pair = 0; pair < pairs; pair++) {
                int64_t token = first + pair * TOKENS_TOGETHER, left = last - token;
                x.next[0] = next + pair * registers_of(m, count) * x.lines * REGISTER_BYTES, x.next[1] = x.next[0] + apart;
                Sums to = {sums.at + (token - first) * sums.stride + (panel - begin) * PANEL, sums.stride};
                int64_t size = left < TOKENS_TOGETHER ? left : TOKENS_TOGETHER;
                char *tokens = tile_of(p, token);
                x.tokens = tokens + k / inputs_at_once(m) * bytes_at_once(m) * REGISTER_ROWS;
                x.apart = tile_of(p, token + REGISTER_ROWS) - tokens;
#define MEET_PAIRS(T, P) add_registers_of_pairs(x, registers_of(m, count), k == 0, to.at, to.stride, T, P)
                if (m->format == INT8) meet_codes(p, panel, panels, k, count, token, size, x, to);
                else EACH_MEETING(size, panels, MEET_PAIRS)
            }
        }
    }
    _tile_release();
}
#endif

/* What follows the sums of a token, in `width` of its numbers from `start` on. */
INLINE void finish_token(const WideProduct *p, float *from, int64_t token, int64_t start, int64_t width) {
    float *to = p->to + token * p->stride + start, *whole = p->next ? from : to;
    const float *bias = p->bias ? p->bias + start : NULL;
    if (p->adds && bias)
#pragma omp simd
        for (int64_t r = 0; r < width; r++) to[r] += from[r] + bias[r];
    else if (p->adds)
#pragma omp simd
        for (int64_t r = 0; r < width; r++) to[r] += from[r];
    else if (bias)
#pragma omp simd
        for (int64_t r = 0; r < width; r++) whole[r] = from[r] + bias[r];
    else if (whole != from) memcpy(to, from, (size_t)width * sizeof(float));
    if (p->activation != IDENTITY) p->activate(p->activation, whole, width);
    if (p->next) lay_out_inputs(p->next, whole, token, start, width);
}

/* Panels begin..end of a product for all its tokens, with what follows while it is in the cache. The sums begin at zero: in
 * front of a residual, which may be large, every addition would be rounded to its size. */
static void multiply_panels(const WideProduct *p, int64_t begin, int64_t end) {
    const Panels *m = p->panels;
    _Alignas(64) float held[MOST_OF_BLOCK * PANELS_AT_ONCE * PANEL];
    int64_t block = tokens_of_block(m), start = begin * PANEL, width = (end * PANEL < m->rows ? end * PANEL : m->rows) - start;
    for (int64_t first = 0; first < p->n; first += block) {
        int64_t last = p->n - first < block ? p->n : first + block, rest = first;
        Sums sums = {held, (end - begin) * PANEL};
#ifdef WHOLE_TILES
        if (last - first >= TILE && by_whole_tiles(p, begin, end)) {
            rest = first + (last - first) / TILE * TILE;
            multiply_whole_tiles(p, first, rest, begin, end, sums);
        }
#endif
#ifdef __AMX_TILE__
        if (by_registers(p)) multiply_registers(p, first, rest = last, begin, end, sums);
#endif
        if (rest < last) {
            sums.at += (rest - first) * sums.stride;
            memset(sums.at, 0, (size_t)((last - rest) * sums.stride) * sizeof(float));
            multiply_block(p, rest, last, begin, end, sums);
        }
        for (int64_t i = first; i < last; i++) finish_token(p, held + (i - first) * sums.stride, i, start, width);
    }
}

/* ---- attention ---- */

/* Turn keys [count, E], every one `stride` from the next, into panels [E, PANEL], rows of which are `to_stride` apart. */
INLINE void turn_keys(const float *keys, int64_t stride, int64_t count, int64_t head, float *to, const int64_t to_stride) {
    for (int64_t start = 0; start < count; start += PANEL, to += head * to_stride) {
        const float *from = keys + start * stride;
        int64_t left = count - start < PANEL ? count - start : PANEL, e = 0;
#ifdef WIDTH
        for (; left == PANEL && e + WIDTH <= head; e += WIDTH)
            for (int64_t t = 0; t < PANEL; t += WIDTH)
                transpose(from + t * stride + e, stride, to + e * to_stride + t, to_stride);
#endif
        for (; e < head; e++)
            for (int64_t t = 0; t < PANEL; t++) to[e * to_stride + t] = t < left ? from[t * stride + e] : 0;
    }
}

static void lay_out_keys(const float *keys, int64_t stride, int64_t count, int64_t head, float *to) {
    turn_keys(keys, stride, count, head, to, PANEL);
}

static void lay_out_values(const float *values, int64_t stride, int64_t count, int64_t head, float *to) {
    for (int64_t start = 0; start < head; start += PANEL, to += count * PANEL) {
        int64_t width = head - start < PANEL ? head - start : PANEL;
        if (width < PANEL) memset(to, 0, (size_t)(count * PANEL) * sizeof(float));
        for (int64_t t = 0; t < count; t++)
            if (width == PANEL) memcpy(to + t * PANEL, values + t * stride + start, PANEL * sizeof(float)); /* unrolled */
            else memcpy(to + t * PANEL, values + t * stride + start, (size_t)width * sizeof(float));
    }
}

/* Turn the products of a query with keys first..last, of which `begin` and `end` are whole panels, into what they weigh, but
 * for a factor, which it returns. What the query does not see weighs nothing. */
INLINE float weigh(float *row, int64_t begin, int64_t end, int64_t first, int64_t last, float scale, const float *bias) {
    float *all = row + begin;
    int64_t count = (end - begin) / PANEL * PANEL; /* so the compiler knows that there is no rest */
    if (bias)
#pragma omp simd
        for (int64_t t = first; t <= last; t++) row[t] = row[t] * scale + bias[t];
    else
#pragma omp simd
        for (int64_t t = 0; t < count; t++) all[t] *= scale;
    if (first > begin || last + 1 < end) /* by whole registers: a load waits long for what was written number by number */
        for (int64_t t = 0; t < count; t += PANEL) {
            int32_t from = (int32_t)(first - begin - t);
            uint32_t others = (uint32_t)(last - first);
#pragma omp simd
            for (int32_t i = 0; i < PANEL; i++) all[t + i] = (uint32_t)(i - from) <= others ? all[t + i] : -INFINITY;
        }
    const float largest = find_largest(all, count);
#pragma omp simd
    for (int64_t t = 0; t < count; t++) {
        float x = all[t] - largest, power = exponential_within(x);
        all[t] = x > -87.0f ? power : 0;
    }
    return 1.0f / add_all(all, count);
}

/* to[r, 0..] = the products of a tile of vectors of `head` numbers with those of panels, begin..end, of `inputs` numbers. */
INLINE void multiply_vectors(const float *x, int64_t stride, int64_t size, const float *vectors, int64_t inputs, int64_t begin,
                             int64_t end, int64_t head, float *to, int64_t to_stride) {
    int64_t side = side_by_side(size);
    for (int64_t t = begin, panels; t < end; t += panels * PANEL) {
        panels = end - t > PANEL ? side : 1;
#define MEET(R) \
    if (panels == 2) \
        multiply_floats(x, stride, vectors + t * inputs, PANEL, inputs * PANEL, head, to + t - begin, to_stride, R, 2); \
    else multiply_floats(x, stride, vectors + t * inputs, PANEL, 0, head, to + t - begin, to_stride, R, 1)
        EACH_SIZE(size, MEET)
    }
}

/* Attention of a tile of queries of one head: their scores, row by row, stay in the first cache. `bias`: what is added to
 * those of the first query; for each other one so much further on. */
static void attend_tile(const RowAttention *a, const float *query, float *to, int64_t start, int64_t size, int64_t count,
                        const float *bias, int64_t further, const float *keys, const float *values, float *scores) {
    int64_t head = a->head, room = (count + PANEL - 1) / PANEL * PANEL, side = side_by_side(size);
    int64_t begin = a->before < start ? start - a->before : 0, end = start + size + a->after;
    float factors[TILE];
    end = end < count ? end : count;
    begin = begin / PANEL * PANEL;
    int64_t whole = (end + PANEL - 1) / PANEL * PANEL;
    multiply_vectors(query, a->stride, size, keys, head, begin, end, head, scores + begin, room);
    for (int64_t r = 0; r < size; r++) {
        int64_t place = start + r, first = a->before < place ? place - a->before : 0;
        int64_t last = place + a->after < count ? place + a->after : count - 1;
        factors[r] = weigh(scores + r * room, begin, whole, first, last, a->scale, bias ? bias + r * further : NULL);
    }
    for (int64_t e = 0, panels; e < head; e += panels * PANEL) {
        float part[TILE * 2 * PANEL];
        const float *from = values + e * count + begin * PANEL;
        panels = head - e > PANEL ? side : 1;
#define MIX(R) \
    if (panels == 2) \
        multiply_floats(scores + begin, room, from, PANEL, count * PANEL, end - begin, part, 2 * PANEL, R, 2); \
    else multiply_floats(scores + begin, room, from, PANEL, 0, end - begin, part, 2 * PANEL, R, 1)
        EACH_SIZE(size, MIX)
        int64_t width = head - e < panels * PANEL ? head - e : panels * PANEL;
        for (int64_t r = 0; r < size; r++)
            for (int64_t i = 0; i < width; i++) to[r * a->to_stride + e + i] = part[r * 2 * PANEL + i] * factors[r];
    }
}

/* to[r, 0..] += what a tile of tokens, from place `own` of a row on, gives with the vectors of the distances to its places
 * begin..end. Products are of whole panels of vectors; where each distance has its own, those of a token lie side by side. */
static void meet_distances(const RowAttention *a, const Distances *d, int64_t h, const float *x, int64_t own, int64_t size,
                           int64_t begin, int64_t end, float *met, float *to, int64_t to_stride) {
    const int32_t *rows = d->rows + a->reach - 1;
    int64_t start = rows[begin - own - size + 1] / PANEL * PANEL, width = rows[end - 1 - own] / PANEL * PANEL + PANEL - start;
    multiply_vectors(x, a->stride, size, (const float *)d->panels->codes + h * a->head * PANEL, d->panels->inputs, start,
                     start + width, a->head, met, width);
    for (int64_t r = 0; r < size; r++, met += width, to += to_stride) {
        int64_t place = own + r, first = place + d->first, last = place + d->last + 1;
        const float *near = met + rows[0] - start - place;
        first = first < begin ? begin : first < end ? first : end;
        last = last > end ? end : last > first ? last : first;
#pragma omp simd
        for (int64_t t = begin; t < first; t++) to[t - begin] += met[rows[t - place] - start];
#pragma omp simd
        for (int64_t t = first; t < last; t++) to[t - begin] += near[t];
#pragma omp simd
        for (int64_t t = last; t < end; t++) to[t - begin] += met[rows[t - place] - start];
    }
}

/* What distances add to the scores of queries first..last of a row: biases [queries, whole panels of keys]. What keys give is
 * made for 16 keys and all these queries, and turned: so a vector of a distance is multiplied with 16 keys, not with one. */
static void score_distances(const RowAttention *a, int64_t h, const float *row, int64_t first, int64_t last, int64_t count,
                            int64_t tile, float *biases, float *room) {
    const Distances *of_keys = a->distances, *of_queries = a->distances + 1;
    const float *query = row + h * a->head, *key = row + (a->heads + h * a->groups / a->heads) * a->head;
    int64_t whole = (count + PANEL - 1) / PANEL * PANEL, parts = (PANEL + TILE - 1) / TILE, part = (PANEL + parts - 1) / parts;
    int64_t begin = a->before < first ? (first - a->before) / PANEL * PANEL : 0, end = last + a->after;
    float *met = room + PANEL * QUERIES_AT_ONCE;
    end = end < count ? end : count;
    if (!of_queries->panels) memset(biases, 0, (size_t)((last - first) * whole) * sizeof(float));
    else
        for (int64_t t = begin; t < end; t += PANEL) {
            memset(room, 0, PANEL * QUERIES_AT_ONCE * sizeof(float));
            for (int64_t i = 0; i < PANEL && t + i < end; i += part) {
                int64_t size = PANEL - i < part ? PANEL - i : part;
                size = end - t - i < size ? end - t - i : size;
                meet_distances(a, of_queries, h, key + (t + i) * a->stride, t + i, size, first, last, met,
                               room + i * QUERIES_AT_ONCE, QUERIES_AT_ONCE);
            }
            turn_keys(room, QUERIES_AT_ONCE, PANEL, last - first, biases + t, whole); /* of keys that are not there too */
        }
    for (int64_t i = first; i < last && of_keys->panels; i += tile)
        meet_distances(a, of_keys, h, query + i * a->stride, i, last - i < tile ? last - i : tile, begin, end, met,
                       biases + (i - first) * whole + begin, whole);
}

#ifdef __AMX_TILE__
#include "split.h"
#endif

/* Attention among the tokens of a row, of all heads that share a key head.
 * `room`: keys and values in whole panels, and TILE rows of scores; for distances what `score_distances` needs. */
static void attend_row(const RowAttention *a, int64_t row, int64_t group, float *room) {
#ifdef __AMX_TILE__
    if (a->rounded && !a->distances && a->starts[row + 1] - a->starts[row] >= FEWEST_OF_SPLIT) {
        attend_split_row(a, row, group, room);
        return;
    }
#endif
    int64_t head = a->head, sharing = a->heads / a->groups, first = a->starts[row], count = a->starts[row + 1] - first;
    int64_t whole = (count + PANEL - 1) / PANEL * PANEL;
    const float *from = a->query + first * a->stride, *key = from + (a->heads + group) * head;
    float *values = room + whole * head;
    float *scores = values + (head + PANEL - 1) / PANEL * PANEL * count, *biases = scores + TILE_TOKENS * whole;
    lay_out_keys(key, a->stride, count, head, room);
    lay_out_values(key + a->groups * head, a->stride, count, head, values);
    int64_t tiles = (count + TILE - 1) / TILE, tile = count ? (count + tiles - 1) / tiles : 1;
    int64_t block = QUERIES_AT_ONCE / tile * tile;
    for (int64_t h = group * sharing; h < (group + 1) * sharing; h++)
        for (int64_t start = 0; start < count; start += tile) {
            int64_t size = count - start < tile ? count - start : tile, further = a->distances ? whole : -1;
            const float *bias = a->bias ? a->bias + h * (2 * a->reach - 1) + a->reach - 1 - start : NULL;
            if (a->distances && start % block == 0)
                score_distances(a, h, from, start, count - start < block ? count : start + block, count, tile, biases,
                                biases + QUERIES_AT_ONCE * whole);
            if (a->distances) bias = biases + start % block * whole;
            attend_tile(a, from + start * a->stride + h * head, a->to + (first + start) * a->to_stride + h * head, start,
                        size, count, bias, further, room, values, scores);
        }
}

#define TABLE_(path) rows_##path
#define TABLE(path) TABLE_(path)
const RowKernels TABLE(PATH) = {TILE, lay_out, multiply_panels, attend_row};
