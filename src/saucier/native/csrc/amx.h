/* Products by AMX, whose registers hold 16 rows of 64 bytes: one of 16 tokens meets one of a panel, just as it lies in memory,
 * and gives 256 sums in 16 cycles, of however many tokens. Codes of 8 bits are summed exactly within a block, and then in
 * floats, to the last bit as vnni.h does it, which is as fast for a few tokens; numbers of bfloat16 in pairs, from the first
 * part to the last. Included by rows.c, for the set that has it.
 * Registers: 0..3 sums of tile t and panel p (t + 2p), 4 and 5 tokens, 6 and 7 panels. */
#include "registers.h"

#define TOKENS_TOGETHER (2 * REGISTER_ROWS)

/* What a register has of a token: inputs, and their bytes. Blocks of 32 codes fill half of it. */
INLINE int64_t inputs_at_once(const Panels *m) {
    return m->format == BFLOAT16 || rounded_inputs(m) == UNIT ? REGISTER_BYTES / 2 : REGISTER_BYTES;
}
INLINE int64_t bytes_at_once(const Panels *m) { return m->format == BFLOAT16 ? REGISTER_BYTES : inputs_at_once(m); }
INLINE int64_t registers_of(const Panels *m, int64_t inputs) { return (inputs + inputs_at_once(m) - 1) / inputs_at_once(m); }

/* Bytes of a token, in registers of 16 tokens; where blocks of codes have sums to begin at, these lie behind: [blocks, 16]. */
INLINE int64_t register_bytes(const Panels *m) {
    int64_t blocks = m->format == BFLOAT16 ? 0 : (m->inputs + rounded_inputs(m) - 1) / rounded_inputs(m);
    return registers_of(m, m->inputs) * bytes_at_once(m) + blocks * 4;
}
INLINE int32_t *starts_of(const Panels *m, char *tile) {
    return (int32_t *)(tile + registers_of(m, m->inputs) * bytes_at_once(m) * REGISTER_ROWS);
}

/* Lay out a block of codes, from input k on, as token r of a tile. They are filled up with zeros, to 64. */
INLINE void fill_registers(const Panels *m, const int8_t *codes, int64_t k, int64_t count, char *tile, int64_t r) {
    int64_t width = inputs_at_once(m);
    starts_of(m, tile)[k / rounded_inputs(m) * REGISTER_ROWS + r] = -CODE_OFFSET * add_up_codes(codes, count);
    if (width == REGISTER_BYTES)
        for (int64_t i = 0; i < count; i += REGISTER_BYTES)
            _mm512_storeu_si512(tile + (k + i) * REGISTER_ROWS + r * REGISTER_BYTES, load_codes(codes + i));
    else memcpy(tile + k * REGISTER_ROWS + r * UNIT, codes, UNIT); /* a block of them */
}

/* The same of numbers, rounded to bfloat16. */
INLINE void fill_pairs(const float *x, int64_t k, int64_t count, char *tile, int64_t r) {
    for (int64_t i = 0; i < count; i += 2 * WIDTH) {
        __m512bh pairs = _mm512_cvtne2ps_pbh(load_first(x + i + WIDTH, count - i - WIDTH), load_first(x + i, count - i));
        _mm512_storeu_si512(tile + (k + i) * 2 * REGISTER_ROWS + r * REGISTER_BYTES, (__m512i)pairs);
    }
}

/* Inputs k..k + count of a panel as registers take them: where they lie, or in `room`, filled up with zeros. */
INLINE const char *weights_of(const Panels *m, int64_t panel, int64_t k, int64_t count, char *room) {
    const char *from = panel_of(m, panel, k);
    int64_t all = registers_of(m, count) * bytes_at_once(m) * PANEL;
    if (count % inputs_at_once(m) == 0) return from;
    int64_t bytes = m->format == BFLOAT16 ? (count + 1) / 2 * 4 * PANEL : (count + 3) / 4 * 4 * PANEL;
    memcpy(room, from, (size_t)bytes);
    memset(room + bytes, 0, (size_t)(all - bytes));
    __asm__ volatile("" : : : "memory"); /* GCC does not know that registers are loaded from there */
    return room;
}

/* What is read and asked for while tokens meet panels. */
typedef struct {
    const char *tokens, *panels[2], *next[2]; /* `next`: of each panel */
    int64_t apart, lines;                     /* bytes to the next tile; lines of `next` that each step asks for */
} Reading;

/* Ask the second cache for some lines: by branches that always go one way, not by a loop. */
INLINE void ask(const char *next, int64_t lines) {
    if (lines > 0)
        for (int i = 0; i < 4; i++) __builtin_prefetch(next + i * 64, 0, 2);
    if (lines > 4)
        for (int i = 4; i < 8; i++) __builtin_prefetch(next + i * 64, 0, 2);
    if (lines > 8)
        for (int i = 8; i < 16; i++) __builtin_prefetch(next + i * 64, 0, 2);
}

/* A block of codes whose sums wait to become floats: what it found is added to what those before it of the group found, and
 * at the `LAST` one of a group to the sums, in steps of the scales of the rows. The first of all makes the sums (`NEW`). */
enum { FIRST = 1, LAST = 2, NEW = 4 };
typedef struct {
    const int32_t *found;      /* [4, 16, 16]: the registers of sums */
    const int32_t *starts;     /* [16]; those of the second tile are `apart` from them, in bytes */
    const float *token_scales; /* [32] */
    float *held, *to;          /* [32, 2, 16]: of the group so far; [32, stride] */
    int64_t apart, stride;
    float row_scales[2 * PANEL];
    int where;
} Ending;

/* Some rows of tile t. */
INLINE void end_rows(const Ending *e, int64_t t, int64_t begin, int64_t end, const int where, const int P) {
    const int32_t *found = e->found + t * REGISTER_ROWS * PANEL;
    const int32_t *starts = (const int32_t *)((const char *)e->starts + t * e->apart);
    for (int64_t r = begin; r < end; r++) {
        int64_t row = t * REGISTER_ROWS + r;
        float *held = e->held + row * 2 * PANEL, *to = e->to + row * e->stride;
        Vector token = load_one(e->token_scales + row);
        __m512i start = _mm512_set1_epi32(starts[r]);
        for (int p = 0; p < P; p++) {
            Vector x = as_floats(_mm512_add_epi32(load_codes(found + (2 * p * REGISTER_ROWS + r) * PANEL), start));
            x = where & FIRST ? times(x, token) : add_product(x, token, load(held + p * PANEL));
            if (!(where & LAST)) store(held + p * PANEL, x);
            else if (where & NEW) store(to + p * PANEL, times(x, load(e->row_scales + p * PANEL)));
            else store(to + p * PANEL, add_product(x, load(e->row_scales + p * PANEL), load(to + p * PANEL)));
        }
    }
}
#define EACH_ENDING(where, DO) \
    switch (where) { \
        case 0: DO(0); break; \
        case FIRST: DO(FIRST); break; \
        case LAST: DO(LAST); break; \
        case FIRST | LAST: DO(FIRST | LAST); break; \
        case LAST | NEW: DO(LAST | NEW); break; \
        case FIRST | LAST | NEW: DO(FIRST | LAST | NEW); break; \
    }

INLINE void end_block(const Ending *e, int64_t R, const int T, const int P) {
    for (int t = 0; t < T; t++) {
        int64_t rows = R - t * REGISTER_ROWS < REGISTER_ROWS ? R - t * REGISTER_ROWS : REGISTER_ROWS;
#define END_ROWS(where) end_rows(e, t, 0, rows, where, P)
        EACH_ENDING(e->where, END_ROWS)
    }
}

/* One step: T tiles of tokens meet P panels. Between products, which take 16 cycles each, a quarter of a tile of a block
 * `before` becomes floats: tile t of it, or nothing. */
#define ROWS_BETWEEN (REGISTER_ROWS / 4)
INLINE void meet(Reading *x, int64_t width, const int whole, const Ending *before, int t, const int where, const int T,
                 const int P) {
#define BETWEEN(quarter) \
    if (before) end_rows(before, t, quarter * ROWS_BETWEEN, (quarter + 1) * ROWS_BETWEEN, where, P)
    _tile_loadd(4, x->tokens, width);
    _tile_loadd(6, x->panels[0], REGISTER_BYTES);
    ask(x->next[0], x->lines);
    if (whole) _tile_dpbsud(0, 4, 6);
    else _tile_dpbf16ps(0, 4, 6);
    BETWEEN(0);
    if (T == 2) _tile_loadd(5, x->tokens + x->apart, width);
    if (T == 2 && whole) _tile_dpbsud(1, 5, 6);
    else if (T == 2) _tile_dpbf16ps(1, 5, 6);
    BETWEEN(1);
    if (P == 2) _tile_loadd(7, x->panels[1], REGISTER_BYTES);
    if (P == 2) ask(x->next[1], x->lines);
    if (P == 2 && whole) _tile_dpbsud(2, 4, 7);
    else if (P == 2) _tile_dpbf16ps(2, 4, 7);
    BETWEEN(2);
    if (T == 2 && P == 2 && whole) _tile_dpbsud(3, 5, 7);
    else if (T == 2 && P == 2) _tile_dpbf16ps(3, 5, 7);
    BETWEEN(3);
    if (P == 2) x->panels[1] += width * PANEL, x->next[1] += x->lines * 64;
    x->tokens += width * REGISTER_ROWS, x->panels[0] += width * PANEL, x->next[0] += x->lines * 64;
#undef BETWEEN
}

/* A product of R tokens and some panels of codes; `starts` and tokens of the second tile are `apart` from those of the first,
 * in bytes. `held`: what the blocks of a group found so far, [R, 2, 16]. */
typedef struct {
    const Panels *panels;
    const Scales *scales;
    const int32_t *starts;
    int64_t apart, R;
    float *to, *held;
    int64_t stride;
} Block;

/* What ends the block from input k to `next`, which ends the part or not. */
INLINE Ending ending_of(const Block *b, const int32_t *found, int64_t k, int64_t next, int64_t end, const int P) {
    const Scales *s = b->scales;
    Ending e = {.found = found, .starts = b->starts + k / s->block * REGISTER_ROWS,
                .token_scales = s->tokens + k / s->block * s->stride, .held = b->held, .to = b->to, .apart = b->apart,
                .stride = b->stride};
    int last = next == end || next % s->group == 0;
    e.where = (k == s->begin || k % s->group == 0 ? FIRST : 0) | (last ? LAST : 0) | (last && s->begin == 0 && k < s->group ? NEW : 0);
    if (last) read_scales(s, k / s->group, e.row_scales, P);
    return e;
}

/* Inputs begin..begin + count of a block. What registers stored is read a block later: it is slow to come out of the buffer of
 * stores. */
INLINE void add_registers_of_codes(const Block *b, Reading x, int64_t count, const int T, const int P) {
    _Alignas(64) int32_t found[2][4][REGISTER_ROWS * PANEL];
    const Scales *s = b->scales;
    int64_t width = inputs_at_once(b->panels), end = s->begin + count;
    Ending before = {.found = NULL};
    int turn = 0;
    for (int64_t k = s->begin, next; k < end; k = next, turn = !turn) {
        next = k + s->block < end ? k + s->block : end;
        _tile_zero(0);
        if (T == 2) _tile_zero(1);
        if (P == 2) _tile_zero(2);
        if (T == 2 && P == 2) _tile_zero(3);
        if (T == 2 && P == 2 && before.found && next - k == 2 * REGISTER_BYTES && width == REGISTER_BYTES) {
#define MEET_AND_END(where) \
    for (int t = 0; t < 2; t++) meet(&x, REGISTER_BYTES, 1, &before, t, where, 2, 2)
            EACH_ENDING(before.where, MEET_AND_END)
        } else {
            for (int64_t i = k; i < next; i += width) meet(&x, width, 1, NULL, 0, 0, T, P);
            if (before.found) end_block(&before, b->R, T, P);
        }
        _tile_stored(0, found[turn][0], REGISTER_BYTES);
        if (T == 2) _tile_stored(1, found[turn][1], REGISTER_BYTES);
        if (P == 2) _tile_stored(2, found[turn][2], REGISTER_BYTES);
        if (T == 2 && P == 2) _tile_stored(3, found[turn][3], REGISTER_BYTES);
        before = ending_of(b, found[turn][0], k, next, end, P);
    }
    end_block(&before, b->R, T, P);
}

/* The same of bfloat16. The sums go on from part to part; what a tile lacks of 16 tokens is there, but is not read. */
INLINE void add_registers_of_pairs(Reading x, int64_t steps, int new, float *to, int64_t stride, const int T, const int P) {
    float *second = to + REGISTER_ROWS * stride;
    if (new) {
        _tile_zero(0);
        if (T == 2) _tile_zero(1);
        if (P == 2) _tile_zero(2);
        if (T == 2 && P == 2) _tile_zero(3);
    } else {
        _tile_loadd(0, to, stride * 4);
        if (T == 2) _tile_loadd(1, second, stride * 4);
        if (P == 2) _tile_loadd(2, to + PANEL, stride * 4);
        if (T == 2 && P == 2) _tile_loadd(3, second + PANEL, stride * 4);
    }
    for (int64_t i = 0; i < steps; i++) meet(&x, REGISTER_BYTES, 0, NULL, 0, 0, T, P);
    _tile_stored(0, to, stride * 4);
    if (T == 2) _tile_stored(1, second, stride * 4);
    if (P == 2) _tile_stored(2, to + PANEL, stride * 4);
    if (T == 2 && P == 2) _tile_stored(3, second + PANEL, stride * 4);
}
