/* Experts: a step of both passes, over the tokens of a decoder's pass and over whole rows. Each expert reads the tokens that
 * chose it, all at once, so that its matrices are read once a pass. */
#include <math.h>
#include <string.h>

#include "saucier.h"

/* Turn the scores of experts into their weights: softmax of all, the `top` largest kept, the others 0. */
static void choose_experts(const Op *op, float *scores) {
    float largest = scores[0], sum = 0, kept = 0;
    for (int32_t e = 1; e < op->experts; e++) largest = scores[e] > largest ? scores[e] : largest;
    for (int32_t e = 0; e < op->experts; e++) sum += scores[e] = expf(scores[e] - largest);
    for (int32_t k = 0; k < op->top; k++) { /* chosen ones are marked by their sign */
        int32_t best = -1;
        for (int32_t e = 0; e < op->experts; e++)
            if (!signbit(scores[e]) && (best < 0 || scores[e] > scores[best])) best = e;
        kept += scores[best];
        scores[best] = -scores[best];
    }
    for (int32_t e = 0; e < op->experts; e++)
        scores[e] = signbit(scores[e]) ? -scores[e] / (op->renormalized ? kept : sum) : 0;
}

static float *row_of(const Experts *x, int buffer, int64_t i) { return x->buffers[buffer] + i * x->strides[buffer]; }

/* Leave an expert the first tokens of each row that chose it. */
static void keep_first(const Experts *x, int32_t e) {
    for (int64_t i = 0, row = 0, taken = 0; i < x->n; i++) {
        float *score = row_of(x, RANKS, i) + e;
        for (; i == x->starts[row + 1]; row++) taken = 0;
        if (*score != 0 && taken++ >= x->op->capacity) *score = 0;
    }
}

/* RANKS holds the scores of all experts, and behind them the sum; the tokens of an expert go through HEADS, HIDDEN and MIXED. */
void saucier_run_experts(const Experts *x) {
    const Op *op = x->op;
    size_t width = (size_t)op->width * sizeof(float);
    for (int64_t i = 0; i < x->n; i++) {
        float *scores = row_of(x, RANKS, i);
        choose_experts(op, scores);
        memset(scores + op->experts, 0, width);
    }
    for (int32_t e = 0; e < op->experts; e++) {
        int64_t rows = op->gated ? 2 * op->hidden : op->hidden, n = 0;
        if (op->capacity && x->starts) keep_first(x, e);
        for (int64_t i = 0; i < x->n; i++)
            if (row_of(x, RANKS, i)[e] != 0) memcpy(row_of(x, HEADS, n++), row_of(x, op->from, i), width);
        if (!n) continue;
        x->multiply(x->pass, 2 * e, &(ExpertMap){HEADS, HIDDEN, n, op->bias ? op->bias + e * rows : NULL,
                                                op->gated ? IDENTITY : op->activation});
        for (int64_t i = 0; op->gated && i < n; i++)
            x->kernels->gate(op->activation, row_of(x, HIDDEN, i), op->hidden);
        x->multiply(x->pass, 2 * e + 1, &(ExpertMap){HIDDEN, MIXED, n, op->second ? op->second + e * op->width : NULL,
                                                    IDENTITY});
        n = 0;
        for (int64_t i = 0; i < x->n; i++) {
            float *scores = row_of(x, RANKS, i);
            if (scores[e] == 0) continue;
            const float *given = row_of(x, MIXED, n++);
            for (int64_t k = 0; k < op->width; k++) scores[op->experts + k] += scores[e] * given[k];
        }
    }
    for (int64_t i = 0; i < x->n; i++) {
        float *to = row_of(x, op->to, i), *sum = row_of(x, RANKS, i) + op->experts;
        for (int64_t k = 0; k < op->width; k++) to[k] = (op->adds ? to[k] : 0) + sum[k];
    }
}
