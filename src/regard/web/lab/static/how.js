// "How to read this": one sentence about a view, a legend of its marks and units, and the chapter that explains it.
import { link } from "./address.js";
import { el } from "./dom.js";

const MARKS = {
  space: ["␣", "a space. Many tokens begin with one."],
  eos: ["<eos>", "the boundary: the model reads it before the first word, and predicts it to end the text or line."],
  frame: [el("span", { class: "frame" }, "word"), "the step that is shown: the model has read this word."],
  next: [el("span", { class: "frame next" }, "word"), "the word that it then had to predict."],
  shade: [el("span", { class: "frame shade" }, "word"), "shaded words: the stronger the shade, the larger the share of attention (0 to 1)."],
  loss: ["nats", "the loss is −log P of the next token with natural logarithms; nats ÷ 0.693 are bits."],
  perplexity: ["perplexity", "e to the loss: among how many equally probable tokens the model would have to guess."],
  bleu: ["BLEU, chrF", "from 0 to 100; 100 equals the reference."],
  interval: ["├──┤", "a 95 % interval: over seeds and test documents."],
  verdict: ["✓ ✗ ?", "holds, fails, inconclusive: judged by bounds that were fixed before the run."],
  solved: ["✓ … ·", "solved, begun, not begun."],
  level: ["★", "one line, a few lines, think first."],
  piece: [el("span", { class: "piece" }, "piece"), "one token."],
};

// A view's sentence, its marks, and the chapter and section that explain it.
export const HOW = {
  runs: ["Each curve is one run: to the right what it has read, upwards its validation loss. Lower is better.", ["loss", "perplexity", "space", "eos"], "counting", "Loss and perplexity: how good is a model?"],
  ladder: ["Each row is one system on the same text, tokens, budget and test. Two systems differ if the interval of their difference does not contain 0.", ["interval", "perplexity", "bleu"], "about", ""],
  sentence: ["Below each word is the probability that the model gave it before reading it. Choose a word to see that step.", ["frame", "next", "shade", "space", "eos", "loss"], "gpt", "Why did it say that?"],
  translation: ["Choose a word of the translation: the source words it looked at are shaded.", ["frame", "shade", "space", "eos", "bleu"], "translation", "Learning to align"],
  time: ["The same model at several steps of its training: move the slider or press Play, and see which words, heads and vectors change.", ["loss", "frame", "next", "space", "eos"], "embeddings", "Words with similar use get similar vectors"],
  claims: ["Each statement of the course was tested by an experiment with a control that must come out the other way.", ["verdict", "interval"], "about", ""],
  lectures: ["Each section has its formula, the line of code that computes it, a command, and the verdict of its test.", ["verdict"], "about", ""],
  exercises: ["Fill in the blank of a sheet; the grader compares your function with Regard's own on random inputs.", ["solved", "level"], "about", ""],
  text: ["What a corpus consists of, and how a tokenizer cuts a sentence into the tokens that a model reads.", ["piece", "space", "eos"], "embeddings", "From text to numbers"],
};

// The note for a view, as elements.
export function howToRead(view) {
  const [sentence, marks, page, section] = HOW[view];
  return [
    el("p", {}, sentence, " ", view !== "lectures" && el("a", { href: link("lectures", page, { section }) }, section ? `Chapter: ${section}` : "About the course")),
    el("dl", {}, marks.map((name) => [el("dt", {}, MARKS[name][0] instanceof Node ? MARKS[name][0].cloneNode(true) : MARKS[name][0]), el("dd", {}, MARKS[name][1])]))];
}
