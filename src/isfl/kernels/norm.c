/* BatchNorm in training with the ReLU behind it, and the 2x2 max-pooling between or behind the two (ours).
 *
 * Images are (n, H, W, C), C a multiple of LANES. With z = scale x + shift, one scale and shift per channel, the outputs
 * are max(z, 0), or the largest of that in each cell of 2x2 pixels; a row or column that is left over belongs to no cell.
 * Pooling and ReLU commute.
 *
 * The backward pass computes z again from x, and from it which values ReLU stopped and which pixel of a cell won (the
 * first of the largest), so that x is all it needs to keep. With g the gradient that reaches z, zero except there,
 *
 *     dx = scale g + slope (x - mean) + offset
 *
 * where slope and offset come from the sums of g and of g (x - mean) over all pixels.
 * Sums are float32 within a block of pixels and double over the blocks. */

#include "vectors.h"

enum { BLOCK = 256 };

typedef struct { const float *scale, *shift; } Line;

INLINED Vector at_line(Vector x, Line line, Index c) { return x * load(line.scale + c) + load(line.shift + c); }
INLINED Vector relu(Vector z) { return only(~(z <= 0), z); } /* NaN stays NaN */

INLINED void add_to(double *total, Vector sum) {
    for (Index lane = 0; lane < LANES; lane++) total[lane] += sum[lane];
}

/* Function `inner` with as many vectors at a time as divide the channels: neighbours in memory are read together. */
#define FOR_VECTORS(inner, C, ...)                                                                                 \
    do {                                                                                                           \
        if ((C) % (4 * LANES) == 0) inner(4, 1, C, __VA_ARGS__);                                                   \
        else if ((C) % (2 * LANES) == 0) inner(2, 2, C, __VA_ARGS__);                                              \
        else inner(1, 4, C, __VA_ARGS__);                                                                          \
    } while (0)

/* ------------------------------------------------------------ mean and variance */

/* Add the sums of x - pivot and of its square over some pixels; `pixels` at a time, so that no sum waits for another. */
INLINED void block_moments(const int vectors, const int pixels, Index C, const float *x, const float *pivot,
                           Index count, double *sums, double *squares) {
    for (Index c = 0; c < C; c += vectors * LANES) {
        Vector sum[4] = {0}, square[4] = {0};
        Index p = 0;
        for (; p + pixels <= count; p += pixels)
            UNROLLED (int k = 0; k < pixels; k++) UNROLLED (int v = 0; v < vectors; v++) {
                Vector off = load(x + (p + k) * C + c + v * LANES) - load(pivot + c + v * LANES);
                sum[k * vectors + v] += off;
                square[k * vectors + v] += off * off;
            }
        for (; p < count; p++)
            UNROLLED (int v = 0; v < vectors; v++) {
                Vector off = load(x + p * C + c + v * LANES) - load(pivot + c + v * LANES);
                sum[v] += off;
                square[v] += off * off;
            }
        UNROLLED (int k = 0; k < pixels; k++) UNROLLED (int v = 0; v < vectors; v++) {
            add_to(sums + c + v * LANES, sum[k * vectors + v]);
            add_to(squares + c + v * LANES, square[k * vectors + v]);
        }
    }
}

/* Mean and variance (of the pixels, not an estimate) of each channel over `count` pixels. `pivot` is room for C values:
 * the mean of the first block. No sum of squares around a mean of some pixels exceeds that around the mean of all by more
 * than the number of blocks, so few digits cancel. */
void moments(const float *x, double *mean, double *variance, float *pivot, Index count, Index C) {
    Index first = count < BLOCK ? count : BLOCK;
    for (Index c = 0; c < C; c++) mean[c] = variance[c] = pivot[c] = 0;
    FOR_VECTORS(block_moments, C, x, pivot, first, mean, variance);
    for (Index c = 0; c < C; c++) {
        pivot[c] = mean[c] / first;
        mean[c] = variance[c] = 0;
    }
    for (Index at = 0; at < count; at += BLOCK) {
        Index some = count - at < BLOCK ? count - at : BLOCK;
        FOR_VECTORS(block_moments, C, x + at * C, pivot, some, mean, variance);
    }
    for (Index c = 0; c < C; c++) {
        double off = mean[c] / count, found = variance[c] / count - off * off;
        mean[c] = pivot[c] + off;
        variance[c] = found < 0 ? 0 : found; /* NaN stays NaN */
    }
}

/* ------------------------------------------------------------ without pooling */

void normalise(const float *x, const float *scale, const float *shift, float *y, Index count, Index C) {
    Line line = {scale, shift};
    for (Index p = 0; p < count; p++, x += C, y += C)
        for (Index c = 0; c < C; c += LANES) store(y + c, relu(at_line(load(x + c), line, c)));
}

typedef struct { const float *scale, *shift, *mean, *slope, *offset; } Channels;

/* `table` is (5, C): scale, shift, mean, slope, offset. */
INLINED Channels channels(const float *table, Index C) {
    return (Channels){table, table + C, table + 2 * C, table + 3 * C, table + 4 * C};
}

INLINED Vector reaching(Vector dy, Vector x, Channels of, Index c) {
    return only(~(at_line(x, (Line){of.scale, of.shift}, c) <= 0), dy);
}

INLINED Vector input_gradient(Vector g, Vector x, Channels of, Index c) {
    return load(of.scale + c) * g + (load(of.slope + c) * (x - load(of.mean + c)) + load(of.offset + c));
}

INLINED void block_sums(const int vectors, const int pixels, Index C, const float *dy, const float *x, Channels of,
                        Index count, double *sums, double *products) {
    for (Index c = 0; c < C; c += vectors * LANES) {
        Vector sum[4] = {0}, product[4] = {0};
        Index p = 0;
#define ADD(k)                                                                                                     \
    UNROLLED (int v = 0; v < vectors; v++) {                                                                       \
        Index at = c + v * LANES;                                                                                  \
        Vector in = load(x + (p + (k)) * C + at), g = reaching(load(dy + (p + (k)) * C + at), in, of, at);         \
        sum[(k) * vectors + v] += g;                                                                               \
        product[(k) * vectors + v] += g * (in - load(of.mean + at));                                               \
    }
        for (; p + pixels <= count; p += pixels) UNROLLED (int k = 0; k < pixels; k++) ADD(k)
        for (; p < count; p++) ADD(0)
#undef ADD
        UNROLLED (int k = 0; k < pixels; k++) UNROLLED (int v = 0; v < vectors; v++) {
            add_to(sums + c + v * LANES, sum[k * vectors + v]);
            add_to(products + c + v * LANES, product[k * vectors + v]);
        }
    }
}

/* sums = sum of g, products = sum of g (x - mean); slope and offset of the table are not read. */
void gradient_sums(const float *dy, const float *x, const float *table, double *sums, double *products, Index count,
                   Index C) {
    for (Index c = 0; c < C; c++) sums[c] = products[c] = 0;
    for (Index at = 0; at < count; at += BLOCK) {
        Index some = count - at < BLOCK ? count - at : BLOCK;
        FOR_VECTORS(block_sums, C, dy + at * C, x + at * C, channels(table, C), some, sums, products);
    }
}

void normalise_gradient(const float *dy, const float *x, const float *table, float *dx, Index count, Index C) {
    Channels of = channels(table, C);
    for (Index p = 0; p < count; p++, dy += C, x += C, dx += C)
        for (Index c = 0; c < C; c += LANES) {
            Vector in = load(x + c);
            store(dx + c, input_gradient(reaching(load(dy + c), in, of, c), in, of, c));
        }
}

/* ------------------------------------------------------------ with pooling */

/* The pixels of a cell, the largest z of them, and where a later pixel beats those before it. */
typedef struct { Vector x[4], best; Mask beats[4]; } Cell;

INLINED Cell cell(const float *corner, Index row, Index C, Line line, Index c) {
    Cell found;
    UNROLLED (int k = 0; k < 4; k++) found.x[k] = load(corner + k / 2 * row + k % 2 * C + c);
    found.best = at_line(found.x[0], line, c);
    UNROLLED (int k = 1; k < 4; k++) {
        Vector z = at_line(found.x[k], line, c);
        found.beats[k] = z > found.best;
        found.best = either(found.beats[k], z, found.best);
    }
    return found;
}

#define FOR_EACH_CELL_ROW(n, H) for (Index image = 0; image < (n); image++) for (Index i = 0; i < (H) / 2; i++)

void normalise_pool(const float *x, const float *scale, const float *shift, float *y, Index n, Index H, Index W,
                    Index C) {
    Line line = {scale, shift};
    FOR_EACH_CELL_ROW(n, H) {
        const float *corner = x + (image * H + 2 * i) * W * C;
        for (Index j = 0; j < W / 2; j++, corner += 2 * C, y += C)
            for (Index c = 0; c < C; c += LANES) store(y + c, relu(cell(corner, W * C, C, line, c).best));
    }
}

INLINED void row_sums(const int vectors, const int unused, Index C, const float *dy, const float *corner, Channels of,
                      Index W, double *sums, double *products) {
    (void)unused;
    for (Index c = 0; c < C; c += vectors * LANES) {
        Vector sum[4] = {0}, product[4] = {0};
        for (Index j = 0; j < W / 2; j++)
            UNROLLED (int v = 0; v < vectors; v++) {
                Index at = c + v * LANES;
                Cell here = cell(corner + 2 * j * C, W * C, C, (Line){of.scale, of.shift}, at);
                Vector g = only(~(here.best <= 0), load(dy + j * C + at)), x = here.x[0];
                UNROLLED (int k = 1; k < 4; k++) x = either(here.beats[k], here.x[k], x);
                sum[v] += g;
                product[v] += g * (x - load(of.mean + at));
            }
        UNROLLED (int v = 0; v < vectors; v++) {
            add_to(sums + c + v * LANES, sum[v]);
            add_to(products + c + v * LANES, product[v]);
        }
    }
}

/* As gradient_sums, with dy (n, H / 2, W / 2, C). */
void pool_gradient_sums(const float *dy, const float *x, const float *table, double *sums, double *products, Index n,
                        Index H, Index W, Index C) {
    for (Index c = 0; c < C; c++) sums[c] = products[c] = 0;
    FOR_EACH_CELL_ROW(n, H) {
        const float *corner = x + (image * H + 2 * i) * W * C;
        FOR_VECTORS(row_sums, C, dy, corner, channels(table, C), W, sums, products);
        dy += W / 2 * C;
    }
}

/* The gradient of pixels that belong to no cell. */
static void outside(const float *x, float *dx, Channels of, Index count, Index C) {
    for (Index p = 0; p < count; p++, x += C, dx += C)
        for (Index c = 0; c < C; c += LANES) store(dx + c, input_gradient((Vector){0}, load(x + c), of, c));
}

void normalise_pool_gradient(const float *dy, const float *x, const float *table, float *dx, Index n, Index H, Index W,
                             Index C) {
    Channels of = channels(table, C);
    FOR_EACH_CELL_ROW(n, H) {
        Index row = (image * H + 2 * i) * W * C;
        for (Index j = 0; j < W / 2; j++, dy += C)
            for (Index c = 0; c < C; c += LANES) {
                Index corner = row + 2 * j * C;
                Cell here = cell(x + corner, W * C, C, (Line){of.scale, of.shift}, c);
                Vector g = only(~(here.best <= 0), load(dy + c));
                UNROLLED (int k = 3; k >= 0; k--) { /* the last that beats those before it takes all that is left */
                    Vector own = k ? only(here.beats[k], g) : g;
                    g = k ? only(~here.beats[k], g) : g;
                    store(dx + corner + k / 2 * W * C + k % 2 * C + c, input_gradient(own, here.x[k], of, c));
                }
            }
        if (W % 2) {
            Index last = row + (W - 1) * C;
            outside(x + last, dx + last, of, 1, C);
            outside(x + last + W * C, dx + last + W * C, of, 1, C);
        }
    }
    if (H % 2)
        for (Index image = 0; image < n; image++) {
            Index last = (image * H + H - 1) * W * C;
            outside(x + last, dx + last, of, W, C);
        }
}
