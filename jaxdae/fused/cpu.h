// Types and functions of the body of a kernel on a CPU: each operation acts on a vector with one lane per world.
// Before this file, REAL, INTEGER (of the same size) and LANES are defined. Booleans are integers: 0 or all bits set.
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif
#include "call.h"

typedef REAL R;
typedef INTEGER Z;
typedef R F __attribute__((vector_size(LANES * sizeof(R)), may_alias));
typedef Z I __attribute__((vector_size(LANES * sizeof(R)), may_alias));
typedef I B;
#define LANE for (int k = 0; k < LANES; ++k)
#define TRUE ((Z)-1)
#define FALSE ((Z)0)
#define LEAST ((Z)(1ull << (8 * sizeof(Z) - 1)))  // the smallest integer, and the sign bit of a number

static inline F V(R x) { return F{} + x; }
static inline I V(Z x) { return I{} + x; }
static inline bool ANY(Z m) { return m != 0; }
static inline bool ANY(I m) { Z r = 0; LANE r |= m[k]; return r != 0; }

#define COMPARE(NAME, OP)                                   \
  static inline Z NAME(R a, R b) { return -(Z)(a OP b); }   \
  static inline Z NAME(Z a, Z b) { return -(Z)(a OP b); }   \
  static inline I NAME(F a, F b) { return a OP b; }         \
  static inline I NAME(I a, I b) { return a OP b; }
COMPARE(EQ, ==) COMPARE(NE, !=) COMPARE(LT, <) COMPARE(LE, <=) COMPARE(GT, >) COMPARE(GE, >=)

static inline R SELECT(Z m, R a, R b) { return m ? a : b; }
static inline Z SELECT(Z m, Z a, Z b) { return m ? a : b; }
static inline F SELECT(I m, F a, F b) { return m ? a : b; }
static inline I SELECT(I m, I a, I b) { return m ? a : b; }
static inline Z NOT(Z m) { return ~m; }
static inline I NOT(I m) { return ~m; }

// NaN in either argument gives NaN, as in XLA.
static inline R MAX(R a, R b) { return a > b || a != a ? a : b; }
static inline R MIN(R a, R b) { return a < b || a != a ? a : b; }
static inline F MAX(F a, F b) { return (a > b) | (a != a) ? a : b; }
static inline F MIN(F a, F b) { return (a < b) | (a != a) ? a : b; }
static inline Z MAX(Z a, Z b) { return a > b ? a : b; }
static inline Z MIN(Z a, Z b) { return a < b ? a : b; }
static inline I MAX(I a, I b) { return a > b ? a : b; }
static inline I MIN(I a, I b) { return a < b ? a : b; }
static inline R ABS(R a) { return a < 0 ? -a : a + (R)0; }
static inline F ABS(F a) { return (F)((I)a & ~LEAST); }
static inline Z ABS(Z a) { return a < 0 ? -a : a; }
static inline I ABS(I a) { return a < 0 ? -a : a; }
static inline Z ISFINITE(R a) { return -(Z)(a - a == 0); }
static inline I ISFINITE(F a) { return a - a == 0; }

// As in XLA, numbers outside of the range of integers saturate, and NaN becomes 0.
static inline R ITOF(Z a) { return (R)a; }
static inline F ITOF(I a) { return __builtin_convertvector(a, F); }
static inline Z FTOI(R a) { return a != a ? 0 : a < (R)LEAST ? LEAST : a >= -(R)LEAST ? ~LEAST : (Z)a; }
static inline I FTOI(F a) { I r; LANE r[k] = FTOI((R)a[k]); return r; }
static inline Z BTOI(Z a) { return -a; }
static inline I BTOI(I a) { return -a; }
static inline R BTOF(Z a) { return (R)-a; }
static inline F BTOF(I a) { return __builtin_convertvector(-a, F); }
static inline Z ITOB(Z a) { return -(Z)(a != 0); }
static inline I ITOB(I a) { return a != 0; }
static inline Z FTOB(R a) { return -(Z)(a != 0); }
static inline I FTOB(F a) { return a != 0; }

#define MATH(NAME, fn)                                                                     \
  static inline float NAME##_(float x) { return __builtin_##fn##f(x); }                     \
  static inline double NAME##_(double x) { return __builtin_##fn(x); }                      \
  static inline R NAME(R x) { return NAME##_(x); }                                         \
  static inline F NAME(F x) { F r; LANE r[k] = NAME##_((R)x[k]); return r; }
MATH(SQRT, sqrt) MATH(CBRT, cbrt) MATH(FLOOR, floor) MATH(CEIL, ceil) MATH(RINT, rint)
MATH(SIN, sin) MATH(COS, cos) MATH(TAN, tan) MATH(ASIN, asin) MATH(ACOS, acos) MATH(ATAN, atan)
MATH(SINH, sinh) MATH(COSH, cosh) MATH(TANH, tanh) MATH(EXP, exp) MATH(EXP2, exp2) MATH(EXPM1, expm1)
MATH(LOG, log) MATH(LOG1P, log1p) MATH(ERF, erf) MATH(ASINH, asinh) MATH(ACOSH, acosh) MATH(ATANH, atanh)
static inline R RSQRT(R x) { return (R)1 / SQRT(x); }
static inline F RSQRT(F x) { return (R)1 / SQRT(x); }
#define MATH2(NAME, fn)                                                                    \
  static inline float NAME##_(float x, float y) { return __builtin_##fn##f(x, y); }         \
  static inline double NAME##_(double x, double y) { return __builtin_##fn(x, y); }         \
  static inline R NAME(R x, R y) { return NAME##_(x, y); }                                 \
  static inline F NAME(F x, F y) { F r; LANE r[k] = NAME##_((R)x[k], (R)y[k]); return r; }
MATH2(ATAN2, atan2) MATH2(POW, pow) MATH2(REM, fmod)
// Integers by zero, and the smallest one by -1, as in XLA.
static inline Z DIV(Z x, Z y) { return !y ? -1 : y == -1 ? -x : x / y; }
static inline I DIV(I x, I y) { I r; LANE r[k] = DIV((Z)x[k], (Z)y[k]); return r; }
static inline Z REM(Z x, Z y) { return !y ? x : y == -1 ? 0 : x % y; }
static inline I REM(I x, I y) { I r; LANE r[k] = REM((Z)x[k], (Z)y[k]); return r; }

// Arguments and results are arrays (world, entry), or (entry) if all worlds share them. A last vector that is not full repeats its last
// world, and writes it once.
template <class T> struct Each { T* p; long stride; const long* world; long count; };
#define EACH_ARRAY(T, NAME, POINTER, SIZE) const Each<T> NAME = {(T*)POINTER, SIZE, world, count}
#define SHARED_ARRAY(T, NAME, POINTER) T* const NAME = (T*)POINTER
template <class T> static __attribute__((noinline)) F READ_F(const Each<T>& a, long j) { F r; LANE r[k] = (R)a.p[a.world[k] * a.stride + j]; return r; }
template <class T> static __attribute__((noinline)) I READ_I(const Each<T>& a, long j) { I r; LANE r[k] = (Z)a.p[a.world[k] * a.stride + j]; return r; }
template <class T> static __attribute__((noinline)) I READ_B(const Each<T>& a, long j) { I r; LANE r[k] = -(Z)(a.p[a.world[k] * a.stride + j] != 0); return r; }
template <class T> static inline R READ_SHARED_F(const T* p, long j) { return (R)p[j]; }
template <class T> static inline Z READ_SHARED_I(const T* p, long j) { return (Z)p[j]; }
template <class T> static inline Z READ_SHARED_B(const T* p, long j) { return -(Z)(p[j] != 0); }
template <class T> static inline F GATHER_SHARED_F(const T* p, I i, long j) { F r; LANE r[k] = (R)p[i[k] + j]; return r; }
template <class T> static inline I GATHER_SHARED_I(const T* p, I i, long j) { I r; LANE r[k] = (Z)p[i[k] + j]; return r; }
template <class T> static inline I GATHER_SHARED_B(const T* p, I i, long j) { I r; LANE r[k] = -(Z)(p[i[k] + j] != 0); return r; }
template <class T> static inline F GATHER_EACH_F(const Each<T>& a, I i, long j) { F r; LANE r[k] = (R)a.p[a.world[k] * a.stride + i[k] + j]; return r; }
template <class T> static inline I GATHER_EACH_I(const Each<T>& a, I i, long j) { I r; LANE r[k] = (Z)a.p[a.world[k] * a.stride + i[k] + j]; return r; }
template <class T> static inline I GATHER_EACH_B(const Each<T>& a, I i, long j) { I r; LANE r[k] = -(Z)(a.p[a.world[k] * a.stride + i[k] + j] != 0); return r; }
template <class T, class X> static inline T CAST(X x) { return (T)x; }
template <> inline unsigned char CAST<unsigned char, Z>(Z x) { return x != 0; }
template <class T, class X> static __attribute__((noinline)) void WRITE(const Each<T>& a, long j, X x) {
  for (int k = 0; k < a.count; ++k) a.p[a.world[k] * a.stride + j] = CAST<T>(x[k]);
}

// Temporary memory has LANES numbers per entry.
#define GET_F(t, j) (((const F*)(t))[j])
#define GET_I(t, j) (((const I*)(t))[j])
#define GET_B(t, j) (((const I*)(t))[j])
#define PUT_F(j, x) (((F*)temporary)[j] = (x))
#define PUT_I(j, x) (((I*)temporary)[j] = (x))
#define PUT_B(j, x) (((I*)temporary)[j] = (x))
#define GET_SHARED_F(t, j) (((const F*)(t))[j][0])
#define GET_SHARED_I(t, j) (((const I*)(t))[j][0])
#define GET_SHARED_B(t, j) (((const I*)(t))[j][0])
#define PUT_SHARED_F(j, x) (((F*)temporary)[j] = V((R)(x)))
#define PUT_SHARED_I(j, x) (((I*)temporary)[j] = V((Z)(x)))
#define PUT_SHARED_B(j, x) (((I*)temporary)[j] = V((Z)(x)))
static inline F GATHER_EACH_F(const R* t, I i, long j) { F r; LANE r[k] = t[(i[k] + j) * LANES + k]; return r; }
static inline I GATHER_EACH_I(const R* t, I i, long j) { I r; LANE r[k] = ((const I*)t)[i[k] + j][k]; return r; }
#define GATHER_EACH_B GATHER_EACH_I
