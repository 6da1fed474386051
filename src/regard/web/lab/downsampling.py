"""A curve of ten thousand points on six hundred pixels: the mean, the lowest and the highest value in each."""

from __future__ import annotations

import numpy as np


def in_buckets(x: np.ndarray, y: np.ndarray, width: int, log: bool = False) -> tuple[np.ndarray, ...]:
    """x, mean, low and high, each at most `width` numbers; `log`: buckets are equally wide on a logarithmic axis.

    `x` does not fall. Points that are not finite are left out; a curve with fewer points than buckets stays as it is.
    """
    real = np.isfinite(x) & np.isfinite(y) & ((x > 0) | (not log))
    x, y = x[real], y[real]
    if len(x) <= width:
        return tuple(values.astype(np.float32) for values in (x, y, y, y))
    place = np.log(x) if log else x
    reach = (place[-1] - place[0]) or 1.0
    bucket = np.minimum((place - place[0]) / reach * width, width - 1).astype(np.int64)
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    count = np.diff(starts, append=len(x))
    return tuple(
        values.astype(np.float32)
        for values in (
            np.add.reduceat(x, starts) / count,
            np.add.reduceat(y, starts) / count,
            np.minimum.reduceat(y, starts),
            np.maximum.reduceat(y, starts),
        )
    )
