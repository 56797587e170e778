/* What the C files share: vectors of the processor, and loops that are unrolled. */

#ifndef ISFL_VECTORS_H
#define ISFL_VECTORS_H

typedef long Index;

/* A vector of the processor has LANES values. */
#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef int Mask __attribute__((vector_size(4 * LANES))); /* of a comparison: all bits of a value, or none */
typedef double Doubles __attribute__((vector_size(8 * LANES)));
typedef Vector Anywhere __attribute__((aligned(4), may_alias)); /* in memory */

#define UNROLLED _Pragma("GCC unroll 16") for
#define INLINED static inline __attribute__((always_inline))

INLINED Vector load(const float *from) { return *(const Anywhere *)from; }
INLINED void store(float *to, Vector value) { *(Anywhere *)to = value; }

/* The values where the mask is set, and zero elsewhere. */
INLINED Vector only(Mask mask, Vector values) { return (Vector)((Mask)values & mask); }
INLINED Vector either(Mask mask, Vector yes, Vector no) { return (Vector)(((Mask)yes & mask) | ((Mask)no & ~mask)); }

#endif
