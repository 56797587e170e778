/* Convolutions of 3x3 by minimal filtering, F(4x4, 3x3): S. Winograd, Arithmetic Complexity of Computations, 1980;
 * A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016.
 *
 * An image is cut into tiles of 4x4 outputs, each of which sees 6x6 inputs d. With g the 3x3 weights, the outputs are
 *
 *     Y = A^T [ (G g G^T) * (B^T d B) ] A
 *
 * with * elementwise: 36 multiplications in place of 144. Over all channels and tiles the product is 36 matrix products.
 * Around them are four small transforms; two are the transposes of the others and serve the backward pass:
 *
 *     spread    V = B^T d B      inputs to 36 values per tile      gather_add   d += B V B^T      gradient of spread
 *     collect   Y = A^T M A      36 values per tile to outputs     distribute   M  = A Y A^T      gradient of collect
 *
 * Images are (n, H, W, C). The 36 values per tile are (36, T, C), T at least the number of tiles, in reading order.
 * C is a multiple of LANES. Where H or W is not a multiple of 4, the last tiles hang over the edge and see zeros.
 */

#include "vectors.h"

/* The sums of a product that fit into registers: TALL rows of WIDE vectors, or SHORT rows of one; MOST is the larger
 * number of rows. */
#if defined(__AVX512F__)
enum { TALL = 12, WIDE = 2, SHORT = 8, MOST = TALL };
#else
enum { TALL = 6, WIDE = 2, SHORT = 8, MOST = SHORT };
#endif

int lanes(void) { return LANES; }

/* ------------------------------------------------------------ one dimension
 *
 *         4  0 -5  0  1  0                              1/4     0    0
 *         0 -4 -4  1  1  0       1  1  1  1  1  0      -1/6 -1/6 -1/6
 *  B^T =  0  4 -4 -1  1  0  A^T= 0  1 -1  2 -2  0  G = -1/6  1/6 -1/6
 *         0 -2 -1  2  1  0       0  1  1  4  4  0      1/24 1/12  1/6
 *         0  2 -1 -2  1  0       0  1 -1  8 -8  1      1/24-1/12  1/6
 *         0  4  0 -5  0  1                               0     0    1
 *
 * `s` and `t` are the strides of input and output values. */

static inline void times_Bt(const Vector *d, Index s, Vector *out, Index t) {
    Vector d1 = d[s], d2 = d[2 * s], d3 = d[3 * s], d4 = d[4 * s];
    Vector even = d4 - 4 * d2, odd = d3 - 4 * d1, near = d4 - d2, far = 2 * (d3 - d1);
    out[0] = 4 * d[0] - 5 * d2 + d4;
    out[t] = even + odd;
    out[2 * t] = even - odd;
    out[3 * t] = near + far;
    out[4 * t] = near - far;
    out[5 * t] = 4 * d1 - 5 * d3 + d[5 * s];
}

static inline void times_B(const Vector *v, Index s, Vector *out, Index t) {
    Vector v0 = v[0], v5 = v[5 * s];
    Vector p = v[s] + v[2 * s], q = v[s] - v[2 * s], r = v[3 * s] + v[4 * s], u = v[3 * s] - v[4 * s];
    out[0] = 4 * v0;
    out[t] = 4 * (v5 - q) - 2 * u;
    out[2 * t] = -5 * v0 - 4 * p - r;
    out[3 * t] = q + 2 * u - 5 * v5;
    out[4 * t] = v0 + p + r;
    out[5 * t] = v5;
}

static inline void times_At(const Vector *m, Index s, Vector *out, Index t) {
    Vector p = m[s] + m[2 * s], q = m[s] - m[2 * s], r = m[3 * s] + m[4 * s], u = m[3 * s] - m[4 * s];
    out[0] = m[0] + p + r;
    out[t] = q + 2 * u;
    out[2 * t] = p + 4 * r;
    out[3 * t] = q + 8 * u + m[5 * s];
}

static inline void times_A(const Vector *y, Index s, Vector *out, Index t) {
    Vector y0 = y[0], y1 = y[s], y2 = y[2 * s], y3 = y[3 * s];
    Vector p = y0 + y2, q = y1 + y3, r = y0 + 4 * y2, u = 2 * y1 + 8 * y3;
    out[0] = y0;
    out[t] = p + q;
    out[2 * t] = p - q;
    out[3 * t] = r + u;
    out[4 * t] = r - u;
    out[5 * t] = y3;
}

static inline void times_Gt(const Vector *u, Index s, Vector *out, Index t) {
    Vector p = (u[s] + u[2 * s]) * (1.0f / 6), q = (u[2 * s] - u[s]) * (1.0f / 6);
    Vector r = (u[3 * s] + u[4 * s]) * (1.0f / 24), w = (u[3 * s] - u[4 * s]) * (1.0f / 12);
    out[0] = 0.25f * u[0] - p + r;
    out[t] = q + w;
    out[2 * t] = 4 * r - p + u[5 * s];
}

static inline void times_G(const Vector *g, Index s, Vector *out, Index t) {
    Vector g0 = g[0], g1 = g[s], g2 = g[2 * s];
    Vector even = (g0 + g2) * (-1.0f / 6), odd = g1 * (1.0f / 6);
    Vector near = g0 * (1.0f / 24) + g2 * (1.0f / 6), far = g1 * (1.0f / 12);
    out[0] = 0.25f * g0;
    out[t] = even - odd;
    out[2 * t] = even + odd;
    out[3 * t] = near + far;
    out[4 * t] = near - far;
    out[5 * t] = g2;
}

/* ------------------------------------------------------------ whole images */

typedef struct { Index row, column, height, width; } Window; /* the part of the image that a tile reads or writes */

static inline Index tiles_along(Index length) { return (length + 3) / 4; }

static inline int within(Window w, Index H, Index W) {
    return w.row >= 0 && w.column >= 0 && w.row + w.height <= H && w.column + w.width <= W;
}

#define FOR_EACH_TILE(n, H, W)                                                                                     \
    for (Index image = 0, tile = 0; image < (n); image++)                                                          \
        for (Index y = 0; y < tiles_along(H); y++)                                                                 \
            for (Index x = 0; x < tiles_along(W); x++, tile++)

#define FOR_EACH_PIXEL(i, j, size)                                                                                 \
    for (Index i = 0; i < (size); i++)                                                                             \
        for (Index j = 0; j < (size); j++)

/* A processor does not foresee the rows of a tile, which are far apart in memory: ask for the pixels of the tile below
 * (or of the next image), or for those to be written in the next tile. Asking for what is not there does no harm. */
#define FORESEE_BELOW(pixel, W, C) __builtin_prefetch((pixel) + 4 * (W) * (C), 0, 2)
#define FORESEE_WRITING(pixel, C) __builtin_prefetch((pixel) + 4 * (C), 1)

static void spread(const float *d, float *V, Index n, Index H, Index W, Index C, Index T) {
    FOR_EACH_TILE(n, H, W) {
        Window seen = {4 * y - 1, 4 * x - 1, 6, 6};
        int whole = within(seen, H, W);
        const float *corner = d + ((image * H + seen.row) * W + seen.column) * C; /* may lie outside of the image */
        for (Index c = 0; c < C; c += LANES) {
            Vector in[36], half[36], out[6];
            FOR_EACH_PIXEL(i, j, 6) {
                int there = whole || within((Window){seen.row + i, seen.column + j, 1, 1}, H, W);
                const float *pixel = corner + (i * W + j) * C + c;
                in[6 * i + j] = there ? load(pixel) : (Vector){0};
                if (i > 1 && j > 0 && j < 5) FORESEE_BELOW(pixel, W, C); /* the others belong to other tiles too */
            }
            for (Index j = 0; j < 6; j++) times_Bt(in + j, 6, half + j, 6);
            for (Index i = 0; i < 6; i++) {
                times_Bt(half + 6 * i, 1, out, 1);
                for (Index j = 0; j < 6; j++) store(V + ((6 * i + j) * T + tile) * C + c, out[j]);
            }
        }
    }
}

static void gather_add(const float *V, float *d, Index n, Index H, Index W, Index C, Index T) {
    FOR_EACH_TILE(n, H, W) {
        Window seen = {4 * y - 1, 4 * x - 1, 6, 6};
        int whole = within(seen, H, W);
        float *corner = d + ((image * H + seen.row) * W + seen.column) * C;
        for (Index c = 0; c < C; c += LANES) {
            Vector in[6], half[36], out[6];
            for (Index j = 0; j < 6; j++) {
                for (Index i = 0; i < 6; i++) in[i] = load(V + ((6 * i + j) * T + tile) * C + c);
                times_B(in, 1, half + j, 6);
            }
            for (Index i = 0; i < 6; i++) {
                times_B(half + 6 * i, 1, out, 1);
                for (Index j = 0; j < 6; j++)
                    if (whole || within((Window){seen.row + i, seen.column + j, 1, 1}, H, W)) {
                        float *pixel = corner + (i * W + j) * C + c;
                        store(pixel, load(pixel) + out[j]);
                    }
            }
        }
    }
}

/* The 4x4 outputs of a tile, for one vector of channels; half of the transform has been made. */
INLINED void collect_half(const float *M, Index tile, Index C, Index T, Index c, Vector *half) {
    for (Index j = 0; j < 6; j++) {
        Vector in[6];
        for (Index i = 0; i < 6; i++) in[i] = load(M + ((6 * i + j) * T + tile) * C + c);
        times_At(in, 1, half + j, 6);
    }
}

static void collect(const float *M, const float *bias, float *Y, Index n, Index H, Index W, Index C, Index T) {
    FOR_EACH_TILE(n, H, W) {
        Window made = {4 * y, 4 * x, 4, 4};
        int whole = within(made, H, W);
        float *corner = Y + ((image * H + made.row) * W + made.column) * C;
        for (Index c = 0; c < C; c += LANES) {
            Vector half[24], out[4], shift = bias ? load(bias + c) : (Vector){0};
            collect_half(M, tile, C, T, c, half);
            for (Index i = 0; i < 4; i++) {
                times_At(half + 6 * i, 1, out, 1);
                for (Index j = 0; j < 4; j++) {
                    float *pixel = corner + (i * W + j) * C + c;
                    if (whole || within((Window){made.row + i, made.column + j, 1, 1}, H, W)) store(pixel, out[j] + shift);
                    FORESEE_WRITING(pixel, C);
                }
            }
        }
    }
}

/* As collect, then max(y, 0), then, with cells of 2x2 pixels (`cell` 2, not 1), the largest of each: Y is
 * (n, H / cell, W / cell, C). A row or column that is left over belongs to no cell. */
INLINED void collect_relu(const int cell, const float *M, const float *bias, float *Y, Index n, Index H, Index W,
                          Index C, Index T) {
    const int cells = 4 / cell;
    Index rows = H / cell, columns = W / cell;
    FOR_EACH_TILE(n, H, W) {
        float *corner = Y + ((image * rows + cells * y) * columns + cells * x) * C;
        for (Index c = 0; c < C; c += LANES) {
            Vector half[24], out[16], shift = load(bias + c);
            collect_half(M, tile, C, T, c, half);
            for (Index i = 0; i < 4; i++) times_At(half + 6 * i, 1, out + 4 * i, 1);
            UNROLLED (int i = 0; i < cells; i++) UNROLLED (int j = 0; j < cells; j++) {
                Vector best = out[cell * (4 * i + j)];
                UNROLLED (int k = 1; k < cell * cell; k++) {
                    Vector other = out[cell * (4 * i + j) + k / cell * 4 + k % cell];
                    best = either(~(other <= best), other, best); /* NaN wins */
                }
                best += shift;
                if (cells * y + i < rows && cells * x + j < columns)
                    store(corner + (i * columns + j) * C + c, only(~(best <= 0), best));
                FORESEE_WRITING(corner + (i * columns + j) * C + c, C);
            }
        }
    }
}

static void distribute(const float *Y, float *M, Index n, Index H, Index W, Index C, Index T) {
    FOR_EACH_TILE(n, H, W) {
        Window made = {4 * y, 4 * x, 4, 4};
        int whole = within(made, H, W);
        const float *corner = Y + ((image * H + made.row) * W + made.column) * C;
        for (Index c = 0; c < C; c += LANES) {
            Vector in[16], half[24], out[6];
            FOR_EACH_PIXEL(i, j, 4) {
                int there = whole || within((Window){made.row + i, made.column + j, 1, 1}, H, W);
                const float *pixel = corner + (i * W + j) * C + c;
                in[4 * i + j] = there ? load(pixel) : (Vector){0};
                FORESEE_BELOW(pixel, W, C);
            }
            for (Index j = 0; j < 4; j++) times_A(in + j, 4, half + j, 4);
            for (Index i = 0; i < 6; i++) {
                times_A(half + 4 * i, 1, out, 1);
                for (Index j = 0; j < 6; j++) store(M + ((6 * i + j) * T + tile) * C + c, out[j]);
            }
        }
    }
}

/* ------------------------------------------------------------ 36 matrix products */

typedef struct { const float *at; Index row, column, next; } Left; /* steps between entries and between matrices */
typedef struct { const float *at; Index row, next; } Right;        /* columns are neighbours */
typedef struct { float *at; Index row, next; } Result;

/* Some rows and vectors of a product, summed in registers. */
INLINED void panel(const int rows, const int vectors, Index inner, Left a, Right b, Result out, int add) {
    Vector sum[MOST][WIDE];
    UNROLLED (int r = 0; r < rows; r++) UNROLLED (int v = 0; v < vectors; v++)
        sum[r][v] = (Vector){0};
    for (Index k = 0; k < inner; k++) {
        Vector right[WIDE];
        UNROLLED (int v = 0; v < vectors; v++) right[v] = load(b.at + k * b.row + v * LANES);
        UNROLLED (int r = 0; r < rows; r++) UNROLLED (int v = 0; v < vectors; v++)
            sum[r][v] += a.at[r * a.row + k * a.column] * right[v];
    }
    UNROLLED (int r = 0; r < rows; r++) UNROLLED (int v = 0; v < vectors; v++) {
        float *to = out.at + r * out.row + v * LANES; /* a sum of sums rounds less than one long sum */
        store(to, add ? load(to) + sum[r][v] : sum[r][v]);
    }
}

INLINED void column(const int vectors, Index rows, Index inner, Left a, Right b, Result out, int add) {
#define DOWN(size) a.at += (size) * a.row, out.at += (size) * out.row, rows -= (size)
    for (; rows >= TALL; DOWN(TALL)) panel(TALL, vectors, inner, a, b, out, add);
    for (; rows >= 4; DOWN(4)) panel(4, vectors, inner, a, b, out, add);
    for (; rows >= 1; DOWN(1)) panel(1, vectors, inner, a, b, out, add);
}

/* out = a b for each of 36, or out += a b; a is (rows, inner), b (inner, columns). */
static void products(Index rows, Index inner, Index columns, Left a, Right b, Result out, int add) {
    for (Index k = 0; k < 36; k++, a.at += a.next, b.at += b.next, out.at += out.next)
        for (Index c = 0; c < columns; c += WIDE * LANES) {
            Right here = {b.at + c, b.row, 0};
            Result there = {out.at + c, out.row, 0};
            if (c + WIDE * LANES <= columns) column(WIDE, rows, inner, a, here, there, add);
            else column(1, rows, inner, a, here, there, add);
        }
}

/* ------------------------------------------------------------ weights
 *
 * (rows, columns, 3, 3) with any strides; transformed (36, rows, columns), with a little padding between the 36 matrices:
 * addresses that are a power of two apart would evict each other from the cache. */

typedef struct { Index row, column, down, right; } Steps;

static inline Index apart(Index rows, Index columns) { return rows * columns + LANES; }

static void spread_weights(const float *g, Steps steps, float *U, Index rows, Index columns) {
    for (Index r = 0; r < rows; r++)
        for (Index c = 0; c < columns; c += LANES) {
            Vector in[9], half[18], out[6];
            const float *from = g + r * steps.row + c * steps.column;
            FOR_EACH_PIXEL(i, j, 3) {
                float entries[LANES];
                for (Index lane = 0; lane < LANES; lane++)
                    entries[lane] = from[lane * steps.column + i * steps.down + j * steps.right];
                in[3 * i + j] = load(entries);
            }
            for (Index j = 0; j < 3; j++) times_G(in + j, 3, half + j, 3);
            for (Index i = 0; i < 6; i++) {
                times_G(half + 3 * i, 1, out, 1);
                for (Index j = 0; j < 6; j++) store(U + (6 * i + j) * apart(rows, columns) + r * columns + c, out[j]);
            }
        }
}

/* The transposed transform, to (9, rows, columns). */
static void gather_weights(const float *U, float *g, Index rows, Index columns) {
    for (Index place = 0; place < rows * columns; place += LANES) {
        Vector in[6], half[18], out[3];
        for (Index j = 0; j < 6; j++) {
            for (Index i = 0; i < 6; i++) in[i] = load(U + (6 * i + j) * apart(rows, columns) + place);
            times_Gt(in, 1, half + j, 6);
        }
        for (Index i = 0; i < 3; i++) {
            times_Gt(half + 6 * i, 1, out, 1);
            for (Index j = 0; j < 3; j++) store(g + (3 * i + j) * rows * columns + place, out[j]);
        }
    }
}

/* ------------------------------------------------------------ the convolution
 *
 * `scratch` has room for 36 * (2 * (C * O + LANES) + T * (C + O)) values (forward: once C * O + LANES), where T is the number of tiles of `together`
 * images, or one more if that is even (as with weights: not a power of two). */

static inline Index room(Index together, Index H, Index W) { return (together * tiles_along(H) * tiles_along(W)) | 1; }

#define FOR_SOME_IMAGES(n, together)                                                                               \
    for (Index first = 0, some; some = (n) - first < (together) ? (n) - first : (together), first < (n); first += some)

/* What is done to the outputs: nothing, max(y, 0), or the largest of that in each cell of 2x2 pixels. The latter two
 * need a bias. */
enum { NOTHING, RELU, RELU_AND_POOL };

void forward(const float *x, const float *g, const float *bias, float *y, float *scratch, Index O, Index C, Index g_O,
             Index g_C, Index g_down, Index g_right, Index n, Index H, Index W, Index together, Index then) {
    Index pixels = then == RELU_AND_POOL ? (H / 2) * (W / 2) : H * W;
    Index T = room(together, H, W), each = tiles_along(H) * tiles_along(W);
    float *U = scratch, *V = U + 36 * apart(C, O), *M = V + 36 * T * C;
    spread_weights(g, (Steps){g_C, g_O, g_down, g_right}, U, C, O);
    FOR_SOME_IMAGES(n, together) {
        spread(x + first * H * W * C, V, some, H, W, C, T);
        products(some * each, C, O, (Left){V, C, 1, T * C}, (Right){U, O, apart(C, O)}, (Result){M, O, T * O}, 0);
        float *to = y + first * pixels * O;
        if (then == NOTHING) collect(M, bias, to, some, H, W, O, T);
        else if (then == RELU) collect_relu(1, M, bias, to, some, H, W, O, T);
        else collect_relu(2, M, bias, to, some, H, W, O, T);
    }
}

/* With M from dy: dV = M U, summed into dx, and dU = V^T M, transformed to dg (9, C, O); dbias is the sum of dy.
 * dx may be null, and so may dg and dbias; they are then not computed. */
void backward(const float *dy, const float *x, const float *g, float *dx, float *dg, float *dbias, float *scratch,
              Index O, Index C, Index g_O, Index g_C, Index g_down, Index g_right, Index n, Index H, Index W,
              Index together) {
    Index T = room(together, H, W), each = tiles_along(H) * tiles_along(W);
    float *U = scratch, *dU = U + 36 * apart(C, O), *V = dU + 36 * apart(C, O), *M = V + 36 * T * C;
    if (dx) spread_weights(g, (Steps){g_O, g_C, g_down, g_right}, U, O, C);
    FOR_SOME_IMAGES(n, together) {
        distribute(dy + first * H * W * O, M, some, H, W, O, T);
        if (dx) {
            products(some * each, O, C, (Left){M, O, 1, T * O}, (Right){U, C, apart(O, C)}, (Result){V, C, T * C}, 0);
            __builtin_memset(dx + first * H * W * C, 0, some * H * W * C * sizeof(float));
            gather_add(V, dx + first * H * W * C, some, H, W, C, T);
        }
        if (dg) {
            Left across = {V, 1, C, T * C};
            spread(x + first * H * W * C, V, some, H, W, C, T);
            products(C, some * each, O, across, (Right){M, O, T * O}, (Result){dU, O, apart(C, O)}, first > 0);
            for (Index t = 0; t < some * each; t++) /* position (1, 1) holds the sum of the tile */
                for (Index o = 0; o < O; o += LANES) store(dbias + o, load(dbias + o) + load(M + (7 * T + t) * O + o));
        }
    }
    if (dg) gather_weights(dU, dg, C, O);
}

/* ------------------------------------------------------------ the weight gradients of single images
 *
 *     dg = scale * G^T [ sum_t V_t M_t^T ] G        for each, as (O / LANES, C / ROWS, 9, ROWS, LANES)
 *
 * with one scale per output, if given. It computes a block of ROWS x LANES weights at a time, so that the values between
 * the product and its transform stay in the cache. Blocks are consecutive in memory.
 * `scratch` is as above, for one image and without the space for weights. */

enum { ROWS = SHORT, BLOCK = 9 * ROWS * LANES };

int block_rows(void) { return ROWS; }

#define FOR_EACH_WEIGHT(k, r)                                                                                      \
    for (Index k = 0; k < 9; k++)                                                                                  \
        for (Index r = 0; r < ROWS; r++)

static inline void block(const float *V, const float *M, const float *scale, const float *next, Index tiles, Index C,
                         Index O, Index T, Vector (*dg)[ROWS]) {
    Vector half[ROWS][18];
    for (Index j = 0; j < 6; j++) { /* one column of the 6x6 at a time stays in the nearest cache */
        Vector sums[6][ROWS];
        for (Index i = 0; i < 6; i++) {
            Left v = {V + (6 * i + j) * T * C, 1, C, 0};
            Right m = {M + (6 * i + j) * T * O, O, 0};
            panel(ROWS, 1, tiles, v, m, (Result){(float *)sums[i], LANES, 0}, 0);
        }
        for (Index r = 0; r < ROWS; r++) times_Gt(&sums[0][r], ROWS, half[r] + j, 6);
        if (next) /* `next` is in main memory: prefetch some of it for the next step */
            for (Index at = j * BLOCK / 6; at < (j + 1) * BLOCK / 6; at += 16) __builtin_prefetch(next + at);
    }
    for (Index r = 0; r < ROWS; r++)
        for (Index i = 0; i < 3; i++) times_Gt(half[r] + 6 * i, 1, &dg[3 * i][r], ROWS);
    if (scale) FOR_EACH_WEIGHT(k, r) dg[k][r] *= load(scale);
}

#define FOR_EACH_BLOCK(c, o)                                                                                       \
    for (Index o = 0; o < O; o += LANES)                                                                           \
        for (Index c = 0; c < C; c += ROWS)

void weight_gradients(const float *dy, const float *x, const float *scale, float *dg, float *scratch, Index O, Index C,
                      Index n, Index H, Index W) {
    Index T = room(1, H, W), tiles = tiles_along(H) * tiles_along(W);
    float *V = scratch, *M = V + 36 * T * C;
    for (Index image = 0; image < n; image++, x += H * W * C, dy += H * W * O) {
        spread(x, V, 1, H, W, C, T);
        distribute(dy, M, 1, H, W, O, T);
        FOR_EACH_BLOCK(c, o) {
            Vector found[9][ROWS];
            block(V + c, M + o, scale ? scale + o : 0, 0, tiles, C, O, T, found);
            FOR_EACH_WEIGHT(k, r) store(dg + (k * ROWS + r) * LANES, found[k][r]);
            dg += BLOCK;
        }
    }
}

/* ||dg - other||^2 for each image, without writing dg to memory; `other` may be null. */
void squared_differences(const float *dy, const float *x, const float *scale, const float *other, double *squares,
                         float *scratch, Index O, Index C, Index n, Index H, Index W) {
    Index T = room(1, H, W), tiles = tiles_along(H) * tiles_along(W);
    float *V = scratch, *M = V + 36 * T * C;
    for (Index image = 0; image < n; image++, x += H * W * C, dy += H * W * O) {
        Doubles total = {0};
        spread(x, V, 1, H, W, C, T);
        distribute(dy, M, 1, H, W, O, T);
        FOR_EACH_BLOCK(c, o) {
            Vector found[9][ROWS], square = {0};
            block(V + c, M + o, scale ? scale + o : 0, other ? other + BLOCK : 0, tiles, C, O, T, found);
            FOR_EACH_WEIGHT(k, r) {
                Vector off = other ? found[k][r] - load(other + (k * ROWS + r) * LANES) : found[k][r];
                square += off * off;
            }
            if (other) other += BLOCK;
            total += __builtin_convertvector(square, Doubles);
        }
        squares[image] = 0;
        for (Index lane = 0; lane < LANES; lane++) squares[image] += total[lane];
    }
}
