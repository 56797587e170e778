/* Convolutions of 3x3 over few input channels, such as the colours of an image (ours): 9 C products per output are so few
 * that the transforms of winograd.c would cost more than they save.
 *
 * Images are (n, H, W, C), outputs (n, H, W, O), O a multiple of LANES, weights (3, 3 C, O): then the 3 C values that a
 * row of weights meets are neighbours in memory. `scratch` has room for an image with a border of zeros,
 * (H + 2) (W + 2) C values. */

#include "vectors.h"

static void with_border(const float *x, float *out, Index H, Index W, Index C) {
    Index row = (W + 2) * C;
    __builtin_memset(out, 0, (H + 2) * row * sizeof(float));
    for (Index y = 0; y < H; y++) __builtin_memcpy(out + (y + 1) * row + C, x + y * W * C, W * C * sizeof(float));
}

/* The outputs of some neighbouring pixels, for one vector of channels. */
INLINED void some_pixels(const int pixels, const float *corner, const float *g, Vector bias, float *y, Index row,
                         Index C, Index O, int relu) {
    Vector sum[8];
    UNROLLED (int p = 0; p < pixels; p++) sum[p] = bias;
    for (Index i = 0; i < 3; i++)
        for (Index m = 0; m < 3 * C; m++, g += O) {
            Vector weight = load(g);
            UNROLLED (int p = 0; p < pixels; p++) sum[p] += corner[i * row + p * C + m] * weight;
        }
    UNROLLED (int p = 0; p < pixels; p++) store(y + p * O, relu ? only(~(sum[p] <= 0), sum[p]) : sum[p]);
}

/* `bias` may be null; `relu`: max(y, 0) in place of y. */
void few_forward(const float *x, const float *g, const float *bias, float *y, float *scratch, Index O, Index C, Index n,
                 Index H, Index W, Index relu) {
    Index row = (W + 2) * C;
    for (Index image = 0; image < n; image++, x += H * W * C) {
        with_border(x, scratch, H, W, C);
        for (Index i = 0; i < H; i++, y += W * O)
            for (Index o = 0; o < O; o += LANES) {
                Vector shift = bias ? load(bias + o) : (Vector){0};
                const float *corner = scratch + i * row;
                Index j = 0;
                for (; j + 8 <= W; j += 8) some_pixels(8, corner + j * C, g + o, shift, y + j * O + o, row, C, O, relu);
                for (; j < W; j++) some_pixels(1, corner + j * C, g + o, shift, y + j * O + o, row, C, O, relu);
            }
    }
}

/* Add the weight gradients of a row of pixels, for one vector of outputs: nine weights at a time stay in registers. */
INLINED void row_gradients(const float *dy, const float *corner, float *dg, float *dbias, Index row, Index W, Index C,
                           Index O) {
    for (Index m = 0; m < 3 * C; m += 3) {
        Vector sum[9] = {0}, total = {0};
        for (Index j = 0; j < W; j++) {
            Vector gradient = load(dy + j * O);
            UNROLLED (int k = 0; k < 9; k++) sum[k] += corner[k / 3 * row + j * C + m + k % 3] * gradient;
            total += gradient;
        }
        UNROLLED (int k = 0; k < 9; k++) {
            float *to = dg + (k / 3 * 3 * C + m + k % 3) * O;
            store(to, load(to) + sum[k]);
        }
        if (m == 0) store(dbias, load(dbias) + total);
    }
}

/* dg (n, 9 C, O) and dbias (n, O) of each image, both zero before. */
void few_gradients(const float *dy, const float *x, float *dg, float *dbias, float *scratch, Index O, Index C, Index n,
                   Index H, Index W) {
    Index row = (W + 2) * C;
    for (Index image = 0; image < n; image++, x += H * W * C, dg += 9 * C * O, dbias += O) {
        with_border(x, scratch, H, W, C);
        for (Index i = 0; i < H; i++, dy += W * O)
            for (Index o = 0; o < O; o += LANES) row_gradients(dy + o, scratch + i * row, dg + o, dbias + o, row, W, C, O);
    }
}
