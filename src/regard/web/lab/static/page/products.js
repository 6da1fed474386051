// The matrix products, where nearly all the time of a model is spent.

// y [M, N] = x [M, K] · wᵀ, with w [N, K] row by row: sums are made in doubles.
export function timesRows(x, w, M, K, N, y = new Float32Array(M * N)) {
  let m = 0;
  for (; m + 4 <= M; m += 4) {
    const x0 = m * K, x1 = x0 + K, x2 = x1 + K, x3 = x2 + K;
    for (let n = 0, at = 0; n < N; n++) {
      let a = 0, b = 0, c = 0, d = 0;
      for (let k = 0; k < K; k++, at++) {
        const value = w[at];
        a += x[x0 + k] * value;
        b += x[x1 + k] * value;
        c += x[x2 + k] * value;
        d += x[x3 + k] * value;
      }
      const place = m * N + n;
      y[place] = a;
      y[place + N] = b;
      y[place + 2 * N] = c;
      y[place + 3 * N] = d;
    }
  }
  for (; m < M; m++) oneRow(x, w, m * K, K, N, y, m * N);
  return y;
}

// One row, four columns at a time.
function oneRow(x, w, from, K, N, y, to) {
  let n = 0;
  for (; n + 4 <= N; n += 4) {
    let w0 = n * K, w1 = w0 + K, w2 = w1 + K, w3 = w2 + K, a = 0, b = 0, c = 0, d = 0;
    for (let k = from, end = from + K; k < end; k++) {
      const value = x[k];
      a += value * w[w0++];
      b += value * w[w1++];
      c += value * w[w2++];
      d += value * w[w3++];
    }
    y[to + n] = a;
    y[to + n + 1] = b;
    y[to + n + 2] = c;
    y[to + n + 3] = d;
  }
  for (; n < N; n++) {
    let sum = 0;
    for (let k = 0, at = n * K; k < K; k++) sum += x[from + k] * w[at + k];
    y[to + n] = sum;
  }
}

// y [M, N] += x [M, K] · w [K, N], from places in larger arrays.
export function timesColumns(x, xAt, w, wAt, M, K, N, y, yAt) {
  const sums = new Float64Array(N);
  for (let m = 0; m < M; m++) {
    sums.fill(0);
    for (let k = 0; k < K; k++) {
      const value = x[xAt + m * K + k], row = wAt + k * N;
      if (value !== 0) for (let n = 0; n < N; n++) sums[n] += value * w[row + n];
    }
    y.set(sums, yAt + m * N);
  }
}

export function transposed(data, rows, columns) {
  const out = new data.constructor(data.length);
  for (let row = 0, at = 0; row < rows; row++) for (let column = 0; column < columns; column++, at++) out[column * rows + row] = data[at];
  return out;
}
