// Types and functions of the body of a kernel on a GPU: each thread runs one world. Before this file, REAL and INTEGER (of the same size)
// are defined. Booleans are integers: 0 or all bits set.
#include <math.h>
#include <string.h>
#include <cuda_runtime.h>
#include "call.h"

typedef REAL R;
typedef INTEGER Z;
typedef R F;
typedef Z I;
typedef Z B;
#define DEVICE static __device__ __forceinline__
#define TRUE ((Z)-1)
#define FALSE ((Z)0)
#define LEAST ((Z)(1ull << (8 * sizeof(Z) - 1)))  // the smallest integer

DEVICE R V(R x) { return x; }
DEVICE Z V(Z x) { return x; }
DEVICE bool ANY(Z m) { return m != 0; }

#define COMPARE(NAME, OP)                        \
  DEVICE Z NAME(R a, R b) { return -(Z)(a OP b); } \
  DEVICE Z NAME(Z a, Z b) { return -(Z)(a OP b); }
COMPARE(EQ, ==) COMPARE(NE, !=) COMPARE(LT, <) COMPARE(LE, <=) COMPARE(GT, >) COMPARE(GE, >=)

DEVICE R SELECT(Z m, R a, R b) { return m ? a : b; }
DEVICE Z SELECT(Z m, Z a, Z b) { return m ? a : b; }
DEVICE Z NOT(Z m) { return ~m; }

// NaN in either argument gives NaN, as in XLA.
DEVICE R MAX(R a, R b) { return a > b || a != a ? a : b; }
DEVICE R MIN(R a, R b) { return a < b || a != a ? a : b; }
DEVICE Z MAX(Z a, Z b) { return a > b ? a : b; }
DEVICE Z MIN(Z a, Z b) { return a < b ? a : b; }
DEVICE R ABS(R a) { return fabs(a); }
DEVICE Z ABS(Z a) { return a < 0 ? -a : a; }
DEVICE Z ISFINITE(R a) { return -(Z)(a - a == 0); }

// As in XLA, numbers outside of the range of integers saturate, and NaN becomes 0.
DEVICE R ITOF(Z a) { return (R)a; }
DEVICE Z FTOI(R a) { return a != a ? 0 : a < (R)LEAST ? LEAST : a >= -(R)LEAST ? ~LEAST : (Z)a; }
DEVICE Z BTOI(Z a) { return -a; }
DEVICE R BTOF(Z a) { return (R)-a; }
DEVICE Z ITOB(Z a) { return -(Z)(a != 0); }
DEVICE Z FTOB(R a) { return -(Z)(a != 0); }

#define MATH(NAME, fn)                                  \
  DEVICE float NAME##_(float x) { return fn##f(x); }     \
  DEVICE double NAME##_(double x) { return fn(x); }      \
  DEVICE R NAME(R x) { return NAME##_(x); }
MATH(SQRT, sqrt) MATH(CBRT, cbrt) MATH(FLOOR, floor) MATH(CEIL, ceil) MATH(RINT, rint)
MATH(SIN, sin) MATH(COS, cos) MATH(TAN, tan) MATH(ASIN, asin) MATH(ACOS, acos) MATH(ATAN, atan)
MATH(SINH, sinh) MATH(COSH, cosh) MATH(TANH, tanh) MATH(EXP, exp) MATH(EXP2, exp2) MATH(EXPM1, expm1)
MATH(LOG, log) MATH(LOG1P, log1p) MATH(ERF, erf) MATH(ASINH, asinh) MATH(ACOSH, acosh) MATH(ATANH, atanh)
DEVICE R RSQRT(R x) { return (R)1 / SQRT(x); }
#define MATH2(NAME, fn)                                           \
  DEVICE float NAME##_(float x, float y) { return fn##f(x, y); }   \
  DEVICE double NAME##_(double x, double y) { return fn(x, y); }   \
  DEVICE R NAME(R x, R y) { return NAME##_(x, y); }
MATH2(ATAN2, atan2) MATH2(POW, pow) MATH2(REM, fmod)
// Integers by zero, and the smallest one by -1, as in XLA.
DEVICE Z DIV(Z x, Z y) { return !y ? -1 : y == -1 ? (Z)(0ull - x) : x / y; }
DEVICE Z REM(Z x, Z y) { return !y ? x : y == -1 ? 0 : x % y; }

// Arguments and results are arrays (world, entry), or (entry) if all worlds share them. Arguments do not change while the kernel runs, so
// that the compiler may load them again instead of keeping them in registers.
template <class T> struct Each { T* p; };
#define EACH_ARRAY(T, NAME, POINTER, SIZE) const Each<T> NAME = {(T*)POINTER + world * SIZE}
#define SHARED_ARRAY(T, NAME, POINTER) T* const NAME = (T*)POINTER
template <class T> DEVICE R READ_SHARED_F(const T* p, long j) { return (R)__ldg(p + j); }
template <class T> DEVICE Z READ_SHARED_I(const T* p, long j) { return (Z)__ldg(p + j); }
template <class T> DEVICE Z READ_SHARED_B(const T* p, long j) { return -(Z)(__ldg(p + j) != 0); }
template <class T> DEVICE R READ_F(const Each<T>& a, long j) { return READ_SHARED_F(a.p, j); }
template <class T> DEVICE Z READ_I(const Each<T>& a, long j) { return READ_SHARED_I(a.p, j); }
template <class T> DEVICE Z READ_B(const Each<T>& a, long j) { return READ_SHARED_B(a.p, j); }
template <class T> DEVICE R GATHER_SHARED_F(const T* p, Z i, long j) { return READ_SHARED_F(p, i + j); }
template <class T> DEVICE Z GATHER_SHARED_I(const T* p, Z i, long j) { return READ_SHARED_I(p, i + j); }
template <class T> DEVICE Z GATHER_SHARED_B(const T* p, Z i, long j) { return READ_SHARED_B(p, i + j); }
template <class T> DEVICE R GATHER_EACH_F(const Each<T>& a, Z i, long j) { return READ_SHARED_F(a.p, i + j); }
template <class T> DEVICE Z GATHER_EACH_I(const Each<T>& a, Z i, long j) { return READ_SHARED_I(a.p, i + j); }
template <class T> DEVICE Z GATHER_EACH_B(const Each<T>& a, Z i, long j) { return READ_SHARED_B(a.p, i + j); }
DEVICE void WRITE_AS(unsigned char* p, Z x) { *p = x != 0; }
template <class T, class X> DEVICE void WRITE_AS(T* p, X x) { *p = (T)x; }
template <class T, class X> DEVICE void WRITE(const Each<T>& a, long j, X x) { WRITE_AS(a.p + j, x); }

// Temporary memory is an array (entry, world): the threads of a warp access neighboring numbers.
struct Temporary { R* p; long worlds; };
DEVICE R GET_F(const Temporary& t, long j) { return t.p[j * t.worlds]; }
DEVICE Z GET_I(const Temporary& t, long j) { const R x = GET_F(t, j); Z r; memcpy(&r, &x, sizeof(r)); return r; }
DEVICE void PUT(const Temporary& t, long j, R x) { t.p[j * t.worlds] = x; }
DEVICE void PUT(const Temporary& t, long j, Z x) { R r; memcpy(&r, &x, sizeof(r)); PUT(t, j, r); }
#define GET_B GET_I
#define PUT_F(j, x) PUT(temporary, j, (R)(x))
#define PUT_I(j, x) PUT(temporary, j, (Z)(x))
#define PUT_B PUT_I
#define GET_SHARED_F GET_F
#define GET_SHARED_I GET_I
#define GET_SHARED_B GET_I
#define PUT_SHARED_F PUT_F
#define PUT_SHARED_I PUT_I
#define PUT_SHARED_B PUT_I
DEVICE R GATHER_EACH_F(const Temporary& t, Z i, long j) { return GET_F(t, i + j); }
DEVICE Z GATHER_EACH_I(const Temporary& t, Z i, long j) { return GET_I(t, i + j); }
DEVICE Z GATHER_EACH_B(const Temporary& t, Z i, long j) { return GET_I(t, i + j); }
