// "How to read this": one sentence about a view, a legend of its marks and units, and the chapter that explains it.
import { link } from "./address.js";
import { el } from "./dom.js";

const MARKS = {
  space: ["␣", "a space. Many tokens begin with one."],
  eos: ["<eos>", "the boundary token: the model reads it before the first word and predicts it to end the text or line."],
  frame: [el("span", { class: "frame" }, "word"), "the selected step: the model has just read this word."],
  next: [el("span", { class: "frame next" }, "word"), "the word it had to predict next."],
  shade: [el("span", { class: "frame shade" }, "word"), "shaded words: the stronger the shade, the larger the attention weight (0 to 1)."],
  loss: ["nats", "the unit of the loss, −ln P of the next token. Divide by 0.693 to get bits."],
  perplexity: ["perplexity", "exp(loss): the model is as uncertain as if it had to choose among this many equally probable tokens."],
  bleu: ["BLEU, chrF", "scores from 0 to 100, where 100 means identical to the reference."],
  interval: ["├──┤", "a 95 % confidence interval over seeds and test documents."],
  verdict: ["✓ ✗ ?", "holds, fails, inconclusive: judged by bounds fixed before the run."],
  solved: ["✓ … ·", "solved, started, not started."],
  level: ["★", "difficulty: one line, a few lines, needs some thought."],
  piece: [el("span", { class: "piece" }, "piece"), "one token."],
};

// A view's sentence, its marks, and the chapter and section that explain it.
export const HOW = {
  runs: ["Each curve is one run: the x-axis shows the tokens read so far, the y-axis the loss. Lower is better.", ["loss", "perplexity", "space", "eos"], "counting", "Loss and perplexity: how good is a model?"],
  ladder: ["Each row is one system, trained and tested on the same text with the same budget. Two systems differ if the interval of their difference does not contain 0.", ["interval", "perplexity", "bleu"], "about", ""],
  sentence: ["Below each word is the probability that the model gave it before reading it. Choose a word to inspect that step.", ["frame", "next", "shade", "space", "eos", "loss"], "gpt", "Why did it say that?"],
  translation: ["Choose a word of the translation to shade the source words that it attended to.", ["frame", "shade", "space", "eos", "bleu"], "translation", "Learning to align"],
  time: ["The same model at several steps of its training. Move the slider or press Play to see how predictions, heads and vectors change.", ["loss", "frame", "next", "space", "eos"], "embeddings", "Words with similar use get similar vectors"],
  claims: ["Each statement of the course was tested by an experiment with a control that must give the opposite result.", ["verdict", "interval"], "about", ""],
  lectures: ["Each section has a formula, the code that computes it, a command, and the verdict of its test.", ["verdict"], "about", ""],
  exercises: ["Fill in the blank. The grader compares your function with Regard's own on random inputs.", ["solved", "level"], "about", ""],
  text: ["See what a corpus consists of and how a tokenizer splits a sentence into the tokens that a model reads.", ["piece", "space", "eos"], "embeddings", "From text to numbers"],
};

// The note for a view, as elements.
export function howToRead(view) {
  const [sentence, marks, page, section] = HOW[view];
  return [
    el("p", {}, sentence, " ", view !== "lectures" && el("a", { href: link("lectures", page, { section }) }, section ? `Chapter: ${section}` : "About the course")),
    el("dl", {}, marks.map((name) => [el("dt", {}, MARKS[name][0] instanceof Node ? MARKS[name][0].cloneNode(true) : MARKS[name][0]), el("dd", {}, MARKS[name][1])]))];
}
