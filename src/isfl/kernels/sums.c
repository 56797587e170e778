/* Sums over the pixels of images (n, pixels, C), per image and channel, in one pass over memory (ours). */

typedef long Index;

/* sums = sum of g, products = sum of g (z - shift). */
void channel_sums(const float *restrict g, const float *restrict z, const float *restrict shift, float *restrict sums,
                  float *restrict products, Index n, Index pixels, Index C) {
    for (Index image = 0; image < n; image++, sums += C, products += C) {
        for (Index c = 0; c < C; c++) sums[c] = products[c] = 0;
        for (Index pixel = 0; pixel < pixels; pixel++, g += C, z += C)
            for (Index c = 0; c < C; c++) {
                sums[c] += g[c];
                products[c] += g[c] * (z[c] - shift[c]);
            }
    }
}
