# SPDX-License-Identifier: MIT
"""Minimax polynomials of src/math, printed as hexadecimal floats with their errors.

    python3 tools/minimax.py [name ...]

Every polynomial minimizes the largest weighted error |w(u) (g(u) - P(u))| over an interval (Remez
exchange) and is then rounded to the working type. Needs mpmath. The library does not run this: the
numbers stand in its sources (those of exp and tanh with their last bits varied afterwards).
"""
import struct
import sys

from mpmath import atanh, cos, exp, log, lu_solve, matrix, mp, mpf, pi, sin, sqrt, tanh

mp.prec = 200


def to_float(x):
    return mpf(struct.unpack("f", struct.pack("f", float(x)))[0])


def to_double(x):
    return mpf(float(x))


def hex_float(x, rounding):
    mantissa, exponent = float(x).hex().split("p")
    if rounding is to_float:
        whole, fraction = mantissa.split(".")
        mantissa = whole + "." + fraction.rstrip("0").ljust(6, "0")[:6]
    return mantissa + "p" + exponent + ("f" if rounding is to_float else "")


def value(coefficients, u):
    total = mpf(0)
    for c in reversed(coefficients):
        total = total * u + c
    return total


def extremes(error, low, high, count):
    """`count` points of alternating sign where |error| is largest, found on a fine grid."""
    steps = 400 * count
    points = [low + (high - low) * (1 - mp.cos(pi * i / steps)) / 2 for i in range(steps + 1)]
    errors = [error(u) for u in points]
    floor = max(abs(e) for e in errors) / 10000  # a weight that vanishes inside makes false runs
    runs = []
    for u, e in zip(points, errors):
        if abs(e) < floor:
            continue
        if not runs or (e > 0) != (runs[-1][1] > 0):
            runs.append((u, e))
        elif abs(e) > abs(runs[-1][1]):
            runs[-1] = (u, e)
    while len(runs) > count:
        runs.pop(0 if abs(runs[0][1]) < abs(runs[-1][1]) else -1)
    return runs


def remez(g, w, low, high, degree):
    """The polynomial of `degree` with the smallest weighted error, and that error."""
    count = degree + 2
    nodes = [low + (high - low) * (1 - mp.cos(pi * (2 * i + 1) / (2 * count))) / 2
             for i in range(count)]
    for _ in range(6):
        a, b = matrix(count, count), matrix(count, 1)
        for i, u in enumerate(nodes):
            for j in range(degree + 1):
                a[i, j] = w(u) * u ** j
            a[i, degree + 1] = (-1) ** i
            b[i] = w(u) * g(u)
        solution = lu_solve(a, b)
        coefficients = [solution[j] for j in range(degree + 1)]
        found = extremes(lambda u: w(u) * (g(u) - value(coefficients, u)), low, high, count)
        if len(found) < count:
            raise ArithmeticError("the exchange lost an extremum")
        nodes = [u for u, _ in found]
    return coefficients, largest(g, w, low, high, coefficients)


def largest(g, w, low, high, coefficients):
    points = [low + (high - low) * (1 - mp.cos(pi * i / 4000)) / 2 for i in range(4001)]
    return max(abs(w(u) * (g(u) - value(coefficients, u))) for u in points)


def fit(name, g, w, low, high, degree, rounding):
    coefficients, exact_error = remez(g, w, mpf(low), mpf(high), degree)
    rounded = [rounding(c) for c in coefficients]
    error = largest(g, w, mpf(low), mpf(high), rounded)
    print(f"{name}: interval [{float(low):.6g}, {float(high):.6g}], degree {degree},"
          f" error 2^{float(log(exact_error, 2)):.2f},"
          f" rounded 2^{float(log(error, 2)):.2f}")
    for i, c in enumerate(rounded):
        print(f"    c{i} = {hex_float(c, rounding)}  ({float(c):.17g})")


def series(f, limit):
    """f without its removable singularity at zero: near zero it is evaluated just beside it."""
    return lambda u: f(u if abs(u) > limit else mpf(limit))


TINY = mpf(2) ** -40
LN2_HALF = log(mpf(2)) / 2 * (1 + mpf(2) ** -16)
QUARTER = (pi / 4 * (1 + mpf(2) ** -20)) ** 2
S2 = ((sqrt(mpf(2)) - 1) / (sqrt(mpf(2)) + 1)) ** 2 * (1 + mpf(2) ** -20)


def odd(f):
    """f(x) = x + x u P(u), u = x^2: gives P and the weight of a relative error."""
    def g(u):
        x = sqrt(u)
        return (f(x) / x - 1) / u
    return series(g, TINY), lambda u: u * sqrt(u) / f(sqrt(u)) if u > TINY else u


def fit_exp():
    g = series(lambda r: (exp(r) - 1 - r) / r ** 2, TINY)
    fit("exp(r) = 1 + r + r^2 P(r)", g, lambda r: r ** 2 / exp(r), -LN2_HALF, LN2_HALF, 4, to_float)


def fit_tanh():
    g, w = odd(tanh)
    fit("tanh(x) = x + x u P(u), u = x^2", g, w, 0, mpf("0.625") ** 2, 4, to_float)


def fit_sin():
    g, w = odd(sin)
    fit("sin(r) = r + r u P(u), u = r^2", g, w, 0, QUARTER, 5, to_double)


def fit_cos():
    g = series(lambda u: (cos(sqrt(u)) - 1 + u / 2) / u ** 2, TINY)
    fit("cos(r) = 1 - u/2 + u^2 P(u), u = r^2", g, lambda u: u ** 2 / cos(sqrt(u)), 0, QUARTER, 4,
        to_double)


def fit_log():
    g, w = odd(atanh)
    fit("atanh(s) = s + s u P(u), u = s^2", g, w, 0, S2, 5, to_double)


def fit_log1p():
    g, w = odd(lambda s: 2 * atanh(s / 2))
    fit("log((1 + s/2) / (1 - s/2)) = s + s u P(u), u = s^2", g, w, 0,
        mpf(4) / 9 * (1 + mpf(2) ** -20), 3, to_float)


def fit_exp2():
    g = series(lambda r: (2 ** r - 1) / r, TINY)
    fit("2^r = 1 + r P(r)", g, lambda r: r / 2 ** r, mpf(-0.5), mpf(0.5), 9, to_double)


ALL = {"exp": fit_exp, "tanh": fit_tanh, "sin": fit_sin, "cos": fit_cos, "log": fit_log,
       "log1p": fit_log1p, "exp2": fit_exp2}

for chosen in sys.argv[1:] or ALL:
    ALL[chosen]()
