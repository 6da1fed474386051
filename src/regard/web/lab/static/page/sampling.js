// Drawing the next token, as decoding/sampling.py: the same seed draws the same text as `regard generate`.

const MASK = (1n << 64n) - 1n, M0 = 0xd2e7470ee14c6c93n, M1 = 0xca5a826395121157n, W0 = 0x9e3779b97f4a7c15n, W1 = 0xbb67ae8584caa73bn;

// NumPy's Philox generator (Salmon et al. 2011) for the text number 0 of a seed: numbers in [0, 1).
export function randomStream(seed) {
  const counter = [0n, 0n, 0n, 0n];
  let held = [];
  return () => {
    if (!held.length) {
      counter[0]++;
      let [a, b, c, d] = counter, [k0, k1] = [BigInt(seed), 0n];
      for (let round = 0; round < 10; round++) {
        const low = M0 * a, high = M1 * c;
        [a, b, c, d] = [(high >> 64n) ^ b ^ k0, high & MASK, (low >> 64n) ^ d ^ k1, low & MASK];
        [k0, k1] = [(k0 + W0) & MASK, (k1 + W1) & MASK];
      }
      held = [a, b, c, d];
    }
    return Number(held.shift() >> 11n) / 2 ** 53;
  };
}

// log P of every token, in doubles.
export function logSoftmax(logits) {
  let most = -Infinity, sum = 0;
  for (const value of logits) if (value > most) most = value;
  for (const value of logits) sum += Math.exp(value - most);
  const by = most + Math.log(sum);
  return Float64Array.from(logits, (value) => value - by);
}

export const banned = (logits, forbidden) => { const out = logits.slice(); for (const token of forbidden) out[token] = -Infinity; return out; };

export function best(logits) {
  let at = 0;
  for (let token = 1; token < logits.length; token++) if (logits[token] > logits[at]) at = token;
  return at;
}

// The `count` largest, largest first; of equal ones the lower number first.
export function largest(logits, count) {
  const order = Array.from(logits.keys());
  if (count >= logits.length) return order.sort((a, b) => logits[b] - logits[a] || a - b);
  const least = Float64Array.from(logits).sort()[logits.length - count];
  return order.filter((token) => logits[token] >= least).sort((a, b) => logits[b] - logits[a] || a - b).slice(0, count);
}

// The weights that a draw is made by: P^(1/temperature) of those that may be drawn, of others 0.
export function weights(logits, { temperature, topK = 0, topP = 1 }) {
  let most = -Infinity, least = -Infinity;
  for (const value of logits) if (value > most) most = value;
  const weigh = (value) => Math.exp((value - most) / temperature);
  if (topK || topP < 1) {
    const ordered = Float64Array.from(logits).sort().reverse().slice(0, topK || logits.length);
    least = ordered.at(-1);
    if (topP < 1) {
      const all = ordered.reduce((sum, value) => sum + weigh(value), 0);
      let before = 0, kept = 0;
      while (kept < ordered.length && before < topP * all) before += weigh(ordered[kept++]);
      least = ordered[Math.max(1, kept) - 1];
    }
  }
  return Float64Array.from(logits, (value) => (value < least ? 0 : weigh(value)));
}

export function choose(logits, how, random) {
  if (how.temperature === 0) return best(logits);
  const shares = weights(logits, how), drawn = random() * shares.reduce((sum, share) => sum + share, 0);
  let sum = 0, last = 0;
  for (let token = 0; token < shares.length; token++) {
    sum += shares[token];
    if (shares[token] > 0) last = token;
    if (sum > drawn) return token;
  }
  return last;
}
