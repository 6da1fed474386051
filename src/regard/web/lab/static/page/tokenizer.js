// Text to tokens and back, from the tokenizer.json of a run: words, characters, bytes or byte pairs, as text/tokenizer.py.

const WHITE = "\\t\\x0b\\x0c\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"; // without the line end
const PART = "[\\p{L}\\p{M}\\p{N}_]+", NOT_WHITE = `[^\\n${WHITE}\\x1c-\\x1f]`;
const WORDS = new RegExp(`<unk>|\\p{N}+(?:[.,:]\\p{N}+)+|${PART}(?:['’‑\\-]${PART})*|${NOT_WHITE}`, "gu");
const SPACED = new RegExp(`${NOT_WHITE}+`, "gu");
const PIECES = new RegExp(`[${WHITE}]*[^\\n${WHITE}]+|[${WHITE}]+`, "gu");
const S = `[\\n${WHITE}]`, NO_S = `[^\\n${WHITE}]`;
const PAIRS = new RegExp(`'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\n${WHITE}\\p{L}\\p{N}]+|${S}+(?!${NO_S})|${S}+`, "gu");
const CLOSING = / ([.,;:!?…)\]}”])(?= |$)/gm, OPENING = new RegExp(`(?<!${NOT_WHITE})([(\\[{“]) `, "gu");

// The character that stands for each byte: itself where it has a shape, else the next free one from U+0100 on.
const BYTES = (() => {
  const shown = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173), out = [];
  for (let byte = 0, free = 256; byte < 256; byte++) out.push(String.fromCharCode(shown(byte) ? byte : free++));
  return out;
})();
const BYTE_OF = new Map(BYTES.map((sign, byte) => [sign, byte]));

export class Tokenizer {
  constructor(made) {
    const { pre_tokenizer: cut, normalizer, model } = made;
    this.kind = cut.type === "ByteLevel" ? (cut.use_regex ? "bpe" : "byte") : cut.pattern.Regex === "[\\s\\S]" ? "char" : "word";
    this.pretokenized = this.kind === "word" && !cut.pattern.Regex.startsWith("<unk>");
    this.form = normalizer ? normalizer.type : null;
    this.numbers = new Map(Object.entries(model.vocab));
    this.symbols = [];
    for (const [symbol, number] of this.numbers) this.symbols[number] = symbol;
    this.eos = 0;
    this.inBytes = this.kind === "bpe" || this.kind === "byte";
    this.specials = this.inBytes ? [0] : [0, 1];
    if (this.inBytes) this.bytes = this.symbols.map((symbol, number) => (number ? Uint8Array.from(symbol, (sign) => BYTE_OF.get(sign)) : Uint8Array.of(10)));
    this.tokens = this.inBytes ? this.bytes.map((bytes, number) => (number ? readable(bytes) : "<eos>")) : this.symbols;
    this.ranks = new Map((model.merges || []).map((pair, rank) => [Array.isArray(pair) ? pair.join(" ") : pair, rank]));
    this.met = new Map();
  }

  normalize(text) { return this.form ? text.normalize(this.form) : text; }

  // The ids of a text; a line end within it is <eos>.
  encode(text) {
    if (!text.isWellFormed?.() && /[\ud800-\udfff]/u.test(text)) throw new Error("The text contains an unpaired surrogate, so it is not valid Unicode.");
    const whole = this.normalize(text);
    if (this.kind === "byte") return Array.from(new TextEncoder().encode(whole), (byte) => (byte === 10 ? 0 : 1 + byte));
    if (this.kind === "char") return Array.from(whole, (sign) => (sign === "\n" ? 0 : sign === "<eos>" ? 1 : this.numbers.get(sign) ?? 1));
    return whole.split("\n").flatMap((line, place) => [...(place ? [0] : []), ...this.line(line)]);
  }

  line(line) {
    if (this.kind === "word") return (line.match(this.pretokenized ? SPACED : WORDS) || []).map((word) => this.numbers.get(word) ?? 1);
    return (line.match(PIECES) || []).flatMap((piece) => {
      if (!this.met.has(piece)) {
        if (this.met.size > 50000) this.met.clear();
        this.met.set(piece, (piece.match(PAIRS) || []).flatMap((word) => this.merged(word)));
      }
      return this.met.get(piece);
    });
  }

  // Byte pairs: of the neighbors the pair of the lowest rank is merged first, the leftmost of them.
  merged(word) {
    const parts = Array.from(new TextEncoder().encode(word), (byte) => BYTES[byte]);
    for (;;) {
      let best = Infinity, at = -1;
      for (let place = 0; place + 1 < parts.length; place++) {
        const rank = this.ranks.get(`${parts[place]} ${parts[place + 1]}`);
        if (rank !== undefined && rank < best) [best, at] = [rank, place];
      }
      if (at < 0) return parts.map((part) => this.numbers.get(part));
      parts.splice(at, 2, parts[at] + parts[at + 1]);
    }
  }

  decode(ids) {
    if (this.inBytes) return textOf(ids.flatMap((id) => [...this.bytes[id]]));
    const words = ids.map((id) => (id === 0 ? "\n" : this.symbols[id]));
    if (this.kind === "char") return words.join("");
    const text = words.join(" ").replace(/ ?\n ?/g, "\n");
    return this.pretokenized ? text : text.replace(CLOSING, "$1").replace(OPENING, "$1");
  }
}

// UTF-8, without bytes that do not make a whole character.
function textOf(bytes) {
  let out = "";
  for (let at = 0; at < bytes.length; ) {
    const first = bytes[at], size = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
    let code = size === 1 ? first : first & (0x7f >> size), good = 1;
    while (good < size && (bytes[at + good] & 0xc0) === 0x80 && fits(first, good, bytes[at + good])) code = (code << 6) | (bytes[at + good++] & 63);
    if (size && good === size) out += String.fromCodePoint(code);
    at += size ? good : 1;
  }
  return out;
}

// The second byte excludes overlong forms, halves of surrogate pairs, and what is beyond Unicode.
const fits = (first, place, byte) => place > 1 || (first === 0xe0 ? byte >= 0xa0 : first === 0xed ? byte < 0xa0 : first === 0xf0 ? byte >= 0x90 : first === 0xf4 ? byte < 0x90 : true);

function readable(bytes) {
  const text = textOf([...bytes]);
  return new TextEncoder().encode(text).length === bytes.length ? text : Array.from(bytes, (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`).join("");
}
