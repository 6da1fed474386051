// SVG as text, in the page's own ink, and two colors that can be told apart on light and on dark paper.
export const BLUE = "#0072B2";
export const RED = "#D55E00";
export const escaped = (words) => String(words).replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]);

// A number in few letters: 0.047, 12.5, 3.1e-7.
export function short(value, digits = 3) {
  if (value === 0) return "0";
  return Math.abs(value) < 0.0005 ? value.toExponential(1).replace("e-", "e−") : String(Number(value.toPrecision(digits)));
}

export const label = (x, y, words, { anchor = "middle", size = 14, bold = false, fill = "currentColor" } = {}) =>
  `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" font-size="${size}" text-anchor="${anchor}" fill="${fill}"${bold ? ' font-weight="700"' : ""}>${escaped(words)}</text>`;

export const box = (x, y, width, height, fill, opacity = 1, name = "") =>
  `<rect x="${x.toFixed(1)}" y="${y.toFixed(1)}" width="${Math.max(0, width).toFixed(1)}" height="${Math.max(0, height).toFixed(1)}" fill="${fill}" fill-opacity="${opacity.toFixed(3)}">${name ? `<title>${escaped(name)}</title>` : ""}</rect>`;

export const line = (points, stroke, more = "") => `<path d="M${points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}" fill="none" stroke="${stroke}" ${more}/>`;

export const picture = (width, height, words, parts) =>
  `<svg role="img" fill="currentColor" viewBox="0 0 ${width} ${Math.ceil(height)}"><title>${escaped(words)}</title>${parts.join("")}</svg>`;

// Rows of a name and one or two bars from 0 to 1; `bars` are [value, color].
export function barRows(rows, { wide, top, names = 120, tall = 24, most = 1 }) {
  const room = wide - names - 64;
  return rows.flatMap(({ name, bars }, place) => {
    const y = top + tall * place, each = (tall - 6) / bars.length;
    return [label(names - 8, y + tall / 2 + 2, name, { anchor: "end" }), ...bars.flatMap(([value, color], at) => [
      box(names, y + each * at, (room * value) / most, each - 1, color, 0.85),
      label(names + (room * value) / most + 6, y + each * (at + 0.5) + 4, short(value), { anchor: "start", size: bars.length > 1 ? 11 : 13 }),
    ])];
  });
}

// A table of weights: a shade and a number in each cell; `strong` marks rows.
export function grid({ rows, columns, values, wide, top, names = 100, color = BLUE, tall = 24 }) {
  const slanted = Math.max(...columns.map((word) => word.length)) * 8 * columns.length > wide - names, head = slanted ? 64 : 18;
  const cell = (wide - names - (slanted ? 34 : 4)) / columns.length;
  const parts = columns.map((word, at) => {
    const x = names + cell * (at + 0.5);
    return slanted ? `<g transform="translate(${(x + 4).toFixed(1)} ${top + head - 6}) rotate(-50)">${label(0, 0, word, { anchor: "start", size: 13 })}</g>` : label(x, top + 12, word, { size: 13 });
  });
  rows.forEach((name, row) => {
    const y = top + head + tall * row;
    parts.push(label(names - 8, y + tall / 2 + 4, name, { anchor: "end", size: 13 }));
    values[row].forEach((value, at) => {
      if (value === null) return;
      parts.push(box(names + cell * at, y, cell - 2, tall - 2, color, 0.06 + 0.84 * Math.max(0, Math.min(1, value)), `${name} → ${columns[at]}: ${short(value)}`));
      if (cell > 30) parts.push(label(names + cell * (at + 0.5) - 1, y + tall / 2 + 4, value.toFixed(2).replace(/^0/, ""), { size: 11, fill: value > 0.55 ? "#fff" : "currentColor" }));
    });
  });
  return { parts, bottom: top + head + tall * rows.length };
}

// Lines over two axes; `log`: powers of ten upwards.
export function chart({ lines, wide, tall, x, y, log = false, low, high, at = null }) {
  const left = 64, right = wide - 12, top = 12, bottom = tall - 42;
  const ends = lines.flatMap(({ points }) => points.map(([place]) => place)), first = Math.min(...ends), last = Math.max(...ends, first + 1e-9);
  const scaled = (value) => (log ? Math.log10(Math.max(value, 10 ** low)) : value);
  const across = (place) => left + ((place - first) / (last - first)) * (right - left), up = (value) => bottom - ((scaled(value) - low) / (high - low)) * (bottom - top);
  const parts = [line([[left, top], [left, bottom], [right, bottom]], "currentColor", 'stroke-opacity="0.5"')];
  for (let step = 0; step <= 4; step++) {
    const value = low + ((high - low) * step) / 4, height = bottom - ((bottom - top) * step) / 4;
    parts.push(line([[left, height], [right, height]], "currentColor", 'stroke-opacity="0.15"'), label(left - 6, height + 4, log ? short(10 ** value, 2) : short(value), { anchor: "end", size: 11 }));
    const place = first + ((last - first) * step) / 4;
    parts.push(label(across(place), bottom + 16, short(place, 2), { size: 11 }));
  }
  if (at !== null) parts.push(line([[across(at), top], [across(at), bottom]], "currentColor", 'stroke-dasharray="4 3"'));
  lines.forEach(({ name, color, points }, place) => {
    parts.push(line(points.map(([a, b]) => [across(a), up(b)]), color, 'stroke-width="2.5"'));
    const marked = points.find(([a]) => a === at);
    if (marked) parts.push(`<circle cx="${across(at).toFixed(1)}" cy="${up(marked[1]).toFixed(1)}" r="5" fill="${color}"/>`);
    parts.push(label(right - 4, top + 14 + 18 * place, name, { anchor: "end", size: 13, fill: color, bold: true }));
  });
  parts.push(label((left + right) / 2, tall - 8, x, { size: 12 }), `<g transform="translate(12 ${(top + bottom) / 2}) rotate(-90)">${label(0, 0, y, { size: 12 })}</g>`);
  return parts;
}
