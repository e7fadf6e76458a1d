"""Solutions of tutorial 4."""

import numpy as np


def rotate_pairs(x, angles):
    a, b = x[..., 0::2], x[..., 1::2]
    cos, sin = np.cos(angles), np.sin(angles)
    turned = np.empty_like(x)
    turned[..., 0::2] = a * cos - b * sin
    turned[..., 1::2] = a * sin + b * cos
    return turned


def to_half_split(W):
    return np.concatenate([W[0::2], W[1::2]])


def stretched_speeds(theta, R, factor, context):
    omega = theta ** (-2 * np.arange(R // 2) / R)
    turns = context * omega / (2 * np.pi)
    return np.where(turns >= 1, omega, omega / factor)


def softmax_scale(N, R, factor):
    mscale = 0.1 * np.log(factor) + 1
    return (N + R) ** -0.5 * mscale**2
