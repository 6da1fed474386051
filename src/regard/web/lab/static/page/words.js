// Labels of tokens: spaces visible, the bytes of one character as the character, as insight/words.py makes them.
const PART = /^(?:<0x[0-9A-F]{2}>)+$/, SIGNS = { "\n": "⏎", "\t": "⇥", "\r": "␍" };
const SPACES = /^[ \u00a0\u2009\u202f\u3000]*/, AFTER = /[ \u00a0\u2009\u202f\u3000]*$/;
const LEFTWARD = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/gu, LETTER = /\p{L}/gu;

export const legible = (words) => Array.from(words, (sign) => SIGNS[sign] ?? (/[\p{Cc}\p{Cs}\p{Cn}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u.test(sign) ? "\ufffd" : sign)).join("");

export function visible(token) {
  if (!token) return "–";
  if (/^\p{Cf}+$/u.test(token)) return Array.from(token, (sign) => `U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`).join(" ");
  const before = token.match(SPACES)[0].length, rest = token.slice(before), after = rest.match(AFTER)[0].length;
  return "␣".repeat(before) + legible(rest.slice(0, rest.length - after)) + "␣".repeat(after);
}

// How many of the first tokens are the bytes of one whole character, and that character.
function character(tokens) {
  const bytes = [];
  for (let size = 0; size < Math.min(4, tokens.length) && PART.test(tokens[size]); size++) {
    for (const [, code] of tokens[size].matchAll(/0x(..)/g)) bytes.push(parseInt(code, 16));
    try { return [size + 1, new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes))]; } catch { /* more bytes are to come */ }
  }
  return [1, tokens[0]];
}

export function labels(tokens) {
  const shown = [];
  while (shown.length < tokens.length) {
    const [size, text] = character(tokens.slice(shown.length, shown.length + 4));
    if (size > 1) for (let part = 1; part <= size; part++) shown.push(`${visible(text)} ${part}/${size}`);
    else shown.push(visible(text));
  }
  return shown;
}

// The label of a choice after these tokens: the character that it completes, if it completes one.
export function labelAfter(before, choice) {
  let start = before.length;
  while (start && PART.test(before[start - 1])) start--;
  return labels([...before.slice(start), choice]).at(-1);
}

export const leftward = (words) => (words.join("").match(LEFTWARD) || []).length * 2 > (words.join("").match(LETTER) || []).length;
